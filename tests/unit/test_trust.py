"""What a checkpoint and a run folder from elsewhere may do."""

import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from ltr.cli.cli import call_command
from ltr.cli.compose import user_error
from ltr.cli.configs import CONFIGS
from ltr.cli.folders import read_overrides, register_resolvers, run_folder
from ltr.cli.keys import resolved
from ltr.errors import CheckpointError, ConfigError, DataError
from ltr.experiment.resume import resumed_config
from ltr.inference.evaluate import evaluate_model
from ltr.parts.components import PARTS
from ltr.parts.scorer import load_model
from ltr.parts.trust import TARGETS, config_for_checkpoint, trusted
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from tests.helpers.folders import refused
from tests.helpers.runs import compose, run

TRUSTED_CONFIG: dict[str, Any] = {
    "model": {"_target_": "ltr.models.MLP"},
    "loss": {"_target_": "ltr.losses.listnet_loss"},
    "optimizer": {"_target_": "torch.optim.Adam"},
    "schedule": {"_target_": "ltr.training.schedules.constant"},
    "transform": {"_target_": "ltr.data.transforms.fit_transform"},
    "dataset": {"_target_": "ltr.data.files.LetorFiles"},
}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trust") / "run"
    folder.mkdir()
    small = ["dataset.queries=12", "model=mlp", "model.hidden_sizes=[4]", "epochs=1", "threads=1"]
    run(compose(*small), folder, {"loss": "neuralndcg"})
    return folder


@pytest.fixture
def run_copy(finished_run, tmp_path) -> Path:
    """Return a copy of the finished run."""
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


def change_config(folder: Path, without: str = "", **config: Any) -> None:
    """Put other values into the config of the checkpoints of a run, or leave one out.

    Its results are removed, as they hold the digests of the old files.
    """
    (folder / "results.json").unlink(missing_ok=True)
    for name in ("best.pt", "last.pt"):
        content = load_checkpoint(folder / name)
        content["config"] |= config
        content["config"].pop(without, None)
        save_checkpoint(folder / name, content)


def readers_of_config(folder: Path) -> list[Callable[[], object]]:
    """Return functions that read the config of a run, but for ``ltr evaluate``."""
    return [lambda: load_model(folder), lambda: resumed_config(compose(f"resume={folder}"), [])]


def evaluate(folder: Path, *overrides: str) -> str:
    return call_command(
        evaluate_model, compose(f"checkpoint={folder}", *overrides, config="evaluate")
    )


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("model", {"_target_": "os.system"}),
        ("model", {"_target_": "ltr.losses.listnet_loss"}),
        ("model", {}),
        ("model", "ltr.models.MLP"),
        ("dataset", {"_target_": "ltr.data.files.os.system"}),
        ("optimizer", {"_target_": "torch.optim.optimizer.torch.hub.load"}),
        ("optimizer", {"_target_": "torch.optim.Adam", "lr": {"_target_": "os.getcwd"}}),
        ("loss", {"_target_": "ltr.losses.listnet_loss", "knob": [{"_target_": "os.getcwd"}]}),
        ("loss", {"_target_": "ltr.losses.batch.mean_over_batch"}),
    ],
)
def test_trusted_refuses_configs_that_name_other_code(name, node) -> None:
    trusted(TRUSTED_CONFIG, list(TRUSTED_CONFIG))
    with pytest.raises(ConfigError, match=rf"the checkpoint's {name} is .*trust="):
        trusted({**TRUSTED_CONFIG, name: node}, list(TRUSTED_CONFIG))


def test_targets_are_what_the_configs_name() -> None:
    for name in PARTS:
        texts = [path.read_text() for path in (CONFIGS / name).glob("*.yaml")]
        targets = {target for text in texts for target in re.findall(r"_target_: *(\S+)", text)}
        assert targets <= TARGETS[name]
        if name != "optimizer":
            assert targets >= {target for target in TARGETS[name] if "lambdas" not in target}


def test_trusted_allows_modules_of_trust_and_checks_only_parts_to_be_built() -> None:
    config = {**TRUSTED_CONFIG, "loss": {"_target_": "fractions.Fraction"}}
    with pytest.raises(ConfigError):
        trusted(config, ["loss"])
    for trust in ("fractions", ["fractions"]):
        assert trusted(config, ["loss"], trust).loss._target_ == "fractions.Fraction"
    assert trusted(config, ["model"]).model._target_ == "ltr.models.MLP"


@pytest.mark.parametrize(
    "sizes", ["${evil}", r"\${evil}", ["${evil}"], "${oc.create:${evil}}", {"a": "${data_dir}"}]
)
def test_trusted_refuses_interpolations_to_unchecked_nodes(sizes, tmp_path) -> None:
    evil = {"_target_": "os.mkdir", "path": str(tmp_path / "owned")}
    config = {**TRUSTED_CONFIG, "evil": evil, "data_dir": evil}
    config["model"] = {"_target_": "ltr.models.MLP", "hidden_sizes": sizes}
    with pytest.raises(ConfigError, match=r"the checkpoint's"):
        trusted(config, ["model"])
    assert not (tmp_path / "owned").exists()


@pytest.mark.slow
def test_checkpoint_config_reads_no_environment_variable(run_copy, monkeypatch) -> None:
    monkeypatch.setenv("SECRET", "swordfish")
    for text in ("${oc.env:SECRET}", r"\${oc.env:SECRET}", "a ${seed} b"):
        for entries in ({"select_on": text}, {"mine": {"deep": [text]}}):
            change_config(run_copy, **entries)
            for read in (*readers_of_config(run_copy), lambda: evaluate(run_copy)):
                assert "swordfish" not in refused(read, ConfigError)


def test_config_to_keep_resolves_what_the_user_s_config_reads(monkeypatch) -> None:
    monkeypatch.setenv("TOP", "ndcg@3")
    cfg = compose("epochs=1", "select_on=${oc.env:TOP}", "+mine=${epochs}")
    config = config_for_checkpoint(OmegaConf.to_container(cfg), resolved(cfg))
    assert config["select_on"] == "ndcg@3"
    assert (config["epochs"], config["mine"], config["patience"]) == (1, "${epochs}", None)
    changed = trusted(config | {"epochs": 2}, [])
    assert (changed.epochs, changed.mine) == (2, 2)


@pytest.mark.slow
def test_checkpoint_config_without_a_required_key_is_one_line(run_copy) -> None:
    config = load_checkpoint(run_copy / "best.pt")["config"]
    for key in ("precision", "convention", "data_dir", "metrics", "select", "model"):
        change_config(run_copy, key, **config)
        for read in readers_of_config(run_copy):
            refused(read, CheckpointError)


@pytest.mark.slow
def test_load_model_builds_no_model_larger_than_its_file(run_copy) -> None:
    size = {"_target_": "ltr.models.MLP", "_partial_": True, "hidden_sizes": [10**6, 10**6]}
    embedding = {"kind": "piecewise", "size": 1, "bins": 10**8}
    buffers = {**size, "hidden_sizes": [1], "embedding": embedding}  # buffers alone
    for model in (size, buffers):
        change_config(run_copy, model=model)
        assert "does not match its own config" in refused(
            lambda: load_model(run_copy), CheckpointError
        )


@pytest.mark.slow
def test_checkpoint_config_does_not_choose_output_folders(run_copy, tmp_path) -> None:
    theirs = tmp_path / "theirs"
    mine = tmp_path / "mine_cache"
    (theirs / "thesis.tmp").mkdir(parents=True)
    dataset = load_checkpoint(run_copy / "last.pt")["config"]["dataset"]
    for cache_dir in ("${cache_dir}", str(theirs)):
        change_config(run_copy, cache_dir=str(theirs), output_dir=str(theirs))
        change_config(run_copy, dataset=dataset | {"cache_dir": cache_dir})
        assert "ndcg@5" in evaluate(run_copy, f"cache_dir={mine}")
        cfg, _ = resumed_config(compose(f"resume={run_copy}", f"cache_dir={mine}"), [])
        assert cfg.cache_dir == cfg.dataset.cache_dir == str(mine)
        assert cfg.output_dir == "outputs"
    assert [path.name for path in theirs.iterdir()] == ["thesis.tmp"]
    assert any(mine.iterdir())


@pytest.mark.slow
def test_run_folder_names_neither_machine_nor_folders(
    tiny, tmp_path, letor_folder, monkeypatch
) -> None:
    monkeypatch.chdir(letor_folder)
    monkeypatch.setattr(socket, "gethostname", lambda: "mine.example")  # "vm" may be in any weight
    args = [arg for arg in tiny if not arg.startswith(("data_dir", "cache_dir"))]
    folder = Path("outputs/run")
    folder.mkdir(parents=True)
    run(compose(*args, "data_dir=.", "cache_dir=cache", "epochs=1"), folder, {})
    for path in (path for path in folder.rglob("*") if path.is_file()):
        content = str(path).encode() + path.read_bytes()
        for private in (socket.gethostname(), str(letor_folder), str(Path.home())):
            pattern = rb"(?<!\w)" + re.escape(private.encode()) + rb"(?!\w)"
            assert not re.search(pattern, content), path

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    resume = [f"resume={letor_folder}/outputs/run", f"cache_dir={letor_folder}/cache", "epochs=2"]
    cfg, choices = resumed_config(compose(*resume), resume)
    assert run(cfg, run_folder(cfg.resume), choices)
    config = load_checkpoint(letor_folder / folder / "last.pt")["config"]
    assert config["data_dir"] == "../.."
    assert config["epochs"] == 2


@pytest.mark.parametrize("name", ["train.log", ".hydra/resumed"])
def test_resume_refuses_a_run_folder_with_links(tmp_path, name) -> None:
    target = tmp_path / "thesis.txt"
    target.write_text("mine")
    folder = tmp_path / "run"
    (folder / ".hydra").mkdir(parents=True)
    (folder / "last.pt").touch()
    (folder / name).symlink_to(target)
    register_resolvers()
    cfg = OmegaConf.create({"resume": str(folder), "run_dir": "${run_dir:a,${resume},b}"})
    with pytest.raises(Exception, match=r"is a symbolic link, .*: remove the link") as error:
        _ = cfg.run_dir
    assert isinstance(user_error(error.value), CheckpointError)


def test_read_overrides_returns_texts_as_written(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SECRET", "swordfish")
    path = tmp_path / "overrides.yaml"
    path.write_text("- seed=1\n- ${oc.env:SECRET}=2\n")
    assert read_overrides(path) == ["seed=1", "${oc.env:SECRET}=2"]
    path.write_text("- seed=1\n- {a: 1}\n")
    assert "a list of strings" in refused(lambda: read_overrides(path), DataError)
    assert os.environ["SECRET"]

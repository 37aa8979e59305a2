"""What a checkpoint, a run folder and a journal from elsewhere may do."""

import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import compose
from folders import refused
from omegaconf import OmegaConf
from runs import run

from ltr.console.cli import call_command
from ltr.console.compose import user_error
from ltr.console.configs import CONFIGS
from ltr.console.folders import read_overrides, register_resolvers, run_folder
from ltr.errors import CheckpointError, ConfigError, DataError
from ltr.experiment.resume import resumed_config
from ltr.inference.evaluate import evaluate_model
from ltr.scorers.parts import PARTS
from ltr.scorers.scorer import load_model
from ltr.scorers.trust import TARGETS, config_to_keep, trusted
from ltr.training.checkpoint import load_checkpoint, save_checkpoint

ROOT = Path(__file__).resolve().parents[1]
GOOD: dict[str, Any] = {
    "model": {"_target_": "ltr.models.MLP"},
    "loss": {"_target_": "ltr.losses.listnet_loss"},
    "optimizer": {"_target_": "torch.optim.Adam"},
    "schedule": {"_target_": "ltr.training.schedules.constant"},
    "transform": {"_target_": "ltr.data.transforms.fit_transform"},
    "dataset": {"_target_": "ltr.data.files.LetorFiles"},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    (folder := tmp_path_factory.mktemp("trust") / "run").mkdir()
    small = ["dataset.queries=12", "model=mlp", "model.hidden_sizes=[4]", "epochs=1", "threads=1"]
    run(compose(*small), folder, {"loss": "neuralndcg"})
    return folder


@pytest.fixture
def kept(finished, tmp_path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def change(folder: Path, without: str = "", **config: Any) -> None:
    """Put other values into the config of the checkpoints of a run, or leave one out. Its results,
    which would say that these are other files, are removed.
    """
    (folder / "results.json").unlink(missing_ok=True)
    for name in ("best.pt", "last.pt"):
        content = load_checkpoint(folder / name)
        content["config"] |= config
        content["config"].pop(without, None)
        save_checkpoint(folder / name, content)


def uses(folder: Path) -> list[Callable[[], object]]:
    """What reads the config of a run, but for ``ltr evaluate``."""
    return [lambda: load_model(folder), lambda: resumed_config(compose(f"resume={folder}"), [])]


def evaluated(folder: Path, *overrides: str) -> str:
    return call_command(
        evaluate_model, compose(f"checkpoint={folder}", *overrides, config="evaluate")
    )


@pytest.mark.parametrize(
    ("part", "node"),
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
def test_a_config_that_names_anything_else_is_refused(part, node) -> None:
    trusted(GOOD, list(GOOD))
    with pytest.raises(ConfigError, match=rf"the checkpoint's {part} is .*trust="):
        trusted({**GOOD, part: node}, list(GOOD))


def test_the_closed_list_is_what_the_configs_name() -> None:
    for part in PARTS:
        texts = [path.read_text() for path in (CONFIGS / part).glob("*.yaml")]
        named = {name for text in texts for name in re.findall(r"_target_: *(\S+)", text)}
        assert named <= TARGETS[part]
        if part != "optimizer":
            assert named >= {name for name in TARGETS[part] if "lambdas" not in name}


def test_trust_allows_the_modules_it_names_and_only_what_is_built_is_looked_at() -> None:
    mine = {**GOOD, "loss": {"_target_": "fractions.Fraction"}}
    with pytest.raises(ConfigError):
        trusted(mine, ["loss"])
    for trust in ("fractions", ["fractions"]):
        assert trusted(mine, ["loss"], trust).loss._target_ == "fractions.Fraction"
    assert trusted(mine, ["model"]).model._target_ == "ltr.models.MLP"


@pytest.mark.parametrize(
    "sizes", ["${evil}", r"\${evil}", ["${evil}"], "${oc.create:${evil}}", {"a": "${data_dir}"}]
)
def test_an_interpolation_cannot_bring_in_what_was_not_looked_at(sizes, tmp_path) -> None:
    evil = {"_target_": "os.mkdir", "path": str(tmp_path / "owned")}
    config = {**GOOD, "evil": evil, "data_dir": evil}
    config["model"] = {"_target_": "ltr.models.MLP", "hidden_sizes": sizes}
    with pytest.raises(ConfigError, match=r"the checkpoint's"):
        trusted(config, ["model"])
    assert not (tmp_path / "owned").exists()


@pytest.mark.slow
def test_a_checkpoint_reads_nothing_of_the_environment(kept, monkeypatch) -> None:
    monkeypatch.setenv("SECRET", "swordfish")
    for text in ("${oc.env:SECRET}", r"\${oc.env:SECRET}", "a ${seed} b"):
        for where in ({"select_on": text}, {"mine": {"deep": [text]}}):
            change(kept, **where)
            for use in (*uses(kept), lambda: evaluated(kept)):
                assert "swordfish" not in refused(use, ConfigError)


def test_what_the_user_s_own_config_reads_is_kept_as_its_value(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TOP", "ndcg@3")
    cfg = compose("epochs=1", "select_on=${oc.env:TOP}", "+mine=${epochs}")
    config = config_to_keep(cfg)
    assert config["select_on"] == "ndcg@3"
    assert (config["epochs"], config["mine"], config["patience"]) == (1, "${epochs}", None)
    again = trusted(config | {"epochs": 2}, [])
    assert (again.epochs, again.mine) == (2, 2)


@pytest.mark.slow
def test_a_config_that_lacks_what_every_run_has_is_one_line(kept) -> None:
    whole = load_checkpoint(kept / "best.pt")["config"]
    for key in ("precision", "convention", "data_dir", "metrics", "select", "model"):
        change(kept, key, **whole)
        for use in uses(kept):
            refused(use, CheckpointError)


@pytest.mark.slow
def test_a_model_larger_than_its_file_is_not_built(kept) -> None:
    size = {"_target_": "ltr.models.MLP", "_partial_": True, "hidden_sizes": [10**6, 10**6]}
    embedding = {"kind": "piecewise", "size": 1, "bins": 10**8}
    buffers = {**size, "hidden_sizes": [1], "embedding": embedding}  # buffers alone
    for model in (size, buffers):
        change(kept, model=model)
        assert "does not fit its own config" in refused(lambda: load_model(kept), CheckpointError)


@pytest.mark.slow
def test_a_checkpoint_does_not_choose_where_files_are_written(kept, tmp_path) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine_cache"
    (theirs / "thesis.tmp").mkdir(parents=True)
    dataset = load_checkpoint(kept / "last.pt")["config"]["dataset"]
    for place in ("${cache_dir}", str(theirs)):
        change(kept, cache_dir=str(theirs), output_dir=str(theirs))
        change(kept, dataset=dataset | {"cache_dir": place})
        assert "ndcg@5" in evaluated(kept, f"cache_dir={mine}")
        cfg, _ = resumed_config(compose(f"resume={kept}", f"cache_dir={mine}"), [])
        assert cfg.cache_dir == cfg.dataset.cache_dir == str(mine)
        assert cfg.output_dir == "outputs"
    assert [path.name for path in theirs.iterdir()] == ["thesis.tmp"]
    assert any(mine.iterdir())


@pytest.mark.slow
def test_a_run_names_neither_the_machine_nor_its_folders(
    tiny, tmp_path, letor_folder, monkeypatch
) -> None:
    monkeypatch.chdir(letor_folder)
    monkeypatch.setattr(socket, "gethostname", lambda: "mine.example")  # "vm" may be in any weight
    args = [arg for arg in tiny if not arg.startswith(("data_dir", "cache_dir"))]
    (folder := Path("outputs/run")).mkdir(parents=True)
    run(compose(*args, "data_dir=.", "cache_dir=cache", "epochs=1"), folder, {})
    for path in (path for path in folder.rglob("*") if path.is_file()):
        said = str(path).encode() + path.read_bytes()
        for own in (socket.gethostname(), str(letor_folder), str(Path.home())):
            assert not re.search(rb"(?<!\w)" + re.escape(own.encode()) + rb"(?!\w)", said), path

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    resume = [f"resume={letor_folder}/outputs/run", f"cache_dir={letor_folder}/cache", "epochs=2"]
    again, choices = resumed_config(compose(*resume), resume)
    assert run(again, run_folder(again.resume), choices)
    config = load_checkpoint(letor_folder / folder / "last.pt")["config"]
    assert config["data_dir"] == "../.."
    assert config["epochs"] == 2


@pytest.mark.parametrize("name", ["train.log", ".hydra/resumed"])
def test_a_run_folder_with_links_is_not_written_through(tmp_path, name) -> None:
    (mine := tmp_path / "thesis.txt").write_text("mine")
    (kept := tmp_path / "run" / ".hydra").mkdir(parents=True)
    (kept.parent / "last.pt").touch()
    (kept.parent / name).symlink_to(mine)
    register_resolvers()
    cfg = OmegaConf.create({"resume": str(kept.parent), "where": "${run_dir:a,${resume},b}"})
    with pytest.raises(Exception, match=r"is a link, .*: remove it") as error:
        _ = cfg.where
    assert isinstance(user_error(error.value), CheckpointError)


def test_kept_overrides_are_text(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SECRET", "swordfish")
    path = tmp_path / "overrides.yaml"
    path.write_text("- seed=1\n- ${oc.env:SECRET}=2\n")
    assert read_overrides(path) == ["seed=1", "${oc.env:SECRET}=2"]
    path.write_text("- seed=1\n- {a: 1}\n")
    assert "a list of texts" in refused(lambda: read_overrides(path), DataError)
    assert os.environ["SECRET"]

"""``metrics_as``, the name of ``convention`` in version 0.2, is accepted once more."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hydra.core.config_store import ConfigStore

from ltr import Ranker
from ltr.cli.arguments import as_hydra, merged, warn_of_former
from ltr.cli.compose import run_config, typed
from ltr.cli.folders import (
    convention_keys,
    former_convention,
    job_dir,
    read_overrides,
    sweep_dir,
    write_overrides,
)
from ltr.cli.keys import former_override
from ltr.errors import ConfigError
from ltr.experiment.identity import settings_of
from ltr.experiment.resume import resumed_config
from ltr.metrics import Convention
from ltr.parts.components import build_convention
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from tests.helpers.folders import write_folder
from tests.helpers.runs import compose, run

LETOR4 = {
    "empty": 0.0, "gain": "exp2", "discount": "letor", "ties": "file", "short": "zero",
    "relevant": 1, "map_over": "relevant",
}  # fmt: skip


@pytest.fixture(autouse=True)
def warn_anew() -> Iterator[None]:
    """Warn in each test, although a process gives each warning only once."""
    warn_of_former.cache_clear()
    yield
    warn_of_former.cache_clear()


def test_as_hydra_replaces_the_former_name_with_one_warning(caplog) -> None:
    assert as_hydra(["-m", "metrics_as=letor4,trec"]) == ["-m", "convention=letor4,trec"]
    assert typed("evaluate", ["metrics_as=letor4,trec"]).conventions == ["letor4", "trec"]
    assert typed("compare", ["metrics_as=trec"]).conventions == "trec"
    assert typed("table", ["metrics_as=trec"]).train == ["convention=trec"]
    assert len(caplog.messages) == 2  # not once more for evaluate and table
    assert "metrics_as=letor4,trec: write convention=letor4,trec" in caplog.text


def test_run_config_accepts_the_former_name() -> None:
    former, choices = run_config(["metrics_as=trec"])
    assert former == run_config(["convention=trec"])[0]
    assert choices["convention"] == "trec"
    assert "metrics_as" not in choices
    assert merged(["metrics_as=letor4"], ["convention=trec"]) == ["convention=trec"]


def test_run_config_reads_user_configs_that_choose_by_the_former_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    elsewhere = {"group": "metrics_as", "package": "_global_"}  # registered in another folder
    ConfigStore.instance().store("mine", {"defaults": [{"override /convention": "x"}]}, **elsewhere)
    head = "# @package _global_\ndefaults:\n"
    write_folder(
        tmp_path / "configs",
        {
            "experiment/former.yaml": f"{head}  - override /metrics_as: trec\n",
            "experiment/unmoved.yaml": f"{head}  - override /metrics_as: mine\n",
            "metrics_as/mine.yaml": "# @package metrics_as.mine\nempty: 0.5\n",
            "convention/partial.yaml": "empty: 0.5\n",
        },
    )
    config, choices = run_config(["experiment=former"])
    assert build_convention(config) == Convention(empty=0, gain="linear")
    assert choices["convention"] == "trec"
    assert "metrics_as" not in choices
    assert "override /metrics_as: write override /convention" in caplog.text
    assert run_config(["experiment=former", "convention=paper"])[0].convention.gain == "exp2"
    with pytest.raises(ConfigError, match="metrics_as is now called convention: move your file"):
        build_convention(run_config(["experiment=unmoved"])[0])
    partial = build_convention(run_config(["convention=partial"])[0])
    assert partial == Convention(empty=0.5)
    assert convention_keys("partial") == {**convention_keys("paper"), "empty": 0.5}


def test_settings_of_a_run_and_a_search_are_those_of_the_former_version() -> None:
    config, choices = run_config(["convention=letor4", "convention.empty=skip", "gain=linear"])
    settings = settings_of(config, choices)["config"]
    assert settings["metrics_as"] == {"letor4": LETOR4}
    assert settings["convention"]["empty"] == "skip"
    assert former_convention({}) is None


def test_sweeps_of_the_former_name_keep_their_folders(tmp_path: Path) -> None:
    grid = ["convention=letor4,trec", "seed=1"]
    new_folder = sweep_dir(str(tmp_path), None, grid)
    former_folder = Path(sweep_dir(str(tmp_path), None, [*map(former_override, grid)]))
    assert former_folder.name.startswith("sweep_metrics_as_")
    assert Path(new_folder).name.startswith("sweep_convention_")
    job = ["convention=trec", "seed=1"]
    former_job = job_dir([*map(former_override, job)], str(former_folder), ["metrics_as"])
    (former_folder / former_job).mkdir(parents=True)
    assert sweep_dir(str(tmp_path), None, grid) == str(former_folder)
    assert job_dir(job, str(former_folder), ["convention"]) == former_job
    assert job_dir(job, str(tmp_path), ["convention"]) != former_job


def test_read_overrides_replaces_the_former_name(tmp_path: Path) -> None:
    path = tmp_path / ".hydra" / "overrides.yaml"
    write_overrides(path, ["metrics_as=trec", "seed=1"])
    assert read_overrides(path) == ["convention=trec", "seed=1"]


@pytest.mark.slow
def test_resumed_config_reads_a_run_of_the_former_version(tiny: list[str], tmp_path: Path) -> None:
    config = compose(*tiny, "epochs=1", "convention=letor4")
    run(config, tmp_path, {"convention": "letor4"})
    file = tmp_path / "last.pt"
    checkpoint = load_checkpoint(file)
    checkpoint["choices"] = {"metrics_as": "letor4"}
    checkpoint["config"]["metrics_as"] = {"letor4": LETOR4}
    (tmp_path / "results.json").unlink()  # it would say that this is another file
    save_checkpoint(file, checkpoint)
    resumed, choices = resumed_config(compose(f"resume={tmp_path}"), [])
    assert choices == {"convention": "letor4"}
    assert "metrics_as" not in resumed
    assert build_convention(resumed).short == "zero"


@pytest.mark.slow
def test_ranker_evaluates_under_the_former_name_with_a_warning() -> None:
    features = np.random.default_rng(0).normal(size=(40, 3))
    grades = np.arange(40) % 3
    qid = np.arange(40) // 8
    ranker = Ranker("linear", "listnet", epochs=1, verbose=0).fit(features, grades, qid)
    expected = ranker.evaluate(features, grades, qid, convention="trec")
    assert not expected.equals(ranker.evaluate(features, grades, qid))
    with pytest.warns(DeprecationWarning, match="metrics_as: use convention instead"):
        values = ranker.evaluate(features, grades, qid, metrics_as="trec")
    assert values.equals(expected)


def test_commands_take_convention_and_its_keys() -> None:
    config = typed("evaluate", ["scores=a", "convention=letor4,trec", "convention.empty=skip"])
    assert list(config.conventions) == ["letor4", "trec"]
    assert config.convention.empty == "skip"
    assert typed("compare", ["a", "convention=trec"]).conventions == "trec"

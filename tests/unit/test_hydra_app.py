"""Hydra with given arguments: nothing but the arguments decides, and errors arrive as raised."""

import sys
from pathlib import Path

import pytest
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from omegaconf import DictConfig

from ltr.cli.configs import CONFIG_DIR
from ltr.cli.hydra_app import HydraApp
from ltr.errors import ConfigError, OutputError
from ltr.experiment.sweep import plan_sweep
from tests.helpers.folders import refused


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for runs; the arguments of the process itself would be refused."""
    monkeypatch.setattr(sys, "argv", ["train.py", "no_such_key=1"])
    return tmp_path


def test_hydra_app_run_returns_the_result_and_writes_the_config(folder: Path) -> None:
    app = HydraApp("train", ["epochs=7", f"hydra.run.dir={folder}/run"])
    assert not app.show()
    assert not app.multirun
    assert app.run(lambda config: config.epochs) == 7
    assert not GlobalHydra.instance().is_initialized()  # others may start Hydra
    hydra_folder = folder / "run" / ".hydra"
    assert {path.name for path in hydra_folder.iterdir()} == {"config.yaml", "overrides.yaml"}
    assert yaml.safe_load((hydra_folder / "overrides.yaml").read_text()) == ["epochs=7"]


@pytest.mark.parametrize("error", [OutputError("no room"), KeyError("a bug")])
def test_hydra_app_run_raises_the_error_of_the_function(
    folder: Path, error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(config: DictConfig) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        HydraApp("train", [f"hydra.run.dir={folder}/run"]).run(fail)
    assert caught.value is error
    assert caught.traceback[-1].name == "fail"
    assert capfd.readouterr() == ("", "")


def test_hydra_app_explains_a_wrong_argument_before_the_function_runs(folder: Path) -> None:
    app = HydraApp("train", ["epoch=7", f"hydra.run.dir={folder}/run"])
    for method in (app.compose, lambda: app.run(pytest.fail), lambda: app.sweep(pytest.fail)):
        assert "did you mean epochs?" in refused(method, ConfigError)
    assert not list(folder.iterdir())


def test_hydra_app_composes_with_configs_of_the_user(folder: Path, monkeypatch) -> None:
    (folder / "mine" / "loss").mkdir(parents=True)
    (folder / "mine" / "loss" / "squared.yaml").write_text("_target_: my_losses.squared\n")
    monkeypatch.setenv(CONFIG_DIR, str(folder / "mine"))
    assert HydraApp("train", ["loss=squared"]).compose().loss == {"_target_": "my_losses.squared"}


def test_hydra_finds_the_sweeper_of_jobs() -> None:
    names = Plugins.instance().class_name_to_class
    assert "hydra_plugins.ltr_jobs.JobsSweeper" in names


def test_jobs_sweeper_runs_the_listed_jobs_in_order(folder: Path) -> None:
    ran: list[tuple[int, int]] = []
    jobs = [[f"seed={seed}", f"hydra.sweep.subdir={seed}"] for seed in (3, 1, 2)]
    (folder / "jobs.yaml").write_text(yaml.safe_dump(jobs))
    arguments = [
        "-m",
        "epochs=7",
        "hydra/sweeper=jobs",
        f"hydra.sweeper.jobs={folder}/jobs.yaml",
        f"hydra.sweep.dir={folder}/sweep",
    ]
    HydraApp("train", arguments).sweep(lambda config: ran.append((config.seed, config.epochs)))
    assert ran == [(3, 7), (1, 7), (2, 7)]
    assert {path.name for path in (folder / "sweep").iterdir()} == {"1", "2", "3"}


@pytest.mark.parametrize("sweeper", ["basic", "jobs"])
def test_hydra_app_sweep_begins_no_job_after_one_that_failed(
    folder: Path, sweeper: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def fail_second(config: DictConfig) -> None:
        ran.append(config.seed)
        if config.seed == 2:
            raise OutputError("no room")

    (folder / "jobs.yaml").write_text("[[seed=1], [seed=2], [seed=3]]")
    arguments = {
        "basic": ["seed=1,2,3"],
        "jobs": ["hydra/sweeper=jobs", f"hydra.sweeper.jobs={folder}/jobs.yaml"],
    }
    app = HydraApp("train", ["-m", *arguments[sweeper], f"hydra.sweep.dir={folder}/sweep"])
    with pytest.raises(OutputError, match="no room"):
        app.sweep(fail_second)
    assert ran == [1, 2]
    assert "Error executing job" not in capfd.readouterr().err  # Hydra's message


def test_plan_sweep_knows_its_jobs_and_refuses_what_a_sweep_cannot_have(folder: Path) -> None:
    typed = ["-m", "seed=1,2", "sweep=mine", f"output_dir={folder}"]
    app = HydraApp("train", typed)
    config = app.compose()
    assert app.multirun
    sweep = plan_sweep(config, app.loader)
    assert (sweep.folder, sweep.varied, sweep.show_test) == (folder / "mine", ["seed"], False)
    assert sweep.jobs == {frozenset({"seed=1"}), frozenset({"seed=2"})}
    for wrong, message in {
        "resume=there": "leave out -m",
        "show_test=3": "write true or false",
        "threads=1,2": "start one sweep for each value",
    }.items():
        config = HydraApp("train", [*typed, wrong]).compose()
        assert message in refused(lambda config=config: plan_sweep(config), ConfigError)
    assert not list(folder.iterdir())

"""Several runs of a sweep at once: one folder, whatever process composes its name."""

from importlib.util import find_spec
from pathlib import Path

import hydra
import processes
import pytest

from ltr.console import folders
from ltr.console.configs import CONFIGS
from ltr.experiment.sweep import SweepSummary


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out", "it's", "a=b,c", "back\\slash"])
def test_another_process_composes_the_same_sweep_folder(name: str, tmp_path: Path) -> None:
    folders.register_resolvers()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        first = hydra.compose("train", return_hydra_config=True)
        first.output_dir = str(tmp_path / name)
        folder = first.hydra.sweep.dir
        SweepSummary().on_multirun_start(first)
        folders._run_dir.cache_clear()  # as in a new process
        (override,) = first.hydra.overrides.hydra
        again = hydra.compose("train", [override], return_hydra_config=True)
    assert again.hydra.sweep.dir == folder
    assert Path(folder).parent == tmp_path / name


@pytest.mark.slow
@pytest.mark.skipif(
    find_spec("hydra_plugins") is None or find_spec("hydra_plugins.hydra_joblib_launcher") is None,
    reason="needs the extra [parallel]",
)
def test_runs_at_once_share_a_folder_and_a_failed_one_is_named(tiny, tmp_path) -> None:
    outputs = tmp_path / "outputs"
    given = ["-m", *tiny, "epochs=1", "threads=1", "loss=listnet", f"output_dir={outputs}"]
    given += ["seed=1,2", "optimizer.lr=0.01,-1"]
    given += ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    process = processes.start("train.py", *given, warm=True)
    out, err = process.communicate()
    assert process.returncode == 1, err
    (sweep,) = outputs.iterdir()
    assert len(list(sweep.glob("*/results.json"))) == 2
    assert err.count("failed: ConfigError: optimizer: Invalid learning rate: -1") == 2
    assert "mean ± standard deviation over seed" in out
    assert len((sweep / "summary.csv").read_text().splitlines()) == 1 + 4

"""Every example runs, in small, and with LTR_ENGINES=1 on real machines' engines."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import processes
from tests.helpers.paths import ROOT

EXAMPLES = ROOT / "examples"
sys.path.insert(0, str(EXAMPLES / "paper_figures"))

import neuralndcg  # noqa: E402

SMALL = {
    "own_table.py": (["--queries", "60", "epochs=2", "threads=1"], "Ranker:"),
    "beside_the_libraries.py": (
        ["--queries", "60", "--rounds", "5", "--seeds", "1", "epochs=1", "threads=1"],
        "CatBoostRanker",
    ),
    "new_loss/run.sh": (["epochs=1", "dataset.queries=30"], "undecided"),
    "paper_table.sh": (
        ["rows=RMSE", "dataset.queries=30", "workers=1", "suggested.fc_sizes=[8]",
         "model.feed_forward=8", "model.blocks=1"],
        "RMSE",
    ),
    "paper_figures/neuralndcg.py": (["outputs"], "24 of 24 entries round"),
    "paper_figures/rank_distribution.py": (["outputs"], "Rank-Binomial 0.2268"),
    "trees_with_neuralndcg.sh": (["epochs=2", "dataset.queries=30"], "loss=neuralndcg"),
}  # fmt: skip

# Their programs are asked for by LTR_ENGINES=1 (below), or they need 13 GB, ports, time.
BY_HAND = {
    "slurm/cluster.sh", "slurm/table.py", "postgresql/server.sh", "postgresql/three_workers.py",
    "beyond_memory/measure.py", "trees_by_two.py", "paper_figures/selection.py",
    "paper_figures/ensembles.py",
    "rerank_text/run.sh",
}  # fmt: skip


def files(folder: Path) -> set[Path]:
    found = {path.relative_to(folder) for path in folder.rglob("*")}
    return {path for path in found if "__pycache__" not in path.parts}


@pytest.mark.slow
@pytest.mark.tutorial
@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name, tmp_path) -> None:
    given, expected = SMALL[name]
    copy = tmp_path / "examples"
    shutil.copytree(EXAMPLES, copy)
    env = processes.executable(tmp_path) | {"PYTHONPATH": str(EXAMPLES.parent)}
    if name.endswith(".py"):
        done = processes.run(copy / name, *given, cwd=tmp_path, env=env)
    else:
        done = subprocess.run(
            ["sh", str(copy / name), *given], cwd=tmp_path, env=env, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
    assert files(copy) == files(EXAMPLES), "what it makes lies in the folder of its user"


def test_every_example_is_run_and_listed() -> None:
    runnable = {
        str(path.relative_to(EXAMPLES))
        for path in EXAMPLES.rglob("*")
        if path.suffix == ".sh" or (path.suffix == ".py" and "main()" in path.read_text())
    }
    elsewhere = {"shop.py", "serve/load.py", "teach_sorter.py"}  # in test_serve, _relaxations
    assert runnable - elsewhere == {*SMALL} | BY_HAND
    text = (EXAMPLES / "README.md").read_text()
    assert all(name in text for name in runnable)


@pytest.mark.parametrize(
    ("figure", "end", "steps"),
    [(neuralndcg.FIGURE_1, 141, [0, 1, 4]), (neuralndcg.FIGURE_2, 121, [1, 2, 3, 4])],
    ids=["1", "2"],
)
def test_at_temperature_0_a_curve_is_the_step_function(figure, end, steps) -> None:
    data = neuralndcg.curves(*figure[:3], end, [1e-3])
    far = np.abs(data.x.to_numpy()[:, None] - np.array(steps)).min(-1) > 0.03
    assert far.sum() > 100
    for column in ("neuralndcg_0.001", "unscaled_0.001"):
        np.testing.assert_allclose(data[column][far], data.ndcg[far], atol=1e-9)


real_engines = pytest.mark.skipif(
    "LTR_ENGINES" not in os.environ, reason="LTR_ENGINES=1 asks for it: minutes"
)


@pytest.mark.slow
@real_engines
def test_a_search_outlasts_killed_workers_and_a_restart_of_postgresql(tmp_path: Path) -> None:
    if not shutil.which("pg_ctl") and not list(Path("/usr/lib/postgresql").glob("*/bin")):
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("psycopg2", reason="needs ltr-torch[cluster]")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)  # the server is another user's
    script = EXAMPLES / "postgresql" / "three_workers.py"
    subprocess.run([sys.executable, script, tmp_path], check=True)


@pytest.mark.slow
@real_engines
def test_a_table_on_slurm_is_the_same_whatever_happens_to_its_jobs(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("slurmctld", "slurmdbd", "munged"))):
        pytest.skip("needs root, and Slurm with munge and MariaDB (examples/slurm/cluster.sh)")
    pytest.importorskip("submitit", reason="needs ltr-torch[cluster]")
    cluster, folder = str(EXAMPLES / "slurm" / "cluster.sh"), f"/tmp/ltr-slurm-{os.getpid()}"
    env = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}
    try:
        subprocess.run([cluster, "start", folder], check=True, stdout=subprocess.DEVNULL)
        script = EXAMPLES / "slurm" / "table.py"
        subprocess.run([sys.executable, script, tmp_path], check=True, env=env)
    finally:
        subprocess.run([cluster, "stop", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)

"""Every example runs, in small."""

import shutil
import subprocess
from pathlib import Path

import processes
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

SMALL = {
    "own_table.py": (["--queries", "60", "epochs=2", "threads=1"], "Ranker:"),
    "beside_the_libraries.py": (
        ["--queries", "60", "--seeds", "1", "epochs=1", "threads=1"], "CatBoostRanker",
    ),
    "new_loss/run.sh": (["epochs=1", "dataset.queries=30"], "undecided"),
    "paper_table.sh": (["rows=RMSE,XGBoost", "dataset.queries=30", "workers=1"], "RMSE"),
    "paper_figures/neuralndcg.py": (["outputs"], "24 of 24 entries round"),
    "paper_figures/rank_distribution.py": (["outputs"], "Rank-Binomial 0.2268"),
    "trees_with_neuralndcg.sh": (["epochs=2", "dataset.queries=30"], "loss=neuralndcg"),
}  # fmt: skip

# Their programs are asked for by LTR_ENGINES=1 (test_engines.py), or they need 13 GB, ports, time.
ENGINES = {
    "slurm/cluster.sh", "slurm/table.py", "postgresql/server.sh", "postgresql/three_workers.py",
    "beyond_memory/measure.py", "trees_by_two.py", "paper_figures/selection.py",
}  # fmt: skip


def files(folder: Path) -> set[Path]:
    """Of ``folder``, without compiled ones."""
    found = {path.relative_to(folder) for path in folder.rglob("*")}
    return {path for path in found if "__pycache__" not in path.parts}


@pytest.mark.slow
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
    elsewhere = {"shop.py", "serve/load.py", "teach_sorter.py"}  # in test_serve, _learned_sorter
    assert runnable - elsewhere == {*SMALL} | ENGINES
    text = (EXAMPLES / "README.md").read_text()
    assert all(name in text for name in runnable)

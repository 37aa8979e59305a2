"""A table of 17 rows on Slurm, disturbed: a job requeued, one killed, the node drained and resumed.

    examples/slurm/cluster.sh start && export SLURM_CONF=/tmp/ltr-slurm/slurm.conf
    python examples/slurm/table.py FOLDER

Then the same table on this machine alone, and the two compared: each run was trained once, and the
table's files are the same bytes.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch

from ltr.training.checkpoint import load_checkpoint

ROOT = Path(__file__).resolve().parents[2]
ROWS = (
    "untrained,NeuralNDCG,NeuralNDCG-T,ApproxNDCG,LapNDCG,SoftNDCG,NeuralMAP,NeuralMRR,LambdaRank,"
    "RankNet,LambdaLoss,ListNet,ListMLE,PL-Rank,RMSE,MSE,BCE"
)
EPOCHS = 30
FILES = ("table.csv", "table.md", "table.tex", "table.html")
LAUNCHER = [
    "hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=30",
    "hydra.launcher.signal_delay_s=30", "hydra.launcher.max_num_timeout=3",
    "hydra.launcher.cpus_per_task=1", "hydra.launcher.name=ltr-table",
    "+hydra.launcher.additional_parameters.dependency=singleton",
]  # fmt: skip


def table(folder: Path, *more: str) -> list[str]:
    """The command; all that it writes is in ``folder``."""
    return [
        sys.executable, "-m", "ltr", "table", "table=letor4_mq2008", f"rows={ROWS}",
        "dataset=synthetic", "dataset.queries=60", "batch_size=4", f"epochs={EPOCHS}", "threads=1",
        f"cache_dir={folder}/cache", f"output_dir={folder}", *more,
    ]  # fmt: skip


def asked(*command: str) -> str:
    """What a command of Slurm answers."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def epochs_of(folder: Path) -> list[int]:
    """The epochs that a run has trained, in the order of its log, over all its attempts."""
    log = folder / "train.log"
    return (
        [int(n) for n in re.findall(rf"epoch (\d+)/{EPOCHS}", log.read_text())]
        if (log.is_file())
        else []
    )


def training(runs: Path, known: set[Path]) -> Path:
    """A run that is in the midst of its epochs now, none of ``known``."""
    while True:
        for folder in runs.glob("*") if runs.is_dir() else ():
            done = epochs_of(folder)
            if folder not in known and 2 <= len(done) < EPOCHS - 6:
                known.add(folder)
                return folder
        time.sleep(0.05)


def job_of(folder: Path) -> tuple[str, int]:
    """The job and the process that train in ``folder``: it holds the lock there."""
    inode = (folder / ".lock").stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if "FLOCK" in fields and fields[-3].rpartition(":")[2] == str(inode):
            pid = int(fields[-4])
            environment = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
            of = dict(line.partition("=")[::2] for line in environment if line)
            return f"{of['SLURM_ARRAY_JOB_ID']}_{of['SLURM_ARRAY_TASK_ID']}", pid
    raise LookupError(folder)


def same_weights(one: Path, other: Path) -> bool:
    """Whether two checkpoints have the same weights; their times and folders differ."""
    a, b = (load_checkpoint(path)["model"] for path in (one, other))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def disturb(runs: Path) -> None:
    """Requeue a job, kill another, drain the node for a while."""
    known: set[Path] = set()
    for what in ("requeue", "kill"):
        while True:
            try:
                folder = training(runs, known)
                job, pid = job_of(folder)
            except (LookupError, KeyError, OSError):  # it ended meanwhile
                continue
            break
        if what == "requeue":
            asked("scontrol", "requeue", job)  # SIGTERM, and SIGKILL after KillWait
        else:
            os.kill(pid, signal.SIGKILL)
        print(f"{what}: job {job}, {folder.name}, after epoch {epochs_of(folder)[-1]}", flush=True)
        time.sleep(random.random())
    node = asked("sinfo", "-h", "-o", "%n")
    asked("scontrol", "update", f"nodename={node}", "state=drain", "reason=trial")
    while asked("squeue", "-h", "-t", "running,completing"):
        time.sleep(0.5)
    print(f"node {node} drained, waiting: {len(asked('squeue', '-h', '-r').splitlines())} jobs")
    time.sleep(3)
    asked("scontrol", "update", f"nodename={node}", "state=resume")
    print(f"node {node} resumed", flush=True)


def main() -> None:
    """Run both tables and compare them."""
    if not shutil.which("sbatch"):
        sys.exit("skipped: Slurm is not installed (see cluster.sh)")
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    disturber = threading.Thread(target=disturb, args=(folder / "slurm/runs",), daemon=True)
    disturber.start()
    began = time.monotonic()
    said = folder / "slurm.txt"
    with said.open("w") as file:
        command = table(folder / "slurm", *LAUNCHER)
        status = [subprocess.run(command, stdout=file, stderr=file).returncode]
    print(f"on Slurm: status {status[0]} after {time.monotonic() - began:.0f} s", flush=True)
    disturber.join()
    if not list(folder.glob("local/tables/*/table.csv")):
        local = table(folder / "local", "workers=1")
        status.append(subprocess.run(local, stdout=subprocess.DEVNULL).returncode)
    runs = sorted((folder / "slurm/runs").iterdir())
    runs = [run for run in runs if (run / "results.json").is_file()]
    wrong = []
    for run in runs:
        done = epochs_of(run)
        if [n for n in done if n] != list(range(1, max([0, *done]) + 1)):
            wrong.append(run.name)
    (one,), (other,) = ((folder / place / "tables").iterdir() for place in ("slurm", "local"))
    same = {name: (one / name).read_bytes() == (other / name).read_bytes() for name in FILES}
    other_runs = folder / "local/runs"
    weights = all(same_weights(run / "best.pt", other_runs / run.name / "best.pt") for run in runs)
    print(f"{len(runs)} runs; epochs lost or done twice: {wrong or 'none'}; same bytes: {same}")
    print(f"the weights of every best.pt the same bits: {weights}")
    assert not any(status)
    assert len(runs) == 17
    assert not wrong
    assert all(same.values())
    assert weights


if __name__ == "__main__":
    main()

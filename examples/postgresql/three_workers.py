"""A search by three commands on one PostgreSQL: two are killed.

    python examples/postgresql/three_workers.py [FOLDER] [own]

Each command is what one would start on each machine. They share the folder of the search, as
machines with a shared disk do; with ``own`` each has a folder of its own, so that only the server
connects them. A dead command's trial is given up two minutes after its last heartbeat.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import optuna
from sqlalchemy.exc import SQLAlchemyError

ROOT = Path(__file__).resolve().parents[2]
SERVER = str(Path(__file__).with_name("server.sh"))
TRIALS, KILLS = 30, (6, 16)  # after how many finished trials


def command(storage: str, folder: Path) -> list[str]:
    """What is started on each machine."""
    return [
        sys.executable, "-m", "ltr", "search", "dataset=synthetic",
        "dataset.queries=80", "model=linear", "loss=listnet", "epochs=12", "pruner=none",
        "threads=1", "space.optimizer.lr=[float,1e-4,0.1,log]", f"trials={TRIALS}", "name=three",
        f"storage={storage}", f"output_dir={folder}", f"cache_dir={folder}/cache",
        f"write={folder}/experiment/found.yaml",
    ]  # fmt: skip


def trials(storage: str) -> list[optuna.trial.FrozenTrial]:
    """As the server has them; empty while there are none, or it does not answer."""
    try:
        return optuna.load_study(study_name="three", storage=storage).get_trials(deepcopy=False)
    except (KeyError, SQLAlchemyError, optuna.exceptions.StorageInternalError):
        return []


def done(storage: str) -> int:
    """How many were trained to their end."""
    return sum(trial.state.name == "COMPLETE" for trial in trials(storage))


def main() -> None:
    """Run it and check what is left."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()).absolute()
    own, rng = "own" in sys.argv[2:], random.Random()
    if not shutil.which("pg_ctl") and not list(Path("/usr/lib/postgresql").glob("*/bin")):
        sys.exit("skipped: PostgreSQL is not installed")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    server = str(folder / "server")
    started = subprocess.run([SERVER, "start", server], capture_output=True, text=True, check=True)
    storage, begun = started.stdout.strip(), time.monotonic()
    said = [open(folder / f"worker{i}.txt", "w+") for i in range(3)]  # noqa: PTH123, SIM115
    workers = [
        subprocess.Popen(
            command(storage, folder / (f"machine{i}" if own else "shared")),
            stdout=said[i], stderr=said[i], env={**os.environ, "TQDM_DISABLE": "1"},
        )
        for i in range(3)
    ]  # fmt: skip

    def tell(what: str) -> None:
        print(f"{time.monotonic() - begun:4.0f} s, {done(storage):2d} done: {what}", flush=True)

    try:
        alive = [0, 1, 2]
        for count in KILLS:
            while done(storage) < count and any(workers[i].poll() is None for i in alive):
                time.sleep(0.5)
            time.sleep(rng.random())  # anywhere within a trial
            i = alive.pop(rng.randrange(len(alive)))
            workers[i].kill()
            tell(f"worker {i} killed (-9)")
        status = [workers[i].wait() for i in alive]
        tell(f"the last worker ended with status {status}")
        found = trials(storage)
        with_values = [trial for trial in found if trial.state.name == "COMPLETE"]
        # a trial that was cut off is retried under a new number, with the same settings
        twice = [s for s, n in Counter(str(t.params) for t in with_values).items() if n > 1]
        print(f"{dict(Counter(trial.state.name for trial in found))}; trained twice: {len(twice)}")
        assert status == [0], said[alive[0]].name
        assert len(with_values) == TRIALS
        assert not twice
        assert not [t for t in found if t.state.name in ("RUNNING", "WAITING")]
    finally:
        for worker in workers:
            if worker.poll() is None:
                worker.terminate()
                worker.wait()
        subprocess.run([SERVER, "stop", server], check=True)
        for file in said:
            file.close()


if __name__ == "__main__":
    main()

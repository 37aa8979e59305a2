"""The memory of a process that trains on data ten times the size of MSLR-WEB30K.

    python examples/beyond_memory/measure.py FOLDER [STEPS_SECONDS] [KEY=VALUE ...]

FOLDER needs 13 GB. ``train.py`` makes the data, fits its transform, trains for STEPS_SECONDS (60)
and is stopped by SIGTERM, which leaves a checkpoint. Memory is read from /proc twice a second:
RssAnon is what the process itself holds; RssFile are pages of the mapped cache and of libraries,
which the system takes back whenever it needs them.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def memory(pid: int) -> dict[str, int]:
    """RssAnon and RssFile in bytes; empty once the process is gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return {}
    return {name: 1024 * int(n) for name, n in re.findall(r"(RssAnon|RssFile):\s+(\d+)", text)}


def main() -> None:
    """Train for a while and print what it took."""
    folder = Path(sys.argv[1]).absolute()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, str(HERE.parents[1] / "train.py"), "--config-dir", str(HERE / "configs"),
        "dataset=big", "model=mlp", "loss=listnet", "epochs=1", f"cache_dir={folder}/cache",
        f"hydra.run.dir={folder}/run", "threads=1", *sys.argv[3:],
    ]  # fmt: skip
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    log, began = folder / "train.txt", time.monotonic()
    most: dict[str, dict[str, int]] = {}
    ending = None
    with log.open("w") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=said, env={**os.environ, "PYTHONPATH": path}
        )
        while process.poll() is None:
            text = log.read_text()
            phase = (
                "training" if "epoch 0/1" in text
                else "loading, vali" if "lists train" in text
                else "cache, transform"
            )  # fmt: skip
            for name, size in memory(process.pid).items():
                largest = most.setdefault(phase, {})
                largest[name] = max(size, largest.get(name, 0))
            if phase == "training" and ending is None:
                ending = time.monotonic() + seconds
            if ending is not None and time.monotonic() > ending:
                process.send_signal(signal.SIGTERM)
                ending = float("inf")
            time.sleep(0.5)
    features = max((folder / "cache").glob("big-*/features.npy"), key=lambda p: p.stat().st_size)
    print(f"features of train: {features.stat().st_size / 1e9:.1f} GB")
    for phase, largest in most.items():
        print(f"{phase}: " + ", ".join(f"{k} {v / 1e9:.2f} GB" for k, v in largest.items()))
    print(f"status {process.returncode} after {time.monotonic() - began:.0f} s; see {log}")


if __name__ == "__main__":
    main()

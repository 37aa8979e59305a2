"""Compile the kernels once, before the tests: else several processes would compile each of them."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.helpers.paths import ROOT

KERNELS = ROOT / "ltr" / "kernels"
STAMP = KERNELS / "__pycache__" / "compiled_before_tests"
# Losses that need all kernels, in two shares that take about the same time.
SHARES = (
    ("neuralndcg", "softndcg"),
    ("approxndcg", "lambdaloss", "listmle", "softsortndcg", "svmmap", "svmndcg", "letor"),
)


def ensure() -> None:
    """Compile the kernels in two processes if one has changed since the last time."""
    newest = max(path.stat().st_mtime for path in KERNELS.glob("*.py"))
    if STAMP.exists() and STAMP.stat().st_mtime > newest:
        return
    print("compiling the kernels (once) ...", flush=True)
    command = [sys.executable, "-m", "tests.helpers.compiled_kernels"]
    processes = [subprocess.Popen([*command, *share], cwd=ROOT) for share in SHARES]
    statuses = [process.wait() for process in processes]
    if not any(statuses):
        STAMP.parent.mkdir(exist_ok=True)
        STAMP.touch()


def compile_share(names: Sequence[str]) -> None:
    """Call each of the losses once, and the parser of LETOR text for the name ``letor``."""
    import torch

    from ltr.data.letor import read_letor
    from tests.helpers.loss_cases import default_loss
    from tests.helpers.made_lists import letor_lists
    from tests.helpers.ragged import random_lists, value_and_gradient

    for name in names:
        if name == "letor":
            with TemporaryDirectory() as folder:
                read_letor(letor_lists(Path(folder)) / "mine" / "train.txt")
        else:
            value_and_gradient(default_loss(name), *random_lists(0, torch.float64, size=4))


if __name__ == "__main__":
    compile_share(sys.argv[1:])

"""Run a script in a new process that gets a signal at its n-th import: ``SIGNAL N SCRIPT ...``.

Imports are counted from the first of ``ltr`` on, which is among the first lines of every script.
"""

import os
import runpy
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the script that the command line names."""
    signum, at, script = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    done = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event == "import" and (done or str(arguments[0]).startswith("ltr")):
            done += 1
            if done == at:
                os.kill(os.getpid(), signum)

    sys.argv = sys.argv[3:]
    sys.path[0] = str(Path(script).parent)
    sys.addaudithook(hook)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()

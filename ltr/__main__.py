"""The command line ``ltr COMMAND KEY=VALUE ...``, with all commands of the project.

``python train.py`` does the same as ``ltr train``, and ``python -m ltr`` the same as ``ltr``.
"""

import os
import sys

from ltr import __version__
from ltr.cli.commands import COMMANDS
from ltr.cli.streams import open_streams
from ltr.training.interruption import end_when_stopped

_OPTIONS = ("--help", "-h", "help", "--version", "--shell-completion", "-sc")
_RENAMED = {"recommend": "auto"}  # commands of the previous version, accepted until the next one


def main(name: str | None = None) -> None:
    """Run the command ``name``, or, if it is None, the command that the first argument names."""
    end_when_stopped()  # before slow imports
    open_streams()
    if "OMP_WAIT_POLICY" not in os.environ:
        # Otherwise PyTorch's idle threads would spin for milliseconds on cores that loops need.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if name is None:
        name = sys.argv.pop(1) if len(sys.argv) > 1 else "--help"
    if name in _RENAMED:
        new_name = _RENAMED[name]
        warning = f"warning: ltr {name} is now ltr {new_name}: type ltr {new_name} instead"
        print(warning, file=sys.stderr)
        name = _RENAMED[name]
    if name in COMMANDS:
        from ltr.cli.cli import run_command

        run_command(name, COMMANDS[name][0])
    elif name in _OPTIONS:
        from ltr.cli.process import ending

        with ending():
            print(_option_text(name, sys.argv[1:]))
    else:
        commands = ", ".join(COMMANDS)
        print(f"error: {name}: no such command; choose one of {commands}", file=sys.stderr)
        sys.exit(2)


def _option_text(option: str, arguments: list[str]) -> str:
    """Return what ``ltr OPTION ARGUMENTS`` prints for an option that is typed without a command."""
    if option == "--version":
        return f"ltr {__version__}"
    if option in ("--shell-completion", "-sc"):
        from ltr.cli.completion import shell_completion

        return shell_completion(arguments)
    lines = [f"  ltr {command:<14}{purpose}" for command, (_, purpose) in COMMANDS.items()]
    end = "ltr COMMAND --help explains a command. ltr --version prints the version."
    return "\n".join(["Learning to rank in PyTorch.\n", *lines, "", end])


if __name__ == "__main__":
    main()

"""``ltr COMMAND KEY=VALUE ...``, or ``python -m ltr COMMAND ...``: every command of the project."""

import sys

from ltr.training.interruption import end_when_stopped

# Here, so that --help answers without importing the commands.
COMMANDS = {
    "train": "train a ranker, a sweep of rankers with -m",
    "evaluate": "metrics of a kept model, or of any tool's scores",
    "predict": "scores and ranks of a kept model for new lists",
    "export": "a kept model for ONNX Runtime or a search engine",
    "ensemble": "one ranker of several runs, networks and trees",
    "prepare_data": "check, unpack and count a data set",
    "table": "many runs beside the published numbers",
    "runs": "the runs in a folder, and what they reached",
    "compare": "which runs are better, and how sure that is",
    "selection": "whether vali says what test does, over settings",
    "search": "good settings of a ranker, by vali",
    "importances": "features that trees use most, and the library's own model",
    "explain": "why a kept model ranks a list so: features and other items",
    "list_losses": "every loss with its paper and its knobs",
    "check_loss": "which properties hold for a loss, yours too",
    "check_metric": "the same for a metric",
    "check_model": "the same for a model",
}


def main(name: str | None = None) -> None:
    """Run the command ``name``; None: the first argument names it."""
    end_when_stopped()  # before slow imports
    if name is None:
        name = sys.argv.pop(1) if len(sys.argv) > 1 else "--help"
    if name in COMMANDS:
        import ltr.commands as commands

        getattr(commands, name)()
    elif name in ("--help", "-h", "help"):
        lines = (f"  ltr {command:<14}{what}" for command, what in COMMANDS.items())
        print("Learning to rank in PyTorch.\n", *lines, sep="\n")
        print("\nltr COMMAND --help explains each; ltr --version")
    elif name == "--version":
        from ltr import __version__

        print(f"ltr {__version__}")
    else:
        from ltr.console.configs import hint

        known = ", ".join(COMMANDS) + hint(name, COMMANDS)
        print(f"error: {name}: no such command; it is one of {known}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

"""``ltr COMMAND KEY=VALUE ...``: every command of the project.

``python train.py`` and ``python scripts/COMMAND.py`` are the same.
"""

import sys

from ltr.training.interruption import end_when_stopped

# Of each command the function that takes its config (``configs/COMMAND.yaml``), and what it is for.
# --help and mistakes answer at once: the function's module is imported when it is called.
COMMANDS = {
    "train": ("ltr.experiment.commands:train", "train a ranker, a sweep of rankers with -m"),
    "evaluate": (
        "ltr.inference.evaluate:evaluate", "metrics of a kept model, or of any tool's scores"
    ),
    "predict": ("ltr.inference.predict:predict_file", "scores and ranks of a model for new lists"),
    "export": (
        "ltr.inference.export.command:export_model", "a model for ONNX Runtime or a search engine"
    ),
    "ensemble": (
        "ltr.experiment.ensemble:ensemble_of_runs", "one ranker of several runs, networks and trees"
    ),
    "prepare_data": ("ltr.experiment.prepare_data:prepare_data", "check, unpack, count a data set"),
    "table": ("ltr.tables.table:make_table", "many runs beside the published numbers"),
    "runs": ("ltr.experiment.commands:list_runs", "the runs in a folder, and what they reached"),
    "compare": ("ltr.analysis.compare:compare", "which runs are better, and how sure that is"),
    "search": ("ltr.search.command:run_search", "good settings of a ranker, by vali"),
    "importances": (
        "ltr.inference.explain.importances:importances",
        "features that trees use most, and the library's own model",
    ),
    "explain": (
        "ltr.inference.explain.command:explain",
        "why a model ranks a list so: features and other items",
    ),
    "list_losses": ("ltr.checks.list_losses:list_losses", "every loss, its paper and its knobs"),
    "check_loss": ("ltr.checks.command:check_loss", "which properties hold for a loss, yours too"),
    "check_metric": ("ltr.checks.command:check_metric", "the same for a metric"),
    "check_model": ("ltr.checks.command:check_model", "the same for a model"),
}  # fmt: skip


def main(name: str | None = None) -> None:
    """Run the command ``name``; None: the first argument names it."""
    end_when_stopped()  # before slow imports
    if name is None:
        name = sys.argv.pop(1) if len(sys.argv) > 1 else "--help"
    if name in COMMANDS:
        from ltr.console.cli import run_command

        run_command(name, COMMANDS[name][0])
    elif name in ("--help", "-h", "help"):
        lines = (f"  ltr {command:<14}{what}" for command, (_, what) in COMMANDS.items())
        print("Learning to rank in PyTorch.\n", *lines, sep="\n")
        print("\nltr COMMAND --help explains each; ltr --version")
    elif name == "--version":
        from ltr import __version__

        print(f"ltr {__version__}")
    else:
        known = ", ".join(COMMANDS)
        print(f"error: {name}: no such command; it is one of {known}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

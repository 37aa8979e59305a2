"""The command line ``ltr COMMAND KEY=VALUE ...``, with all commands of the project.

``python train.py`` does the same as ``ltr train``, and ``python -m ltr`` the same as ``ltr``.
"""

import os
import sys

from ltr.cli.streams import open_streams
from ltr.training.interruption import end_when_stopped

# For each command: the function that takes its config (``configs/COMMAND.yaml``), and its purpose.
# The module of the function is imported only when it is called, so that --help and errors are fast.
COMMANDS = {
    "train": ("ltr.experiment.commands:train", "train a ranker, or a sweep of rankers with -m"),
    "evaluate": (
        "ltr.inference.evaluate:evaluate", "measure a trained model, or the scores of any tool"
    ),
    "predict": ("ltr.inference.predict:predict_file", "score and rank the items of new lists"),
    "export": (
        "ltr.inference.export.command:export_model",
        "convert a model to ONNX or for a search engine",
    ),
    "ensemble": (
        "ltr.lab.ensembles.command:ensemble_of_runs",
        "combine several runs (networks or trees) into one ranker"
    ),
    "auto": ("ltr.lab.auto.command:run_auto", "train several kinds of rankers, and keep the best"),
    "prepare_data": (
        "ltr.experiment.prepare_data:prepare_data", "check a data set and count its items"
    ),
    "table": (
        "ltr.lab.tables.table:make_table",
        "train the models of a results table, and show published numbers beside them",
    ),
    "runs": ("ltr.experiment.commands:list_runs", "list the runs in a folder"),
    "compare": (
        "ltr.lab.analysis.compare:compare",
        "find out which runs are better, and how certain that is",
    ),
    "search": (
        "ltr.lab.search.command:run_search",
        "search for the settings that are best on the validation lists",
    ),
    "importances": (
        "ltr.inference.explain.importances:importances",
        "list the features that matter most to boosted trees, AdaRank, RankBoost or PRank",
    ),
    "explain": (
        "ltr.inference.explain.command:explain_list",
        "explain how a model ranks one list",
    ),
    "list_losses": (
        "ltr.testing.list_losses:list_losses", "list the losses with their papers and settings"
    ),
    "check_loss": ("ltr.testing.command:check_loss", "test the properties of a loss"),
    "check_metric": ("ltr.testing.command:check_metric", "test the properties of a metric"),
    "check_model": ("ltr.testing.command:check_model", "test the properties of a network"),
}  # fmt: skip
_RENAMED = {"recommend": "auto"}  # commands of the previous version, accepted until the next one


def main(name: str | None = None) -> None:
    """Run the command ``name``; if it is None, the first command-line argument is the name."""
    end_when_stopped()  # before slow imports
    open_streams()
    if "OMP_WAIT_POLICY" not in os.environ:
        # Otherwise PyTorch's idle threads would spin for milliseconds on cores that loops need.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if name is None:
        name = sys.argv.pop(1) if len(sys.argv) > 1 else "--help"
    if name in _RENAMED:
        print(f"warning: ltr {name} is now ltr {_RENAMED[name]}; type that", file=sys.stderr)
        name = _RENAMED[name]
    if name in COMMANDS:
        from ltr.cli.cli import run_command

        run_command(name, COMMANDS[name][0])
    elif name in ("--help", "-h", "help"):
        lines = (f"  ltr {command:<14}{purpose}" for command, (_, purpose) in COMMANDS.items())
        print("Learning to rank in PyTorch.\n", *lines, sep="\n")
        print("\nltr COMMAND --help explains a command. ltr --version prints the version.")
    elif name == "--version":
        from ltr import __version__

        print(f"ltr {__version__}")
    else:
        commands = ", ".join(COMMANDS)
        print(f"error: {name}: no such command; choose one of {commands}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

"""The commands of ``ltr``, each with its function and purpose."""

# For each command: the function that takes its options, and its purpose. The dataclass that
# annotates the function's parameter declares the keys; those of train are in configs/train.yaml.
# The module of the function is imported only when it is called. This keeps --help and errors fast.
COMMANDS = {
    "train": ("ltr.experiment.commands:train", "train a ranker, or a sweep of rankers with -m"),
    "evaluate": (
        "ltr.inference.evaluate:evaluate", "measure a trained model, or the scores of any tool"
    ),
    "predict": ("ltr.inference.predict:predict_file", "score and rank the items of new lists"),
    "export": (
        "ltr.inference.export.command:export_model",
        "convert a model to ONNX or to the format of a search engine",
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
        "train the models of a results table, and compare their results with published numbers",
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

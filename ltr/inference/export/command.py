"""Export a trained model to a folder; if anything fails, no folder is written."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ltr.atomic import atomic_write, make_folder, without_nan, writing, writing_folder
from ltr.console.folders import run_folder
from ltr.console.keys import required
from ltr.data.lists import check_split
from ltr.data.transforms import column_range
from ltr.errors import ConfigError
from ltr.experiment.engines import LUCENE, check_engine
from ltr.experiment.run_folder import RunFolder, versions
from ltr.inference.export.boosters import native, trees_of
from ltr.inference.export.context import (
    IDENTIFIER,
    ExportContext,
    Exported,
    json_text,
    parity,
)
from ltr.inference.export.forms import layers_of
from ltr.inference.export.onnx import onnx, vespa
from ltr.inference.export.texts import plugin, ranklib, solr
from ltr.models.rounds import BoostedTrees, RankBoost
from ltr.scorers.inputs import read_input, set_threads
from ltr.scorers.scorer import load_model
from ltr.training.checkpoint import selected_checkpoint
from ltr.training.evaluation import predict

_WRITERS = {
    "onnx": onnx, "vespa": vespa, "native": native, "solr": solr, "ranklib": ranklib,
    **dict.fromkeys(LUCENE, plugin),
}  # fmt: skip
_OF_RUN = ("convention", "vali", "test", "select", "select_on", "selected_epoch", "dataset", "fold",
           "seed", "commit", "finished")  # fmt: skip
_CODES = (
    "a feature under categories is read as a code: 1 + the place of its value, as text, in the "
    "list there, 0 where the list lacks it; missing (NaN) where it is missing or empty. A whole "
    "number or a text such as 3.0 is the text 3, a flag true or false."
)


def export_model(cfg: DictConfig) -> str:
    """Export the model ``cfg.checkpoint`` for the engine ``cfg.to``; return a text on the result.

    The files are written to a temporary folder, and their scores are compared with those of the
    model (the parity check). Then the folder is moved to ``cfg.output``. If the check fails,
    nothing is written.

    Raises:
        ConfigError, DataError, CheckpointError, OutputError: one line that says what to correct.
    """
    required(cfg, "checkpoint", "to", "output")
    output, engine, checkpoint = Path(cfg.output), str(cfg.to), Path(cfg.checkpoint)
    check_split(cfg.split)
    if output.exists():
        raise ConfigError(f"output={output} is there already: give the name of a new folder")
    name = output.name
    if not IDENTIFIER.fullmatch(name):
        name = re.sub(r"\W", "_", f"ltr_{name}", flags=re.ASCII)
    set_threads(cfg)
    scorer = load_model(checkpoint, trust=cfg.trust)
    if cfg.input is not None:
        lists, split = read_input(cfg, scorer)[0], str(cfg.input)
    else:
        _, lists = scorer.read(scorer.own_config(cfg, ["dataset"]).dataset, cfg.split)
        split = str(cfg.split)
    model, run = scorer.model, RunFolder(run_folder(str(checkpoint)))
    results = run.results if run.finished else {}
    of_train = results.get("data", {}).get("train", {})
    missing = lists.missing + int(of_train.get("missing_values", 0))
    check_engine(engine, model, scorer.transform, missing)
    form: Any = None
    if engine in ("solr", "ranklib", *LUCENE):
        if isinstance(model, BoostedTrees | RankBoost):
            form = trees_of(model)
        else:
            form = layers_of(model, scorer.transform)
    # always in float32, even if the run used another precision
    scores = predict(model, scorer.open(lists), items=cfg.evaluation_items).numpy()
    # an empty cell of a table is missing, also to a model that never saw one in training
    absent_is_zero = scorer.columns is None and bool(of_train) and not missing
    negative = column_range(lists.features)[0] < 0
    context = ExportContext(name, scorer, form, absent_is_zero, negative)
    exported = _WRITERS[engine](context)

    make_folder("output", output.parent)
    with writing(output), writing_folder(output) as part:
        for file, content in exported.files.items():
            atomic_write(part / file, content)
        compared = {
            "to": engine,
            "ran_by": exported.ran_by,
            **parity(lists, scores, exported.run(part, lists), f"to={engine}"),
            "split": split,
            "missing_values": lists.missing,
            "features_below_zero": int(negative.sum()),
        }
        weights, selected = selected_checkpoint(checkpoint)
        atomic_write(part / "parity.json", json_text(compared))
        files = {file: sha256(part / file) for file in [*exported.files, "parity.json"]}
        digests = {"checkpoint": sha256(weights), "data": dict(selected["data"]), "files": files}
        described = manifest(engine, context, exported, results, digests)
        # lets a service know that the manifest is whole: its features, categories and digests
        described["sha256"]["manifest"] = digest_of(described)
        atomic_write(part / "manifest.json", json_text(described))
    return (
        f"{', '.join(exported.files)}\n{compared['lists']:,} lists of {split}, "
        f"{compared['items']:,} items, run by {exported.ran_by}: largest difference "
        f"{compared['largest_difference']:.1e}\nkept in {output}"
    )


def manifest(
    engine: str, context: ExportContext, exported: Exported, results: Mapping[str, Any],
    digests: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Return the content of ``manifest.json``; ``results`` are empty for an unfinished run."""
    model, columns = context.scorer.model, context.scorer.columns
    categories = {} if columns is None else columns.state()["categories"]
    return {
        "to": engine,
        "model": type(getattr(model, "model", model)).__name__,
        "choices": results.get("choices", {}),
        "features": list(context.features),
        "categories": categories,
        "transform": context.scorer.transform.state(),
        **without_nan({key: results[key] for key in _OF_RUN if key in results}),
        "sha256": digests,
        "versions": versions(),
        "notes": {**({"categories": _CODES} if categories else {}), **exported.notes},
    }


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest that has no digest of itself yet."""
    written = json.loads(json_text(content))
    return hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal digits."""
    return hashlib.sha256(file.read_bytes()).hexdigest()

"""Export a trained model to a folder; if the export fails, no folder is written."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ltr.atomic import atomic_write, make_folder, without_nan, writing, writing_folder
from ltr.boosting import BoostedTrees, RankBoost
from ltr.cli.folders import run_folder
from ltr.cli.options import option
from ltr.data.lists import Lists, check_split
from ltr.data.transforms import FeatureTransform, column_range
from ltr.errors import ConfigError
from ltr.experiment.run_folder import RunFolder, versions
from ltr.inference.export.boosters import convert_trees, export_native
from ltr.inference.export.context import (
    IDENTIFIER,
    ExportContext,
    Exported,
    check_parity,
    json_text,
)
from ltr.inference.export.engines import LUCENE, check_engine
from ltr.inference.export.forms import Layers, Trees, convert_layers
from ltr.inference.export.onnx import export_onnx, export_vespa
from ltr.inference.export.texts import export_plugin, export_ranklib, export_solr
from ltr.inference.inputs import InputOptions, ScoringOptions, open_scorer, read_input
from ltr.parts.scorer import Scorer
from ltr.training.checkpoint import selected_checkpoint
from ltr.training.evaluation import predict

_EXPORTERS: dict[str, Callable[[ExportContext], Exported]] = {
    "onnx": export_onnx,
    "vespa": export_vespa,
    "native": export_native,
    "solr": export_solr,
    "ranklib": export_ranklib,
    **dict.fromkeys(LUCENE, export_plugin),
}
_CONVERTING_ENGINES = ("solr", "ranklib", *LUCENE)  # they need ``Trees`` or ``Layers``
# Entries of the run's results that the manifest repeats.
_RESULT_KEYS = (
    "convention", "vali", "test", "select", "select_on", "selected_epoch", "dataset", "fold",
    "seed", "commit", "finished",
)  # fmt: skip
_CATEGORY_NOTE = (
    "a feature that is listed under categories is read as a code: 1 + the index of its value, as a "
    "string, in that list; 0 if the value is not in the list; NaN if the value is missing or "
    "empty. "
    "A whole number, or a string such as 3.0, becomes the string 3; a flag becomes the string true "
    "or false."
)


@dataclass(frozen=True, kw_only=True)
class ExportOptions(InputOptions, ScoringOptions):
    """Convert a trained model to the format of a search engine or of ONNX Runtime, and check that
    the converted model gives the same scores.

      ltr export checkpoint=outputs/RUN to=onnx output=exported
      ltr export checkpoint=outputs/RUN to=elasticsearch output=exported

    The command writes the model, manifest.json (features, settings and digests) and parity.json
    (the comparison of scores) to the folder that output= names. The page docs/how-to/export.md says
    how to load each format.
    """

    checkpoint: str = option(
        help="a run folder, whose selected weights are used, or the best.pt or last.pt in it"
    )
    to: str = option(
        help="onnx | solr | ranklib | elasticsearch | opensearch | vespa | native (the model file "
        "of LightGBM, XGBoost or CatBoost)"
    )
    output: str = option(help="a new folder; in the engine, the model has the name of this folder")
    split: str = option(
        "vali", help="train | vali | test: the split of the run's data on which scores are compared"
    )
    input: str | None = option(
        None,
        help="a file on which scores are compared instead: a table or LETOR text, as for ltr "
        "predict",
    )
    data_dir: str | None = option(
        None, help="the folder that holds the data sets; null = the folder used in training"
    )
    cache_dir: str = option("data/cache", help="the folder in which parsed data files are kept")
    device: str = "cpu"  # where the scores are compared


def export_model(options: ExportOptions) -> str:
    """Export the model ``options.checkpoint`` for the engine ``options.to``.

    The files are written to a temporary folder, and the scores that they give are compared with
    those of the model (the parity check). Then the folder is moved to ``options.output``. If the
    check fails, that folder is not created.

    Returns:
        A report that names the files, the lists that were compared, and the largest difference.

    Raises:
        ConfigError, DataError, CheckpointError, OutputError: an option, the checkpoint or a data
            file is invalid, or a file cannot be written; the message says what to correct.
    """
    output = Path(options.output)
    check_split(options.split)
    if output.exists():
        raise ConfigError(f"output={output} already exists: choose the name of a new folder")
    scorer = open_scorer(options.checkpoint, options)
    source, lists = _lists_to_compare(options, scorer)
    results = _results_of_run(options.checkpoint)
    context = _export_context(options, scorer, lists, results)
    # always in float32, even if the run used another precision
    items = options.evaluation_items
    scores = predict(scorer.model, scorer.open(lists), items=items).numpy()
    exported = _EXPORTERS[options.to](context)

    make_folder("output", output.parent)
    with writing(output), writing_folder(output) as temporary:
        for file, content in exported.files.items():
            atomic_write(temporary / file, content)
        exported_scores = exported.score(temporary, lists)
        compared = {
            "to": options.to,
            "ran_by": exported.backend,
            **check_parity(lists, scores, exported_scores, f"to={options.to}"),
            "split": source,
            "missing_values": lists.missing,
            "features_below_zero": int(context.negative.sum()),
        }
        atomic_write(temporary / "parity.json", json_text(compared))
        digests = _digests(options.checkpoint, temporary, [*exported.files, "parity.json"])
        manifest = build_manifest(options.to, context, exported, results, digests)
        # shows a service that the manifest is complete, with its features, categories and digests
        manifest["sha256"]["manifest"] = manifest_digest(manifest)
        atomic_write(temporary / "manifest.json", json_text(manifest))
    return (
        f"{', '.join(exported.files)}\n{compared['lists']:,} lists of {source}, "
        f"{compared['items']:,} items, run by {exported.backend}: largest difference "
        f"{compared['largest_difference']:.1e}\nkept in {output}"
    )


def _export_context(
    options: ExportOptions, scorer: Scorer, lists: Lists, results: Mapping[str, Any]
) -> ExportContext:
    """Return what the exporter needs; raise ``ConfigError`` if the engine cannot hold the model."""
    train_data = results.get("data", {}).get("train", {})
    missing = lists.missing + int(train_data.get("missing_values", 0))
    check_engine(options.to, scorer.model, scorer.transform, missing)
    return ExportContext(
        name=_model_name(Path(options.output)),
        scorer=scorer,
        converted=_convert(options.to, scorer.model, scorer.transform),
        # an empty cell of a table is missing, even if no cell was empty in training
        absent_is_zero=scorer.columns is None and bool(train_data) and not missing,
        negative=column_range(lists.features)[0] < 0,
    )


def _model_name(output: Path) -> str:
    """Return the model's name in the engine: the folder's name, with _ for invalid characters."""
    if IDENTIFIER.fullmatch(output.name):
        return output.name
    return re.sub(r"\W", "_", f"ltr_{output.name}", flags=re.ASCII)


def _lists_to_compare(options: ExportOptions, scorer: Scorer) -> tuple[str, Lists]:
    """Return the name of the file or split on which scores are compared, and its lists."""
    if options.input is not None:
        return options.input, read_input(Path(options.input), options, scorer).lists
    config = scorer.run_config(
        ["dataset"],
        data_dir=options.data_dir,
        cache_dir=options.cache_dir,
        trust=options.trust,
    )
    _, lists = scorer.read(config.dataset, options.split)
    return options.split, lists


def _results_of_run(checkpoint: str) -> dict[str, Any]:
    """Return the results of the run; an empty dict if it is not finished."""
    run = RunFolder(run_folder(checkpoint))
    return dict(run.results) if run.finished else {}


def _convert(engine: str, model: Any, transform: FeatureTransform) -> Trees | Layers | None:
    """Return the model as ``Trees`` or ``Layers`` if ``engine`` needs that; otherwise None."""
    if engine not in _CONVERTING_ENGINES:
        return None
    if isinstance(model, BoostedTrees | RankBoost):
        return convert_trees(model)
    return convert_layers(model, transform)


def _digests(checkpoint: str, folder: Path, files: list[str]) -> dict[str, Any]:
    """Return the SHA-256 of the checkpoint, of the run's data and of each exported file."""
    weights, content = selected_checkpoint(Path(checkpoint))
    return {
        "checkpoint": file_sha256(weights),
        "data": dict(content["data"]),
        "files": {file: file_sha256(folder / file) for file in files},
    }


def build_manifest(
    engine: str,
    context: ExportContext,
    exported: Exported,
    results: Mapping[str, Any],
    digests: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the content of ``manifest.json``; ``results`` is empty for an unfinished run."""
    scorer = context.scorer
    model: nn.Module = getattr(scorer.model, "model", scorer.model)
    categories = {} if scorer.columns is None else scorer.columns.state()["categories"]
    notes = {"categories": _CATEGORY_NOTE} if categories else {}
    return {
        "to": engine,
        "model": type(model).__name__,
        "choices": results.get("choices", {}),
        "features": list(context.features),
        "categories": categories,
        "transform": scorer.transform.state(),
        **without_nan({key: results[key] for key in _RESULT_KEYS if key in results}),
        "sha256": digests,
        "versions": versions(),
        "notes": {**notes, **exported.notes},
    }


def manifest_digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a manifest that does not yet contain its own digest."""
    written = json.loads(json_text(content))
    return hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()


def file_sha256(file: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal digits."""
    return hashlib.sha256(file.read_bytes()).hexdigest()

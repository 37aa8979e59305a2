"""Export a kept model: one folder with its files, or none."""

import hashlib
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ltr.atomic import atomic_write, make_folder, without_nan, writing
from ltr.console.folders import run_folder
from ltr.console.keys import required
from ltr.data.lists import check_split
from ltr.errors import ConfigError
from ltr.experiment.engines import ENGINES, LUCENE, check_engine
from ltr.experiment.run_folder import RunFolder, versions
from ltr.inference.export.boosters import native, trees_of
from ltr.inference.export.context import (
    IDENTIFIER,
    ExportContext,
    Exported,
    json_text,
    parity,
)
from ltr.inference.export.forms import Dense, Trees, dense_of
from ltr.inference.export.onnx import onnx, vespa
from ltr.inference.export.texts import plugin, ranklib, solr
from ltr.knobs import check_choice
from ltr.models.embeddings import WithEmbeddings
from ltr.models.rounds import BoostedTrees, RankBoost
from ltr.scorers.inputs import read_input, set_threads
from ltr.scorers.scorer import load_model
from ltr.training.checkpoint import selected_checkpoint

_WRITERS = {
    "onnx": onnx, "vespa": vespa, "native": native, "solr": solr, "ranklib": ranklib,
    **dict.fromkeys(LUCENE, plugin),
}  # fmt: skip
_OF_RUN = ("convention", "vali", "test", "select", "select_on", "selected_epoch", "dataset", "fold",
           "seed", "commit", "finished")  # fmt: skip
_CODES = (
    "a feature under categories is read as a code: 1 + the place of its value, as text, in the "
    "list there, 0 where the list lacks it; of a number n there 1 + CRC-32 of the text in UTF-8 "
    "modulo n; missing (NaN) where it is missing or empty. A whole number or a text such as 3.0 is "
    "the text 3, a flag true or false."
)


def export_model(cfg: DictConfig) -> str:
    """Export the model ``cfg.checkpoint`` to ``cfg.to`` as the folder ``cfg.output``.

    The folder is written beside its place, checked there, and then moved: a failed parity check
    writes nothing.

    Raises:
        ConfigError, DataError, CheckpointError, OutputError: one line that says what to mend.
    """
    required(cfg, "checkpoint", "to", "output")
    output, engine, checkpoint = Path(cfg.output), str(cfg.to), Path(cfg.checkpoint)
    check_choice("to", engine, ENGINES)
    check_split(cfg.split)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise ConfigError(f"output={output} is there already: give the name of a new folder")
    name = str(cfg.name or output.name)
    if not IDENTIFIER.fullmatch(name):
        if cfg.name is not None:
            raise ConfigError(f"name={name}: write letters, digits and _, a letter first")
        name = re.sub(r"\W", "_", f"ltr_{name}", flags=re.ASCII)
    set_threads(cfg)
    scorer = load_model(checkpoint, trust=cfg.trust)
    if cfg.input is not None:
        (lists, _), split = read_input(cfg, scorer), str(cfg.input)
    else:
        _, lists = scorer.read(scorer.own_config(cfg, ["dataset"]).dataset, cfg.split)
        split = str(cfg.split)
    # scores are those of float32, whatever precision its run had
    scorer = replace(scorer, config=scorer.config | {"precision": "float32"})
    model, run = scorer.model, RunFolder(run_folder(str(checkpoint)))
    results = run.results if run.finished else {}
    of_train = results.get("data", {}).get("train", {})
    missing = lists.missing + int(of_train.get("missing_values", 0))
    check_engine(engine, model, scorer.transform, missing, key="to")
    form: Trees | Dense | None = None
    if engine != "native" and isinstance(model, BoostedTrees | RankBoost):
        form = trees_of(model, keep_missing=scorer.transform.keep_missing)
    elif engine in ("solr", "ranklib"):
        form = dense_of(model, scorer.transform)
    scores = scorer.scores(lists, items=cfg.evaluation_items).numpy()
    context = ExportContext(name, lists, scores, scorer, form, not missing)
    exported = _WRITERS[engine](context)

    make_folder("output", output.parent)
    with writing(output):
        beside = tempfile.TemporaryDirectory(prefix=f".part-{output.name[:40]}-", dir=output.parent)
    with beside:
        (part := Path(beside.name, output.name)).mkdir()
        for file, content in exported.files.items():
            atomic_write(part / file, content)
        compared = {
            "to": engine,
            "ran_by": exported.ran_by,
            **parity(lists, context.scores, exported.run(part, lists), f"to={engine}"),
            "split": split,
        }
        weights, selected = selected_checkpoint(checkpoint)
        digests = {"checkpoint": sha256(weights.read_bytes()), "data": dict(selected["data"])}
        described = manifest(engine, context, exported, results, digests)
        atomic_write(part / "manifest.json", json_text(described, 2))
        atomic_write(part / "parity.json", json_text(compared, 2))
        part.rename(output)
    return (
        f"{', '.join(exported.files)}\n{compared['lists']:,} lists of {split}, "
        f"{compared['items']:,} items, run by {exported.ran_by}: largest difference "
        f"{compared['largest_difference']:.1e}\nkept in {output}"
    )


def manifest(
    engine: str, context: ExportContext, exported: Exported, results: Mapping[str, Any],
    digests: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Which model this is, and how its features are read.

    ``results`` are of its run, ``digests`` of the checkpoint and its data.
    """
    model, columns = context.scorer.model, context.scorer.columns
    inner = model.model if isinstance(model, WithEmbeddings) else model
    categories = {} if columns is None else columns.state()["categories"]
    return {
        "to": engine,
        "model": type(inner).__name__,
        "choices": results.get("choices", {}),
        "features": list(context.features),
        "features_named": columns is not None,
        "categories": categories,
        "transform": context.scorer.transform.state(),
        **without_nan({key: results[key] for key in _OF_RUN if key in results}),
        "sha256": {**digests, "files": {name: sha256(one) for name, one in exported.files.items()}},
        "versions": versions(),
        "notes": {**({"categories": _CODES} if categories else {}), **exported.notes},
    }


def sha256(content: bytes | str) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()

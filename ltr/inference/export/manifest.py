"""What a folder says of itself: ``manifest.json`` and ``MODEL_CARD.md``."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tabulate import tabulate

from ltr.atomic import without_nan
from ltr.experiment.provenance import versions
from ltr.experiment.run_folder import RunFolder
from ltr.inference.export.context import ExportContext, Exported
from ltr.models.embeddings import WithEmbeddings

_LIBRARIES = ("onnx", "onnxscript", "onnxruntime", "lightgbm", "xgboost-cpu", "xgboost", "catboost")
_OF_RUN = ("convention", "vali", "test", "select", "select_on", "selected_epoch", "dataset", "fold",
           "seed", "commit", "finished")  # fmt: skip
_CODES = (
    "a feature under categories is read as a code: 1 + the place of its value, as text, in the "
    "list there, 0 where the list lacks it; of a number n there 1 + CRC-32 of the text in UTF-8 "
    "modulo n; missing (NaN) where it is missing or empty. A whole number or a text such as 3.0 is "
    "the text 3, a flag true or false."
)


def results_of(checkpoint: str) -> dict[str, Any]:
    """``results.json`` of a finished run; empty where there is none.

    Raises:
        DataError: it is damaged.
    """
    path = Path(checkpoint)
    run = RunFolder(path.parent if path.suffix == ".pt" else path)
    return run.results if run.finished else {}


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
    installed = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
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
        "versions": {**versions(), **installed},
        "notes": {**({"categories": _CODES} if categories else {}), **exported.notes},
    }


def sha256(content: bytes | str) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def model_card(
    manifest: Mapping[str, Any], parity: Mapping[str, Any], results: Mapping[str, Any]
) -> str:
    """The card of a model in Markdown, from its manifest and the results of its run."""
    choices = manifest["choices"]
    title = " ".join(str(choices[k]) for k in ("model", "loss") if choices.get(k)) or "model"
    named = "named" if manifest["features_named"] else "in the order of the lists"
    return "\n".join(
        [
            f"# {title}, exported to {manifest['to']}\n\n## Model\n",
            f"- class {manifest['model']}, {len(manifest['features'])} features, {named}",
            f"- checkpoint sha256 `{manifest['sha256']['checkpoint']}`",
            *(_of_run(results) if results else ()),
            "\n## Exported form\n",
            f"- run by {parity['ran_by']} on {parity['lists']:,} lists of {parity['split']}, "
            f"{parity['items']:,} items: largest difference of a score "
            f"{parity['largest_difference']:.1e}, no list changes its order",
            *(f"- {name}: {value}" for name, value in manifest["notes"].items()),
            "\n## Limits\n",
            "- the figures are of these lists; on others they are unknown",
            "- features are read as in training: the same order, units and meaning\n",
        ]
    )


def _of_run(results: Mapping[str, Any]) -> Iterator[str]:
    """Training and figures of a run."""
    yield "\n## Training\n"
    keys = ("dataset", "fold", "seed", "parameters", "selected_epoch", "select_on", "select",
            "commit", "finished")  # fmt: skip
    yield from (f"- {key}: {results[key]}" for key in keys if results.get(key) is not None)
    for split, part in results["data"].items():
        yield (
            f"- {split}: {part['lists']:,} lists, {part['items']:,} items, "
            f"{part['empty_lists']:,} without a relevant item, sha256 `{part['digest']}`"
        )
    splits = [split for split in ("vali", "test") if split in results]
    rows = [[name, *(results[split].get(name) for split in splits)] for name in results["vali"]]
    yield "\n## Figures\n"
    yield tabulate(rows, ["metric", *splits], floatfmt=".4f", tablefmt="github")
    yield f"\n{results['convention']['text']}"

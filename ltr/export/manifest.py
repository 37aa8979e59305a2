"""What a folder says of itself: ``manifest.json`` and ``MODEL_CARD.md``."""

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tabulate import tabulate

from ltr.errors import DataError
from ltr.experiment.kept import KeptModel
from ltr.experiment.provenance import versions
from ltr.experiment.run_folder import RunFolder
from ltr.models.embeddings import WithEmbeddings
from ltr.whole import without_nan

_LIBRARIES = ("onnx", "onnxscript", "onnxruntime", "lightgbm", "xgboost-cpu", "xgboost", "catboost")


def results_of(checkpoint: str) -> dict[str, Any] | None:
    """``results.json`` of a finished run; None where there is none.

    Raises:
        DataError: it is damaged.
    """
    path = Path(checkpoint)
    run = RunFolder(path.parent if path.suffix == ".pt" else path)
    return run.results if run.finished else None


def sha256(path: Path) -> str:
    """The digest of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): export it again") from None


def manifest(
    kept: KeptModel,
    checkpoint: Path,
    data: Mapping[str, str],
    results: Mapping[str, Any] | None,
    engine: str,
    features: Sequence[str],
    notes: Mapping[str, Any],
    files: Mapping[str, str],
) -> dict[str, Any]:
    """Everything that says which model this is and how its features are read.

    Args:
        kept: the model.
        checkpoint: its file.
        data: digest of the lists of each split, as the checkpoint has them.
        results: of the run.
        engine: what it was exported for.
        features: their names, in order.
        notes: of the exporter.
        files: digest of each file by name.
    """
    columns = kept.columns
    inner = kept.model.model if isinstance(kept.model, WithEmbeddings) else kept.model
    found = {} if columns is None else columns.state()["categories"]
    of_run = (
        {} if results is None else without_nan({k: results[k] for k in _OF_RUN if k in results})
    )
    return {
        "to": engine,
        "model": type(inner).__name__,
        "choices": {} if results is None else results["choices"],
        "features": list(features),
        "features_named": columns is not None,
        "categories": found,
        "transform": kept.transform.state(),
        **of_run,
        "sha256": {"checkpoint": sha256(checkpoint), "data": dict(data), "files": dict(files)},
        "versions": {**versions(), **_installed()},
        "notes": {**({"categories": _CODES} if found else {}), **notes},
    }


_CODES = (
    "a feature under categories is read as a code: 1 + the place of its value, as text, in the "
    "list there, 0 where the list lacks it; of a number n there 1 + CRC-32 of the text in UTF-8 "
    "modulo n; missing (NaN) where it is missing or empty. A whole number or a text such as 3.0 is "
    "the text 3, a flag true or false."
)
_OF_RUN = ("convention", "vali", "test", "select", "select_on", "selected_epoch", "dataset", "fold",
           "seed", "commit", "finished")  # fmt: skip


def _installed() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def model_card(
    manifest: Mapping[str, Any], parity: Mapping[str, Any], results: Mapping[str, Any] | None
) -> str:
    """The card of a model in Markdown, from its manifest and the results of its run."""
    choices = manifest["choices"]
    title = " ".join(str(choices[k]) for k in ("model", "loss") if choices.get(k)) or "model"
    lines = [f"# {title}, exported to {manifest['to']}", ""]
    lines += [
        "## Model", "",
        f"- class {manifest['model']}, {len(manifest['features'])} features"
        + (", named" if manifest["features_named"] else ", in the order of the lists"),
        f"- checkpoint sha256 `{manifest['sha256']['checkpoint']}`",
    ]  # fmt: skip
    if results is not None:
        count = results.get("parameters")
        lines += [f"- {count:,} fitted numbers" if isinstance(count, int) else "", ""]
        lines += ["## Training", ""]
        fold = "" if results.get("fold") is None else f", fold {results['fold']}"
        lines += [f"- data set {results['dataset']}{fold}, seed {results['seed']}"]
        lines += [
            f"- {split}: {part['lists']:,} lists, {part['items']:,} items, "
            f"{part['empty_lists']:,} without a relevant item, sha256 `{part['digest']}`"
            for split, part in results["data"].items()
        ]
        if results.get("selected_epoch") is not None:  # an ensemble has none
            lines += [
                f"- weights of epoch {results['selected_epoch']}, chosen on vali by "
                f"{results['select_on']} (select={results['select']})"
            ]
        lines += [
            f"- commit {results.get('commit') or 'unknown'}, finished {results['finished']}",
            "",
            "## Figures",
            "",
            _figures(results),
            "",
            results["convention"]["text"],
        ]
    lines += [
        "", "## Exported form", "",
        f"- run by {parity['ran_by']} on {parity['lists']:,} lists of {parity['split']}, "
        f"{parity['items']:,} items: largest difference of a score "
        f"{parity['largest_difference']:.1e}, no list changes its order",
        *(f"- {name}: {value}" for name, value in manifest["notes"].items()),
        "", "## Limits", "",
        "- the figures are of these lists; on other queries, features or labels they are unknown",
        "- features are read as the lists of training had them: the same order, units and meaning",
        "",
    ]  # fmt: skip
    return "\n".join(line for n, line in enumerate(lines) if line or (n and lines[n - 1]))


def _figures(results: Mapping[str, Any]) -> str:
    splits = [split for split in ("vali", "test") if split in results]
    rows = [[name, *(results[split].get(name) for split in splits)] for name in results["vali"]]
    return tabulate(rows, ["metric", *splits], floatfmt=".4f", tablefmt="github")

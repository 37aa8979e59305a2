"""What the program makes of its own files: the one place that names the functions which read them.

Each reader gives ``{part: fingerprint}``, so that a finding can say which part is another one.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def parts_of(value: Any, name: str = "") -> dict[str, str]:
    """The leaves of nested mappings and sequences, each with a fingerprint of all its bits."""
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)) and not _plain(value):
        items = [(str(place), item) for place, item in enumerate(value)]
    else:
        return {name: _fingerprint(value)}
    found = {f"{name} (how many)": str(len(items))}
    for key, item in items:
        found |= parts_of(
            item, f"{name}{key}" if name.endswith(": ") else f"{name}.{key}".lstrip(".")
        )
    return found


def _plain(value: Sequence[Any]) -> bool:
    return all(isinstance(item, (str, int, float, bool, type(None))) for item in value)


def _fingerprint(value: Any) -> str:
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        bits = value.tobytes() if value.dtype != object else repr(value.tolist()).encode()
        return f"{value.dtype} {value.shape} {hashlib.sha256(bits).hexdigest()}"
    return f"{type(value).__name__} {value!r}"


def of_checkpoint(path: Path) -> Any:
    """All that a checkpoint holds, as a resumed run takes it."""
    from ltr.training.checkpoint import load_checkpoint

    return load_checkpoint(path)


def of_kept_model(run: Path, data: Path) -> dict[str, Any]:
    """A kept model as ``evaluate`` and ``predict`` use it: its scores, transform and config."""
    import torch

    from ltr.data.batches import ItemTensors
    from ltr.data.letor import read_letor
    from ltr.experiment.kept import load_kept
    from ltr.training.evaluation import predict

    device = torch.device("cpu")
    kept = load_kept(str(run), device)
    lists = ItemTensors(read_letor(data / "mine" / "test.txt", width=5), kept.transform, device)
    scores = predict(kept.model, lists, items=4096, precision="float32")
    return {"scores": scores, "config": kept.config}


def of_cache(cache: Path, data: Path) -> dict[str, Any]:
    """The lists as training opens them."""
    from ltr.data.files import LetorFiles

    files = LetorFiles(name="letor", folder="mine", data_dir=data, cache_dir=cache)
    return {
        split: {
            name: np.array(getattr(lists, name))
            for name in ("features", "labels", "offsets", "qids")
        }
        | {"digest": lists.digest, "missing": lists.missing}
        for split, lists in ((split, files.split(split)) for split in ("train", "vali", "test"))
    }


def of_results(run: Path) -> dict[str, Any]:
    """A finished run as ``compare`` takes it: results and metrics of every query."""
    from ltr.experiment.finished import find_runs

    ((found,), _) = find_runs([str(run)])
    queries = found.queries
    columns = {str(name): queries[name].to_numpy() for name in queries.columns}
    return {"results": found.results, "queries": columns}


def of_scores(path: Path, data: Path) -> dict[str, Any]:
    """The scores of the test items, as ``evaluate scores=`` takes them."""
    from ltr.scoring.evaluate import read_scores

    text = (data / "mine" / "test.txt").read_text()
    qids = [line.split()[1].removeprefix("qid:") for line in text.splitlines()]
    return {"scores": read_scores(path, qids, "test.txt")}


def as_text(parts: Mapping[str, str]) -> str:
    """What a child answers."""
    return json.dumps(dict(parts))

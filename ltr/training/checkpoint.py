"""Checkpoints: written completely or not at all, verified, and loaded without running code."""

import hashlib
import io
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ltr.arrays import Ints
from ltr.atomic import atomic_write
from ltr.data.lists import Columns
from ltr.data.transforms import FeatureTransform
from ltr.errors import CheckpointError, LTRError
from ltr.metrics.crossfit import HALVINGS
from ltr.training.results_file import CHECKPOINTS, RESULTS, read_results, sha256

VERSION = 3
ENSEMBLE = "ensemble.pt"  # the checkpoint of an ensemble, in its run folder
RUN = "run"  # the entry with the random id that all checkpoints of a run share
HALVES = "halves"  # the entry of last.pt that ``read_half_choices`` reads

# A zip file may end with a comment; here it is the SHA-256 of all bytes before it.
_MARK = b"sha256:"
_TAIL = len(_MARK) + 64


def save_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` (tensors and plain values) to ``path``, completely or not at all.

    Raises ``OutputError`` if the disk is full or cannot be written; an existing checkpoint then
    stays unchanged.
    """
    buffer = io.BytesIO()  # if torch.save writes to a file, a full disk causes errors of many kinds
    torch.save({"version": VERSION, **content}, buffer)
    buffer.seek(-2, io.SEEK_END)  # the place of the length of the zip comment
    buffer.write(_TAIL.to_bytes(2, "little"))
    buffer.write(_MARK + hashlib.sha256(buffer.getbuffer()).hexdigest().encode())
    atomic_write(path, lambda file: file.write(buffer.getbuffer()))


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Return the content of a checkpoint; only tensors and plain values are ever loaded.

    The digest of the whole file is verified before anything is parsed. It detects damage, but does
    not prove who wrote the file. So callers must use the content within ``checkpoint_errors``. In
    the folder of a finished run, the digest must be the one that ``results.json`` records.

    Raises:
        CheckpointError: the file is missing or damaged, is not a checkpoint of this version of the
            project, belongs to a run other than that of the results in the same folder, or holds
            objects that would run code when loaded.
    """
    try:
        file_bytes = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror}): give the folder of one run, such as "
            "outputs/RUN, or outputs/SWEEP/RUN for a run of a sweep, or the file best.pt or "
            "last.pt in this folder"
        ) from error
    try:
        body = memoryview(file_bytes)[:-_TAIL]
        if file_bytes[-_TAIL:] != _MARK + hashlib.sha256(body).hexdigest().encode():
            raise ValueError("the SHA-256 in the file does not match its content")
        with zipfile.ZipFile(io.BytesIO(file_bytes)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > len(file_bytes):
                raise ValueError("the file is compressed, but torch.save never compresses")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # our own error says more
            content = torch.load(io.BytesIO(file_bytes), map_location=device, weights_only=True)
        _check_size(content, len(file_bytes))
        if content["version"] != VERSION:
            raise ValueError(f"expected version {VERSION}, got {content['version']}")
    except Exception as error:  # a crafted file can make torch raise any exception
        raise CheckpointError(
            f"{path} is damaged, or was not written by this version of ltr: use another "
            "checkpoint, or train again"
        ) from error
    _check_recorded(path, file_bytes)
    return dict(content)


def _check_recorded(path: Path, content: bytes) -> None:
    """Raise ``CheckpointError`` if ``results.json`` records another digest for ``path``.

    ``results.json`` is in the same folder. There is no digest if the run is not finished, or was
    finished by an earlier version.
    """
    beside = path.parent / RESULTS
    try:
        recorded = read_results(beside.read_bytes())[CHECKPOINTS][path.name]
    except (OSError, ValueError, LookupError, TypeError):
        return  # commands that need the results report damaged ones
    if recorded != sha256(content):
        raise CheckpointError(
            f"{path} does not match {beside}: they are from different runs, or from different "
            "points of one run; copy all files of one run into this folder, or train again"
        )


def selected_checkpoint(
    path: Path, device: torch.device | str = "cpu"
) -> tuple[Path, dict[str, Any]]:
    """Return the path of a checkpoint, and its content.

    ``path`` is a ``.pt`` file, or a run folder with an ensemble or selected weights (``best.pt`` or
    ``last.pt``). Raises ``CheckpointError`` as ``load_checkpoint`` does.
    """
    if path.suffix == ".pt":
        return path, load_checkpoint(path, device)
    if (path / ENSEMBLE).is_file():
        return path / ENSEMBLE, load_checkpoint(path / ENSEMBLE, device)
    file = path / "last.pt"
    best = path / "best.pt"
    content = load_checkpoint(file, device)
    with checkpoint_errors(file):
        last = content["config"]["select"] == "last" or not best.is_file()
    if last:
        return file, content
    content_of_best = load_checkpoint(best, device)
    check_same_run(best, content_of_best, content)
    return best, content_of_best


def check_same_run(best: Path, content: Mapping[str, Any], last: Mapping[str, Any]) -> None:
    """Raise ``CheckpointError`` if ``best`` and ``last.pt`` do not belong together.

    ``content`` is the content of the file ``best``, and ``last`` that of ``last.pt``. Both must be
    from the same run, and ``best`` must not be older than ``last.pt`` says. It may be newer,
    because a run can be stopped after it has written ``best`` and before it writes ``last.pt``.
    """
    if content.get(RUN) != last.get(RUN):
        raise CheckpointError(
            f"{best} and last.pt are from different runs: copy all files of one run into this "
            "folder, or train again"
        )
    with checkpoint_errors(best):
        epochs = [checkpoint["progress"]["best_epoch"] or 0 for checkpoint in (content, last)]
    if epochs[0] < epochs[1]:
        raise CheckpointError(
            f"{best} is from epoch {epochs[0]}, but the best epoch in last.pt is {epochs[1]}: copy "
            "all files of one run into this folder, or train again"
        )


def read_half_choices(entry: Mapping[str, Any]) -> tuple[Ints, dict[int, torch.Tensor]]:
    """Return the best epoch on each half of the validation lists, and the scores at these epochs.

    The first result is ``[splits, 2]``, because the lists are split into two halves several times,
    see ``ltr.metrics.crossfit.Halves``. The second result maps each of these epochs to the
    scores of the validation items, ``[items]``. Raises ``ValueError`` if the entry does not
    have the form that a run writes.
    """
    epochs = entry["epochs"].cpu().numpy()
    scores = {int(epoch): epoch_scores.cpu() for epoch, epoch_scores in entry["scores"].items()}
    sound = (
        epochs.shape == (HALVINGS, 2)
        and {*scores} == {*epochs.flat}
        and len({epoch_scores.shape for epoch_scores in scores.values()}) == 1
        and all(
            epoch_scores.ndim == 1
            and epoch_scores.is_contiguous()
            and bool(epoch_scores.isfinite().all())
            for epoch_scores in scores.values()
        )
    )
    if not sound:
        raise ValueError("halves: expected the scores of exactly the epochs that are listed")
    return epochs, scores


def _check_size(value: Any, limit: int) -> None:
    """Raise ``ValueError`` if ``value`` contains more than ``limit`` values, repeats included."""
    stack = [value]
    count = 0
    while stack:
        if count + len(stack) > limit:
            raise ValueError("the content has more values than the file can hold")
        value = stack.pop()
        count += 1
        if isinstance(value, Mapping):
            stack.extend(value.values())
        elif isinstance(value, (list, tuple, set)):
            stack.extend(value)


@contextmanager
def checkpoint_errors(path: Path) -> Iterator[None]:
    """Context that raises ``CheckpointError`` if the checkpoint ``path`` has unusable content.

    A ``RuntimeError``, ``KeyError`` or the like becomes a ``CheckpointError``; an ``LTRError``
    passes unchanged.
    """
    try:
        yield
    except LTRError:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, OverflowError) as e:
        raise CheckpointError(
            f"{path} does not match its own config: ltr has changed since the file was written, or "
            "did not write the file; use the version that wrote the file, or train again"
        ) from e


def features_of(content: Mapping[str, Any]) -> tuple[FeatureTransform, Columns | None]:
    """Return the transform in a checkpoint, and the names and categories of the features.

    The second result is None if the features have no names. Raises ``ValueError`` if the entries
    of the checkpoint do not match each other; call this function within ``checkpoint_errors``.
    """
    transform = FeatureTransform.from_state(content["transform"])
    width = content["width"]
    names = None if content["columns"] is None else Columns.from_state(content["columns"])
    same_codes = names is None or np.array_equal(names.codes, transform.codes)
    if transform.width != width or not same_codes:
        raise ValueError(f"transform: expected a transform of the {width} columns of the model")
    return transform, names


# The entries that an ensemble's checkpoint has for each member: no optimiser state, no progress.
MEMBER = ("model", "config", "choices", "transform", "width", "columns", "members", "weights")


def members_of(content: Mapping[str, Any]) -> list[tuple[float, dict[str, Any]]]:
    """Return the weight and the content of each member in a checkpoint of an ensemble.

    The result is empty if the checkpoint is that of a single model. Raises ``ValueError`` if the
    members do not have the form that ``ltr ensemble`` writes; call this function within
    ``checkpoint_errors``.
    """
    if "members" not in content:
        return []
    members = content["members"]
    weights = content["weights"]
    if not members or not all(isinstance(weight, float) for weight in weights):
        raise ValueError("members: expected at least one, each with a weight")
    return list(zip(weights, members, strict=True))


def weight_bytes(content: Mapping[str, Any]) -> int:
    """Return the size of all weights in bytes; weights shared by members are counted repeatedly."""
    own_bytes = sum(
        tensor.nbytes for tensor in content["model"].values() if isinstance(tensor, torch.Tensor)
    )
    return own_bytes + sum(weight_bytes(member) for _, member in members_of(content))


def random_states() -> dict[str, Any]:
    """Return the states of PyTorch's global random generators; training uses no others."""
    return {"torch": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}


def restore_random_states(states: dict[str, Any]) -> None:
    """Restore the states that ``random_states`` returned, on the CPU and this machine's GPUs."""
    torch.set_rng_state(states["torch"].cpu())
    for device, state in zip(range(torch.cuda.device_count()), states["cuda"], strict=False):
        torch.cuda.set_rng_state(state.cpu(), device)

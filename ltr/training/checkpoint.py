"""Checkpoints: written whole or not at all, verified bit for bit, loaded without running code."""

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
from ltr.data.transforms import QUANTILE, FeatureTransform
from ltr.errors import CheckpointError, LTRError
from ltr.metrics.crossfit import HALVINGS
from ltr.training.results_file import CHECKPOINTS, RESULTS, read_results, sha256

VERSION = 3
ENSEMBLE = "ensemble.pt"  # the checkpoint of an ensemble, in its run folder
RUN = "run"  # the entry with random digits that all checkpoints of a run share
HALVES = "halves"  # the entry of last.pt that ``read_half_choices`` reads

# A zip file may end with a comment; here it is the SHA-256 of all bytes before it.
_MARK = b"sha256:"
_TAIL = len(_MARK) + 64


def save_checkpoint(path: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` (tensors and plain values) to ``path``, whole or not at all.
    ``OutputError``: the disk is full or cannot be written; an old checkpoint is left unchanged.
    """
    buffer = io.BytesIO()  # to a file, torch.save reports a full disk in many ways
    torch.save({"version": VERSION, **content}, buffer)
    buffer.seek(-2, io.SEEK_END)  # where a zip file has the length of its comment
    buffer.write(_TAIL.to_bytes(2, "little"))
    buffer.write(_MARK + hashlib.sha256(buffer.getbuffer()).hexdigest().encode())
    atomic_write(path, lambda file: file.write(buffer.getbuffer()))


def load_checkpoint(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read what ``save_checkpoint`` wrote; only tensors and plain values are ever loaded.

    The digest of the whole file is verified before anything is parsed. It detects damage, but does
    not prove who wrote the file. So callers must use the content within ``checkpoint_errors``. In
    the folder of a finished run, the file must be the one that ``results.json`` was written with.

    Raises:
        CheckpointError: the file is missing, damaged, not a checkpoint of this project, written by
            another version of it, of another run than the results beside it, or holds objects that
            would run code when loaded.
    """
    try:
        file_bytes = path.read_bytes()
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror}): give the folder of one run, such as "
            "outputs/RUN, or outputs/SWEEP/RUN of a sweep, or the best.pt or last.pt in it"
        ) from error
    try:
        body = memoryview(file_bytes)[:-_TAIL]
        if file_bytes[-_TAIL:] != _MARK + hashlib.sha256(body).hexdigest().encode():
            raise ValueError("its SHA-256 is wrong")
        with zipfile.ZipFile(io.BytesIO(file_bytes)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > len(file_bytes):
                raise ValueError("compressed, which torch.save never does")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # our own error says more
            content = torch.load(io.BytesIO(file_bytes), map_location=device, weights_only=True)
        _check_size(content, len(file_bytes))
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']}, not {VERSION}")
    except Exception as error:  # a crafted file makes torch raise anything
        raise CheckpointError(
            f"{path} is damaged, or not written by this version of train.py: use another one, or "
            "train again"
        ) from error
    _check_recorded(path, file_bytes)
    return dict(content)


def _check_recorded(path: Path, content: bytes) -> None:
    """Raise ``CheckpointError`` if ``results.json`` beside ``path`` has another digest for it.
    There is none if the run is not finished, or was finished by an earlier version.
    """
    beside = path.parent / RESULTS
    try:
        recorded = read_results(beside.read_bytes())[CHECKPOINTS][path.name]
    except (OSError, ValueError, LookupError, TypeError):
        return  # commands that need the results say if they are damaged
    if recorded != sha256(content):
        raise CheckpointError(
            f"{path} is not the file that {beside} was written with, but of another run, or of "
            "another state of this one: copy all files of one run there, or train again"
        )


def selected_checkpoint(
    path: Path, device: torch.device | str = "cpu"
) -> tuple[Path, dict[str, Any]]:
    """Return the checkpoint file that ``path`` stands for, and its content. ``path`` is a ``.pt``
    file, or a run folder with an ensemble or selected weights (``best.pt`` or ``last.pt``).
    ``CheckpointError``: see ``load_checkpoint``.
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
    """Raise ``CheckpointError`` if ``content``, of the file ``best``, and ``last``, the content of
    ``last.pt``, are not of one run, or if ``best`` is older. A run that was stopped between writing
    the two has a newer one.
    """
    if content.get(RUN) != last.get(RUN):
        raise CheckpointError(
            f"{best} and last.pt are of different runs: copy all files of one run there, or train "
            "again"
        )
    with checkpoint_errors(best):
        epochs = [checkpoint["progress"]["best_epoch"] or 0 for checkpoint in (content, last)]
    if epochs[0] < epochs[1]:
        raise CheckpointError(
            f"{best} is of epoch {epochs[0]}, and the best epoch in last.pt is {epochs[1]}: copy "
            "all files of one run there, or train again"
        )


def read_half_choices(entry: Mapping[str, Any]) -> tuple[Ints, dict[int, torch.Tensor]]:
    """Return which epoch each half of the validation lists chooses, ``[splits, 2]`` as in
    ``Halves``, and the scores of the validation items in each of these epochs, ``[items]``.
    ``ValueError``: the entry is not what a run writes.
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
        raise ValueError("the scores of halves are not those of their epochs")
    return epochs, scores


def _check_size(value: Any, limit: int) -> None:
    """Raise ``ValueError`` if ``value`` holds more than ``most`` values, counting repeated ones."""
    stack = [value]
    count = 0
    while stack:
        if count + len(stack) > limit:
            raise ValueError("it repeats its own parts")
        value = stack.pop()
        count += 1
        if isinstance(value, Mapping):
            stack.extend(value.values())
        elif isinstance(value, (list, tuple, set)):
            stack.extend(value)


@contextmanager
def checkpoint_errors(path: Path) -> Iterator[None]:
    """Context that turns errors from using the content of checkpoint ``path`` (``RuntimeError``,
    ``KeyError`` and the like) into a ``CheckpointError``; an ``LTRError`` passes unchanged.
    """
    try:
        yield
    except LTRError:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, OverflowError) as e:
        raise CheckpointError(
            f"{path} does not fit its own config: the program has changed since, or train.py did "
            "not write it; use the version that wrote it, or train again"
        ) from e


def features_of(content: Mapping[str, Any]) -> tuple[FeatureTransform, Columns | None]:
    """Return the transform in a checkpoint, and names and categories of the features; None without
    names. ``ValueError``: the parts do not fit each other; call this within ``checkpoint_errors``.
    """
    transform = FeatureTransform.from_state(content["transform"])
    width = content["width"]
    names = None if content["columns"] is None else Columns.from_state(content["columns"])
    columns = (transform.shape, transform.sign, transform.mean, transform.scale, transform.codes)
    indicated = transform.indicated
    grids = transform.grids
    if (
        any(column.shape != (width,) for column in columns)
        or (np.diff(indicated) <= 0).any()
        or not np.isin(indicated, np.arange(width)).all()
        or grids.ndim != 2
        or len(grids) != (transform.shape == QUANTILE).sum()
        or grids.shape[1] < 2
        or (names is not None and not np.array_equal(names.codes, transform.codes))
    ):
        raise ValueError(f"transform: not one of {width} columns")
    return transform, names


# What an ensemble's checkpoint holds of each member: no optimiser state, no progress.
MEMBER = ("model", "config", "choices", "transform", "width", "columns", "members", "weights")


def members_of(content: Mapping[str, Any]) -> list[tuple[float, dict[str, Any]]]:
    """Return weight and content of each member in an ensemble's checkpoint; empty for a single
    model. ``ValueError``: they are not as ``ltr ensemble`` writes them; call this within
    ``checkpoint_errors``.
    """
    if "members" not in content:
        return []
    members = content["members"]
    weights = content["weights"]
    if not members or not all(isinstance(weight, float) for weight in weights):
        raise ValueError("members: none, or without weights")
    return list(zip(weights, members, strict=True))


def weight_bytes(content: Mapping[str, Any]) -> int:
    """Return the bytes of all weights in a checkpoint; shared ones count once for each member."""
    own_bytes = sum(
        tensor.nbytes for tensor in content["model"].values() if isinstance(tensor, torch.Tensor)
    )
    return own_bytes + sum(weight_bytes(member) for _, member in members_of(content))


def random_states() -> dict[str, Any]:
    """Return the states of PyTorch's random generators; training uses no other global ones."""
    return {"torch": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}


def restore_random_states(states: dict[str, Any]) -> None:
    """Restore what ``random_states`` returned, for the CPU and those GPUs that this machine has."""
    torch.set_rng_state(states["torch"].cpu())
    for device, state in zip(range(torch.cuda.device_count()), states["cuda"], strict=False):
        torch.cuda.set_rng_state(state.cpu(), device)

"""A fit under way: what is asked of a library, what it gives, and the arrays in which it does."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ltr.data.batches import ItemTensors
from ltr.errors import DataError

# Scores of all items of train, float64 -> gradient and curvature of each, float32.
Derivatives = Callable[[NDArray[np.float64]], tuple[NDArray[np.float32], NDArray[np.float32]]]


class Importances(NamedTuple):
    """What each feature did in all trees together.

    Attributes:
        gain: ``[width]``, in the library's unit.
        splits: ``[width]``, how many splits use it; NaN where the library does not say.
    """

    gain: NDArray[np.float64]
    splits: NDArray[np.float64]


@dataclass(frozen=True)
class Order:
    """What a fit is asked for, whatever the library.

    Attributes:
        data: ``train`` and every split whose scores will be wanted.
        derivatives: of the loss to boost with; None: the library's own objective.
        rounds: the most rounds that will be asked for.
        seed: of what the library draws.
        threads: of the library.
        device: ``cpu`` or ``cuda``.
        stop: whether the user asked to stop, for a library that does its rounds in one go.
    """

    data: Mapping[str, ItemTensors]
    derivatives: Derivatives | None
    rounds: int
    seed: int
    threads: int
    device: str
    stop: Callable[[], bool]


class Boosting(ABC):
    """A fit under way, a round at a time."""

    @abstractmethod
    def round(self) -> None:
        """Boost once more."""

    @abstractmethod
    def scores(self, split: str) -> NDArray[np.float32]:
        """The scores of the items of ``split`` after the rounds so far, ``[items]``."""

    @property
    @abstractmethod
    def trees(self) -> int:
        """Trees so far; a round in which nothing could be split may add none."""

    @abstractmethod
    def content(self, trees: int) -> bytes:
        """The booster of the first ``trees`` trees, >= 1, as the library writes it."""

    @abstractmethod
    def parameters(self) -> set[str] | None:
        """What the library calls its parameters; None where it complains of unknown ones itself."""


def single(scores: NDArray[np.floating]) -> NDArray[np.float32]:
    """``scores`` as float32; one too large for it is infinite, which is looked for afterwards."""
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def items_of(data: ItemTensors) -> NDArray[np.float32]:
    """The transformed features ``[items, width]`` on the CPU."""
    return data.features.cpu().numpy()


def labels_of(data: ItemTensors) -> NDArray[np.float32]:
    """The labels ``[items]`` on the CPU."""
    return data.labels.cpu().numpy()


def check_whole_labels(data: ItemTensors, what: str, *, most: float, instead: str) -> None:
    """Raise ``DataError`` unless all labels are whole numbers from 0 to ``most``."""
    labels = labels_of(data)
    wrong = labels[(labels != np.floor(labels)) | (labels < 0) | (labels > most)]
    if len(wrong):
        raise DataError(
            f"{what} takes whole labels from 0 to {most:g}, train has {wrong[0]:g}: {instead}"
        )

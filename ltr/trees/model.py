"""The base classes of tree models: a fit round by round; scoring, options and state."""

import importlib
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ltr.data.batches import ItemTensors
from ltr.errors import CheckpointError, ConfigError, DataError, LTRError, TrainingError
from ltr.models.layers import positive_int
from ltr.trees.trial import try_out
from ltr.typing import Features, Mask, Ranks, Scores

# The remedy where scores are not finite.
NOT_FINITE = (
    "train with a lower model.learning_rate or more regularisation (model.*), or look at the "
    "features and labels of these lists"
)
# What a library raises, besides its own error, where a setting has the wrong type.
WRONG_TYPE = (TypeError, ValueError, AttributeError)

_NUMBER = r"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*"
_LIST = re.compile(rf"[(\[]?{_NUMBER}(?:,{_NUMBER})*,?\s*[)\]]?")


# Scores of all items of train, float64 -> gradient and curvature of each, float32.
Derivatives = Callable[[NDArray[np.float64]], tuple[NDArray[np.float32], NDArray[np.float32]]]


class Importances(NamedTuple):
    """The use of each feature in all trees together."""

    gain: NDArray[np.float64]  # [width], in the library's unit
    splits: NDArray[np.float64]  # [width], splits that use it; NaN where the library does not say


@dataclass(frozen=True)
class Order:
    """The arguments of a fit, the same for every library."""

    data: Mapping[str, ItemTensors]  # train, and every split to score
    derivatives: Derivatives | None  # of the loss to boost with; None: the library's own objective
    rounds: int  # at most
    seed: int
    threads: int
    device: str  # cpu or cuda
    stop: Callable[[], bool]  # asked by a library that does all rounds in one call

    @property
    def weights(self) -> NDArray[np.float32] | None:
        """The weights of train's lists for an objective of the library, ``[lists]``.

        None: all weigh the same, or ``derivatives`` have them.
        """
        return self.data["train"].weights if self.derivatives is None else None

    @property
    def weights_of_items(self) -> NDArray[np.float32] | None:
        """``weights`` of each item's list, ``[items]``."""
        of_lists = self.weights
        return None if of_lists is None else np.repeat(of_lists, self.data["train"].lengths)


class Boosting(ABC):
    """A fit, a round at a time."""

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
        """The library's names of its parameters; None where it refuses unknown ones itself."""


class BoostedTrees(nn.Module, ABC):
    """Trees that score items one by one; before any is grown, every score is 0.

    Its state is the library's file of the booster as a tensor of bytes, ``[bytes]`` uint8.

    Args:
        width: number of features of an item.
        objective: one of ``objectives``, the library's own; None is the first of them.
        options: parameters of the library by name that no other argument has.
        knobs: the parameters of the library that have an argument.

    Raises:
        ConfigError: the library is not installed, has no such objective, or an option is not for
            the user to set.
    """

    library: ClassVar[str]  # as it is imported
    error: ClassVar[str]  # the library's own, as a place in it
    title: ClassVar[str]
    native: ClassVar[str]  # name of a file of the booster as the library writes it
    objectives: ClassVar[tuple[str, ...]]
    # Options that a run sets itself, or that break what it keeps: remedy -> names.
    reserved: ClassVar[Mapping[str, str]]
    per_feature: ClassVar[tuple[str, ...]]  # options that are lists, a value for each feature
    takes_losses: ClassVar[bool] = True  # whether it boosts with a loss of ltr.losses
    pointwise = True

    def __init__(
        self, width: int, objective: str | None, options: Mapping[str, Any] | None, **knobs: Any
    ) -> None:
        super().__init__()
        self.options = dict(options or {})
        self.params = knobs | self.options
        refused = {name: what for what, names in self.reserved.items() for name in names.split()}
        refused |= {
            name: f"set model.{name} instead" for name in inspect.signature(type(self)).parameters
        }
        for name in sorted(self.options.keys() & refused.keys()):
            raise ConfigError(f"model.options.{name}: {refused[name]}")
        self.width = positive_int("width", width)
        self.categories: list[int] = []  # the columns whose values are codes, not numbers
        if objective is not None and objective not in self.objectives:
            raise ConfigError(
                f"model.objective={objective}: {self.title} has {', '.join(self.objectives)} here; "
                "for another set loss=..."
            )
        self.objective = objective
        _ = self.module  # installed?
        self.trusted = False  # True: a state from elsewhere is not tried out first
        self.content = b""  # the booster as the library writes it; empty before the first tree
        self._booster: Any = None

    @abstractmethod
    def boost(self, order: Order) -> Boosting:
        """Begin a fit; the model itself is not changed.

        Raises:
            ConfigError: the library refuses a setting.
            DataError: the library's own objective does not take such lists.
        """

    @abstractmethod
    def load(self, content: bytes) -> Any:
        """The booster that the library wrote as ``content``; its number of features is checked."""

    @abstractmethod
    def score_items(self, booster: Any, items: NDArray[np.float32]) -> NDArray[np.floating]:
        """The score of each row of ``items``, ``[items]``."""

    @abstractmethod
    def count_leaves(self, booster: Any) -> int:
        """Leaves of all trees."""

    @abstractmethod
    def importances_in(self, booster: Any) -> Importances:
        """Gain and splits of each feature."""

    @contextmanager
    def complaints(self, *also: type[Exception]) -> Iterator[None]:
        """Within, an error of the library becomes a ``ConfigError`` of one line.

        So does an error of the types ``also`` that is not one of this project.
        """
        try:
            yield
        except (attrgetter(self.error)(self.module), *also) as error:
            if isinstance(error, LTRError):
                raise
            text = " ".join(str(error).partition("Stack trace")[0].split())
            raise ConfigError(f"{self.title}: {text}; check the model.* settings") from error

    @property
    def module(self) -> ModuleType:
        """The library.

        Raises:
            ConfigError: it is not installed, or does not load.
        """
        try:
            return importlib.import_module(self.library)
        except (ImportError, OSError) as error:  # OSError: a system library, as OpenMP, is missing
            raise ConfigError(
                f"model={self.library} needs {self.library}, which does not load here "
                f"({' '.join(str(error).split())}): pip install 'ltr-torch[gbdt]'"
            ) from error

    @property
    def version(self) -> str:
        """The version of the library."""
        return str(self.module.__version__)

    @property
    def leaves(self) -> int:
        """Leaves of all trees, a fitted number each."""
        return 0 if self._booster is None else self.count_leaves(self._booster)

    def importances(self) -> Importances:
        """Gain and splits of each feature; zeros before the first tree."""
        if self._booster is None:
            return Importances(np.zeros(self.width), np.zeros(self.width))
        return self.importances_in(self._booster)

    def check_lists(self) -> None:
        """Raise ``ConfigError`` where an option of ``per_feature`` is not of ``width`` values."""
        for name in self.per_feature:
            given = values_in(self.options.get(name))
            if given and given != self.width:
                raise ConfigError(
                    f"model.options.{name} has {given} values, the lists have {self.width} "
                    "features: give a value for each feature"
                )

    def own_objective(self) -> str:
        """The library's objective, used where no loss is chosen."""
        return self.objective or self.objectives[0]

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Scores ``[batch, list]``, 0 where ``mask`` is False; ``ranks`` are not used.

        Raises:
            TrainingError: a score is not finite.
        """
        scores = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
        if self._booster is not None and bool(mask.any()):
            items = np.ascontiguousarray(features[mask].float().cpu().numpy())
            found = single(self.score_items(self._booster, items))
            if not np.isfinite(found).all():
                raise TrainingError(f"the trees' scores are not finite: {NOT_FINITE}")
            scores[mask] = torch.from_numpy(found).to(mask.device)
        return scores

    def take(self, content: bytes) -> None:
        """Take the booster ``content``; empty: no trees.

        Raises:
            CheckpointError: the library cannot read it, or its number of features is another.
        """
        try:
            booster = self.load(content) if content else None
        except CheckpointError:
            raise
        except Exception as error:  # each library raises errors of many types
            raise CheckpointError(
                f"the trees kept are not a model that {self.title} {self.version} reads: use the "
                "version that wrote them, or train again"
            ) from error
        self.content, self._booster = content, booster

    def check_width(self, width: int) -> None:
        """Raise ``CheckpointError`` where a booster was trained on another number of features."""
        if width != self.width:
            raise CheckpointError(
                f"the trees kept are of {width} features, the config is of {self.width}: use the "
                "checkpoint that train.py wrote"
            )

    def get_extra_state(self) -> Tensor:
        """The booster's bytes."""
        return torch.from_numpy(np.frombuffer(self.content, np.uint8).copy())

    def set_extra_state(self, state: Any) -> None:
        """Take the booster of these bytes, which a process of its own tries out first.

        Raises:
            CheckpointError: the state is no booster, or the trial fails.
        """
        content = state.cpu().numpy().tobytes() if isinstance(state, Tensor) else b"?"
        if not self.trusted:
            try_out(content, self.library, self.width)
        self.take(content)


def values_in(value: Any) -> int:
    """The number of values of an option that is a list of numbers, or such a text; else 0.

    >>> values_in([1, 0, -1]), values_in("(1,0,-1)"), values_in("1,0"), values_in(0.5)
    (3, 3, 2, 0)
    >>> values_in([[0, 1], [2]]), values_in("depthwise"), values_in("5")
    (0, 0, 0)
    """
    if isinstance(value, str) and "," in value and _LIST.fullmatch(value.strip()):
        return len(value.strip("()[] ,").split(","))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return 0 if any(isinstance(one, Sequence) for one in value) else len(value)
    return 0


def single(scores: NDArray[np.floating]) -> NDArray[np.float32]:
    """``scores`` as float32; too large ones become infinite, which the caller checks."""
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def check_whole_labels(data: ItemTensors, what: str, *, most: float, instead: str) -> None:
    """Raise ``DataError`` unless all labels are whole numbers from 0 to ``most``."""
    labels = data.labels.cpu().numpy()
    wrong = labels[(labels != np.floor(labels)) | (labels < 0) | (labels > most)]
    if len(wrong):
        raise DataError(
            f"{what} takes whole labels from 0 to {most:g}, train has {wrong[0]:g}: {instead}"
        )

"""What the tree models share: scoring, their options and their state."""

import importlib
import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ltr.errors import CheckpointError, ConfigError, LTRError, TrainingError
from ltr.models.layers import positive_int
from ltr.trees.boosting import Boosting, Importances, Order, single
from ltr.trees.trial import know, try_out
from ltr.typing import Features, Mask, Ranks, Scores

# What to do where scores are not finite.
NOT_FINITE = (
    "train with a lower model.learning_rate or more regularisation (model.*), or look at the "
    "features and labels of these lists"
)
# What a library raises, besides its own error, where a setting has the wrong type.
WRONG_TYPE = (TypeError, ValueError, AttributeError)

_NUMBER = r"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*"
_LIST = re.compile(rf"[(\[]?{_NUMBER}(?:,{_NUMBER})*,?\s*[)\]]?")


class BoostedTrees(nn.Module, ABC):
    """Trees that score items one by one; before any is grown, every score is 0.

    Its state is the library's file of the booster as a tensor of bytes, ``[bytes]`` uint8.

    Args:
        width: number of features of an item.
        objective: one of ``objectives``, the library's own; None is the first of them.
        options: parameters of the library by name that no other argument has.

    Raises:
        ConfigError: the library is not installed, has no such objective, or an option is not for
            the user to set.
    """

    library: ClassVar[str]  # as it is imported
    title: ClassVar[str]
    native: ClassVar[str]  # name of a file of the booster as the library writes it
    objectives: ClassVar[tuple[str, ...]]
    # Options that a run decides, or that break what it keeps, and what to do instead.
    reserved: ClassVar[Mapping[str, str]]
    per_feature: ClassVar[tuple[str, ...]]  # options that are lists, a value for each feature
    takes_losses: ClassVar[bool] = True  # whether it boosts with a loss of ltr.losses

    def __init__(
        self, width: int, objective: str | None, options: Mapping[str, Any] | None
    ) -> None:
        super().__init__()
        self.options = dict(options or {})
        knobs = dict.fromkeys(inspect.signature(type(self)).parameters, "set model.{name} instead")
        decided = dict(self.reserved) | knobs
        for name in sorted(self.options.keys() & decided.keys()):
            raise ConfigError(f"model.options.{name}: {decided[name].format(name=name)}")
        self.width = positive_int("width", width)
        if objective is not None and objective not in self.objectives:
            raise ConfigError(
                f"model.objective={objective}: {self.title} has {', '.join(self.objectives)} here; "
                "for another set loss=..."
            )
        self.objective = objective
        imported(self.library)
        self.trusted = False  # True: a state from elsewhere is not tried out first
        self._content = b""
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

    @abstractmethod
    def library_error(self) -> type[Exception]:
        """What the library raises."""

    @contextmanager
    def complaints(self, *also: type[Exception]) -> Iterator[None]:
        """Inside, what the library refuses comes out as a ``ConfigError`` of one line.

        So does an error of the types ``also`` that is not one of this project.
        """
        try:
            yield
        except (self.library_error(), *also) as error:
            if isinstance(error, LTRError):
                raise
            text = " ".join(str(error).partition("Stack trace")[0].split())
            raise ConfigError(f"{self.title}: {text}; check the model.* settings") from error

    @property
    def module(self) -> ModuleType:
        """The library."""
        return imported(self.library)

    @property
    def version(self) -> str:
        """The version of the library."""
        return str(self.module.__version__)

    @property
    def leaves(self) -> int:
        """Leaves of all trees, a fitted number each."""
        return 0 if self._booster is None else self.count_leaves(self._booster)

    @property
    def content(self) -> bytes:
        """The booster as the library writes it; empty before any tree is grown."""
        return self._content

    def importances(self) -> Importances:
        """Gain and splits of each feature; zeros before any tree is grown."""
        if self._booster is None:
            return Importances(np.zeros(self.width), np.zeros(self.width))
        return self.importances_in(self._booster)

    def check_lists(self) -> None:
        """Raise ``ConfigError`` where an option that has a value for each feature has not."""
        for name in self.per_feature:
            given = values_in(self.options.get(name))
            if given and given != self.width:
                raise ConfigError(
                    f"model.options.{name} has {given} values, the lists have {self.width} "
                    "features: give a value for each feature"
                )

    def own_objective(self) -> str:
        """The objective of the library that is used where no loss is chosen."""
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

    def grown(self, content: bytes) -> None:
        """Become the booster ``content`` that this process grew; none where it is empty."""
        know(content)
        self.take(content)

    def take(self, content: bytes) -> None:
        """Become the booster that ``content`` is; none where it is empty.

        Raises:
            CheckpointError: the library cannot read it, or it is of other features.
        """
        try:
            booster = self.load(content) if content else None
        except CheckpointError:
            raise
        except Exception as error:  # each library has its own, and others from below
            raise CheckpointError(
                f"the trees kept are not a model that {self.title} {self.version} reads: use the "
                "version that wrote them, or train again"
            ) from error
        self._content, self._booster = content, booster

    def check_width(self, width: int) -> None:
        """Raise ``CheckpointError`` where a booster was trained on another number of features."""
        if width != self.width:
            raise CheckpointError(
                f"the trees kept are of {width} features, the config is of {self.width}: use the "
                "checkpoint that train.py wrote"
            )

    def get_extra_state(self) -> Tensor:
        """The booster's bytes."""
        return torch.from_numpy(np.frombuffer(self._content, np.uint8).copy())

    def set_extra_state(self, state: Any) -> None:
        """Become the booster of these bytes, which a process of its own tries out first.

        Raises:
            CheckpointError: they are none, or it does not come through.
        """
        content = state.cpu().numpy().tobytes() if isinstance(state, Tensor) else b"?"
        if not self.trusted:
            try_out(content, self.library, self.width)
        self.take(content)


def imported(library: str) -> ModuleType:
    """The library.

    Raises:
        ConfigError: it is not installed, or does not load.
    """
    try:
        return importlib.import_module(library)
    except (ImportError, OSError) as error:  # OSError: a system library such as OpenMP is missing
        raise ConfigError(
            f"model={library} needs {library}, which does not load here "
            f"({' '.join(str(error).split())}): pip install 'ltr-torch[gbdt]'"
        ) from error


def values_in(value: Any) -> int:
    """How many values an option has that is a list of numbers or a text of one; 0 for any other.

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

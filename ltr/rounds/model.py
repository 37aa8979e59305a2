"""The base classes of models that are fitted by rounds: a fit, scoring and state."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ltr.data.batches import ItemTensors
from ltr.errors import ConfigError, DataError, TrainingError
from ltr.metrics import Convention
from ltr.metrics.checks import positive_int
from ltr.training.settings import Settings
from ltr.typing import Features, Loss, Mask, Ranks, Scores

# What a library raises, besides its own error, where a setting has the wrong type.
WRONG_TYPE = (TypeError, ValueError, AttributeError)


class Derivatives(Protocol):
    """Gradient and curvature of a loss: scores of all items of train, float64 -> float32 each."""

    value: float  # mean over lists of the loss at the last call

    def __call__(
        self, scores: NDArray[np.float64]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]: ...


class Importances(NamedTuple):
    """The use of each feature in the whole model."""

    gain: NDArray[np.float64]  # [width], in the model's own unit
    splits: NDArray[np.float64]  # [width], how often it is used; NaN where that is not known


@dataclass(frozen=True)
class Order:
    """The arguments of a fit, the same for every model."""

    data: Mapping[str, ItemTensors]  # train, and every split to score
    derivatives: Derivatives | None  # of the loss to fit; None: the model's own objective
    rounds: int  # at most
    seed: int
    threads: int
    device: str  # cpu or cuda
    stop: Callable[[], bool]  # asked by a library that does all rounds in one call
    convention: Convention = field(default_factory=Convention)  # of a metric that is fitted

    @property
    def weights(self) -> NDArray[np.float32] | None:
        """The weights of train's lists for the model's own objective, ``[lists]``.

        None: all weigh the same, or ``derivatives`` have them.
        """
        return self.data["train"].weights if self.derivatives is None else None

    @property
    def weights_of_items(self) -> NDArray[np.float32] | None:
        """``weights`` of each item's list, ``[items]``."""
        of_lists = self.weights
        return None if of_lists is None else np.repeat(of_lists, self.data["train"].lengths)


class Rounds(ABC):
    """A fit, a round at a time."""

    @abstractmethod
    def round(self) -> None:
        """Do one more."""

    @abstractmethod
    def scores(self, split: str) -> NDArray[np.floating]:
        """The scores of the items of ``split`` after the rounds so far, ``[items]``."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Trees, weak rankers or passes so far; a round that finds nothing may add none."""

    @abstractmethod
    def content(self, length: int) -> Any:
        """What the first ``length`` >= 1 of them make, as the model takes it."""

    def columns(self) -> dict[str, float]:
        """The columns of the history that only this kind of model has, of the last round."""
        return {}

    def parameters(self) -> set[str] | None:
        """A library's names of its parameters; None where it refuses unknown ones itself."""
        return None


class RoundModel(nn.Module, ABC):
    """A model that scores items one by one; before the first round every score is 0.

    Args:
        width: number of features of an item.
    """

    title: ClassVar[str]
    kind: ClassVar[str]  # the plural, in messages
    makes: ClassVar[str]  # what rounds make, in messages
    not_finite: ClassVar[str] = (  # the remedy where scores are not
        "train with transform=standardise, or look at the features and labels of these lists"
    )
    pointwise = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = positive_int("width", width)

    @abstractmethod
    def begin(self, order: Order) -> Rounds:
        """Begin a fit; the model itself is not changed.

        Raises:
            ConfigError: a setting is refused.
            DataError: the model's own objective does not take such lists.
        """

    @abstractmethod
    def take(self, content: Any) -> None:
        """Become what rounds made, ``content``; None: before the first.

        Raises:
            CheckpointError: it is no content of such a model, or of another width.
        """

    @abstractmethod
    def score_items(self, items: NDArray[np.float32]) -> NDArray[np.floating]:
        """The score of each row of ``items``, ``[items]``."""

    @property
    @abstractmethod
    def fitted(self) -> int:
        """The number of fitted values; 0 before the first round."""

    @abstractmethod
    def importances(self) -> Importances:
        """The use of each feature; zeros before the first round.

        Raises:
            CheckpointError: such a model has none.
        """

    @property
    def least_width(self) -> int:
        """The fewest features, >= 2, that go with the settings."""
        return 2

    @property
    def description(self) -> str:
        """The model in the log."""
        return self.title

    def own_objective(self) -> str:
        """The objective where no loss is chosen."""
        return self.title

    def complaints(self, *also: type[Exception]) -> AbstractContextManager[None]:
        """Within, an error of a library becomes a ``ConfigError`` of one line."""
        return nullcontext()

    def derivatives(self, loss: Loss, data: ItemTensors, settings: Settings) -> Derivatives:
        """What to fit for ``loss``; only of models that are fitted to losses."""
        raise NotImplementedError

    def check_lists(self) -> None:
        """Raise ``ConfigError`` where a setting does not go with ``width``."""

    def check_settings(self, loss: Loss | None, settings: Settings) -> None:
        """Raise ``ConfigError`` where the settings of a run do not go with this model."""
        if loss is not None:
            raise ConfigError(
                f"{self.title} has an objective of its own: leave out loss=..., or choose another "
                "model"
            )
        if settings.empty_lists != "keep":
            raise ConfigError(
                f"empty_lists={settings.empty_lists}: it is for losses, and {self.title} fits "
                "none: leave it out"
            )

    def check_parameters(self, rounds: Rounds) -> None:
        """Raise ``ConfigError`` where a fit that has begun does not know a setting."""

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Scores ``[batch, list]``, 0 where ``mask`` is False; ``ranks`` are not used.

        Raises:
            TrainingError: a score is not finite.
        """
        scores = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
        if self.fitted and bool(mask.any()):
            items = np.ascontiguousarray(features[mask].float().cpu().numpy())
            found = single(self.score_items(items))
            if not np.isfinite(found).all():
                raise TrainingError(f"the {self.makes}' scores are not finite: {self.not_finite}")
            scores[mask] = torch.from_numpy(found).to(mask.device)
        return scores


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

"""Base classes of models that are fitted in rounds, their data, and the result of a round."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ltr.arrays import Doubles, Floats, Reals
from ltr.boosting.objective import LossObjective
from ltr.data.batches import ItemTensors
from ltr.errors import CheckpointError, DataError, TrainingError
from ltr.knobs import positive_int
from ltr.metrics import Convention
from ltr.training.settings import Settings
from ltr.typing import Features, Loss, Mask, Ranks, Scores

Arrays = Mapping[str, Doubles]  # name -> array


class Importances(NamedTuple):
    """How much the model as a whole uses each feature."""

    gain: Doubles  # [width], in the model's own unit
    splits: Doubles  # [width], how often the feature is used; NaN if unknown


@dataclass(frozen=True)
class FitData:
    """The data that a model is fitted to, and the settings of the fit."""

    train: ItemTensors
    scored: Mapping[str, ItemTensors]  # the splits to evaluate after each round
    settings: Settings  # ``epochs`` is the maximum number of rounds
    loss: Loss | None = None  # the loss to fit; None: the model's own objective
    stop: Callable[[], bool] = lambda: False  # for a library that does all rounds in one call
    convention: Convention = field(default_factory=Convention)  # for a model fitted to a metric

    @property
    def weights(self) -> Floats | None:
        """Weights of train's lists, ``[lists]``, for the model's own objective; None: all equal.

        They are also None if a loss is fitted, because ``objective`` applies the weights then.
        """
        return self.train.weights if self.loss is None else None

    @cached_property
    def objective(self) -> LossObjective | None:
        """The loss in the form that boosting libraries expect; None: the model's own objective."""
        if self.loss is None:
            return None
        return LossObjective(
            self.loss,
            self.train,
            empty=self.settings.empty_lists,
            items=self.settings.evaluation_items,
            seed=self.settings.seed,
        )

    @property
    def weights_of_items(self) -> Floats | None:
        """For each item, ``[items]``, the weight of its list; None: all equal."""
        if self.weights is None:
            return None
        return np.repeat(self.weights, self.train.lengths)


class Round(NamedTuple):
    """The state of a fit after a round, and its scores."""

    scores: Mapping[str, Reals]  # split of FitData.scored -> the scores of its items
    state: Callable[[], Any]  # returns the input of ``RoundModel.restore``, even after more rounds
    columns: dict[str, float]  # columns for the history, such as the number of trees


class RoundModel(nn.Module, ABC):
    """A model that scores each item alone; before the first round every score is 0."""

    title: ClassVar[str]
    makes: ClassVar[str]  # what the rounds make, such as "trees"; a column of the history counts it
    nonfinite_remedy: ClassVar[str] = (  # in messages about scores that are not finite
        "train with transform=standardise, or check the features and labels"
    )
    accepts_losses: ClassVar[bool] = False  # whether it can be fitted to a loss of ltr.losses
    objective: str | None = None  # the objective that the user chose among the model's own
    pointwise = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = positive_int("width", width)

    @abstractmethod
    def rounds(self, data: FitData) -> Iterator[Round]:
        """Yield the state before the first round, and then the state after each round.

        Only ``restore`` changes the model. There may be more rounds than ``data.settings.epochs``;
        the caller stops the iterator.
        """

    @abstractmethod
    def restore(self, content: Any) -> None:
        """Restore the state of a round; raise ``CheckpointError`` if it does not fit the model."""

    @abstractmethod
    def score_items(self, items: Floats) -> Reals:
        """Return the scores, ``[items]``, one for each row of ``items``."""

    @property
    @abstractmethod
    def fitted(self) -> int:
        """The number of fitted parameters; 0 before the first round."""

    @abstractmethod
    def importances(self) -> Importances:
        """Return how much each feature is used; at least one round must have been done."""

    @property
    def description(self) -> str:
        """The model and its version, for messages."""
        return self.title

    def own_objective(self) -> str:
        """Return the name of the objective used if no loss is chosen."""
        return self.title

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Return scores ``[batch, list]``, 0 where ``mask`` is False; ``ranks`` are not used."""
        scores = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
        if self.fitted and bool(mask.any()):
            items = np.ascontiguousarray(features[mask].float().cpu().numpy())
            item_scores = scores_to_float32(self.score_items(items))
            if not np.isfinite(item_scores).all():
                raise TrainingError(f"the model's scores are not finite: {self.nonfinite_remedy}")
            scores[mask] = torch.from_numpy(item_scores).to(mask.device)
        return scores


class ArraysModel(RoundModel, ABC):
    """A model that consists of named arrays of finite float64, empty before the first round."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.content: Arrays = {}

    @abstractmethod
    def is_compatible(self, content: Arrays) -> bool:
        """Return whether ``content`` has the names and shapes of this model."""

    @property
    def fitted(self) -> int:
        return sum(array.size for array in self.content.values())

    def restore(self, content: Arrays | None) -> None:
        if content and not self.is_compatible(content):
            raise CheckpointError(
                f"the saved model does not fit {self.title} with {self.width} features: train again"
            )
        self.content = content or {}

    def get_extra_state(self) -> dict[str, Tensor]:
        """Return the content as tensors."""
        return {name: torch.from_numpy(array.copy()) for name, array in self.content.items()}

    def set_extra_state(self, state: Any) -> None:
        """Restore the result of ``get_extra_state``.

        Raises ``CheckpointError`` if it is anything else.
        """
        tensors = state if isinstance(state, dict) else {"": state}
        if not all(map(_is_finite_tensor, tensors.values())):
            raise CheckpointError("the saved model has values that are not finite: train again")
        arrays = {name: tensor.double().cpu().numpy() for name, tensor in tensors.items()}
        self.restore(arrays)


def _is_finite_tensor(value: Any) -> bool:
    if not isinstance(value, Tensor):
        return False
    if value.nbytes > value.untyped_storage().nbytes():  # a small file could claim much memory
        return False
    return bool(value.isfinite().all())


def scores_to_float32(scores: Reals) -> Floats:
    """Convert ``scores`` to float32; the callers check for infinite results."""
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def finite_features(data: ItemTensors, title: str) -> Floats:
    """Return the features, ``[items, width]``; raise ``DataError`` if a value is missing."""
    features: Floats = data.features.cpu().numpy()
    if not np.isfinite(features).all():
        raise DataError(
            f"a feature has a missing value, but {title} accepts only finite numbers: set "
            "transform.missing=mean, or choose model=lightgbm, xgboost or catboost"
        )
    return features


def check_whole_labels(data: ItemTensors, objective: str, *, largest: int, remedy: str) -> None:
    """Raise ``DataError`` unless all labels are whole numbers from 0 to ``largest``."""
    labels = data.labels.cpu().numpy()
    wrong = labels[(labels != np.floor(labels)) | (labels < 0) | (labels > largest)]
    if len(wrong):
        raise DataError(
            f"{objective} takes whole-number labels from 0 to {largest:g}, but train has the label "
            f"{wrong[0]:g}: {remedy}"
        )

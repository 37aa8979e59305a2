"""Models that are fitted by rounds: what a fit reads, what a round gives, scoring and state."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ltr.arrays import Doubles, Floats, Reals
from ltr.data.batches import ItemTensors
from ltr.errors import CheckpointError, DataError, TrainingError
from ltr.knobs import positive_int
from ltr.metrics import Convention
from ltr.models.rounds.objective import LossObjective
from ltr.training.settings import Settings
from ltr.typing import Features, Loss, Mask, Ranks, Scores

Numbers = Mapping[str, Doubles]


class Importances(NamedTuple):
    """The use of each feature in the whole model."""

    gain: Doubles  # [width], in the model's own unit
    splits: Doubles  # [width], how often it is used; NaN where that is not known


@dataclass(frozen=True)
class FitData:
    """What a model is fitted to, and how."""

    train: ItemTensors
    scored: Mapping[str, ItemTensors]  # the splits of Round.scores
    settings: Settings  # an epoch is a round, at most, after the start
    loss: Loss | None = None  # to fit; None: the model's own objective
    stop: Callable[[], bool] = lambda: False  # asked by a library that does all rounds in one call
    convention: Convention = field(default_factory=Convention)  # of a metric that is fitted

    @property
    def weights(self) -> Floats | None:
        """Of train's lists for the model's own objective, ``[lists]``; None: all the same."""
        return self.train.weights if self.loss is None else None

    @cached_property
    def objective(self) -> LossObjective | None:
        """The loss as boosting libraries take it; None: the model's own objective."""
        if self.loss is None:
            return None
        s = self.settings
        how: Any = {"empty": s.empty_lists, "items": s.evaluation_items, "seed": s.seed}
        return LossObjective(self.loss, self.train, **how)

    @property
    def weights_of_items(self) -> Floats | None:
        """``weights`` of each item's list, ``[items]``."""
        return None if self.weights is None else np.repeat(self.weights, self.train.lengths)


class Round(NamedTuple):
    """What a fit has come to after a round."""

    scores: Mapping[str, Reals]  # of the items of each split of FitData.scored
    state: Callable[[], Any]  # what ``RoundModel.take`` takes; still to be called after more rounds
    columns: dict[str, float]  # of the history; a round that finds nothing may change none


class RoundModel(nn.Module, ABC):
    """A model that scores items one by one; before the first round every score is 0."""

    title: ClassVar[str]
    makes: ClassVar[str]  # what rounds make, in messages
    not_finite: ClassVar[str] = (  # the remedy where scores are not
        "train with transform=standardise, or look at the features and labels of these lists"
    )
    takes_losses: ClassVar[bool] = False  # whether it is fitted to a loss of ltr.losses
    objective: str | None = None  # chosen among its own
    pointwise = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = positive_int("width", width)

    @abstractmethod
    def rounds(self, data: FitData) -> Iterator[Round]:
        """Fit: the start, then all rounds of ``data`` or more; this is not changed."""

    @abstractmethod
    def take(self, content: Any) -> None:
        """Become the state ``content`` of a round; ``CheckpointError`` if it does not fit."""

    @abstractmethod
    def score_items(self, items: Floats) -> Reals:
        """The score of each row of ``items``, ``[items]``."""

    @property
    @abstractmethod
    def fitted(self) -> int:
        """The number of fitted values; 0 before the first round."""

    @abstractmethod
    def importances(self) -> Importances:
        """The use of each feature, after a first round."""

    @property
    def description(self) -> str:
        """The model and its version, in messages."""
        return self.title

    def own_objective(self) -> str:
        """The objective where no loss is chosen."""
        return self.title

    def forward(self, features: Features, mask: Mask, ranks: Ranks | None = None) -> Scores:
        """Scores ``[batch, list]``, 0 where ``mask`` is False; ``ranks`` are not used."""
        scores = torch.zeros(mask.shape, dtype=torch.float32, device=mask.device)
        if self.fitted and bool(mask.any()):
            items = np.ascontiguousarray(features[mask].float().cpu().numpy())
            found = single(self.score_items(items))
            if not np.isfinite(found).all():
                raise TrainingError(f"the {self.makes}' scores are not finite: {self.not_finite}")
            scores[mask] = torch.from_numpy(found).to(mask.device)
        return scores


class NumbersModel(RoundModel, ABC):
    """A model whose content is named arrays of finite float64; none before the first round."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.content: Numbers = {}

    @abstractmethod
    def fits(self, content: Numbers) -> bool:
        """Whether ``content`` has the names and shapes of this model."""

    @property
    def fitted(self) -> int:
        return sum(array.size for array in self.content.values())

    def take(self, content: Numbers | None) -> None:
        if content and not self.fits(content):
            raise CheckpointError(
                f"the {self.makes} kept are not those of a {self.title} of {self.width} features: "
                "train again"
            )
        self.content = content or {}

    def get_extra_state(self) -> dict[str, Tensor]:
        """The content as tensors."""
        return {name: torch.from_numpy(array.copy()) for name, array in self.content.items()}

    def set_extra_state(self, state: Any) -> None:
        """Take what ``get_extra_state`` returned; ``CheckpointError`` if it is not that."""
        tensors = state if isinstance(state, dict) else {"": state}
        if not all(
            isinstance(one, Tensor)
            and one.nbytes <= one.untyped_storage().nbytes()  # or a small file asks for memory
            and bool(one.isfinite().all())
            for one in tensors.values()
        ):
            raise CheckpointError(f"the {self.makes} kept are no finite numbers: train again")
        self.take({name: one.double().cpu().numpy() for name, one in tensors.items()})


def single(scores: Reals) -> Floats:
    """``scores`` as float32; too large ones become infinite, which the caller checks."""
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def finite_features(data: ItemTensors, title: str) -> Floats:
    """The features of ``data``, ``[items, width]``; ``DataError`` if one is not finite."""
    features: Floats = data.features.cpu().numpy()
    if not np.isfinite(features).all():
        raise DataError(
            f"a feature is missing or not finite, and {title} reads numbers alone: set "
            "transform.missing=mean, or choose model=lightgbm, xgboost or catboost"
        )
    return features


def check_whole_labels(data: ItemTensors, what: str, *, most: int, instead: str) -> None:
    """Raise ``DataError`` unless all labels are whole numbers from 0 to ``most``."""
    labels = data.labels.cpu().numpy()
    wrong = labels[(labels != np.floor(labels)) | (labels < 0) | (labels > most)]
    if len(wrong):
        raise DataError(
            f"{what} takes whole labels from 0 to {most:g}, train has {wrong[0]:g}: {instead}"
        )

"""Models by rounds whose state is plain numbers: what a fit and a checkpoint hold of them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ltr.data.batches import ItemTensors
from ltr.errors import CheckpointError, DataError
from ltr.models.rounds.model import FitData, Importances, Round, RoundModel, single

Numbers = Mapping[str, NDArray[np.float64]]


class NumbersModel(RoundModel, ABC):
    """A model whose content is named arrays of finite float64; none before the first round."""

    kind = "AdaRank, PRank and RankBoost"

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
        content = content or {}
        if content and not self.fits(content):
            raise CheckpointError(
                f"the {self.makes} kept are not those of a {self.title} of {self.width} features: "
                "train again"
            )
        self.content = content

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


class ChosenFeatures(NumbersModel):
    """A sum of weak rankers, each of one feature: arrays ``names``, ``[rankers]`` each.

    The first is ``features``, 0-based, the last ``alphas``, the weights.
    """

    makes = "rankers"
    names: ClassVar[tuple[str, ...]]

    def start(
        self, data: FitData
    ) -> tuple[dict[str, NDArray[np.float32]], dict[str, NDArray[np.float64]]]:
        """Features and scores of the items of every split: ``[items, width]``, ``[items]`` of 0."""
        splits = {**data.scored, "train": data.train}
        items = {split: finite_features(part, self.title) for split, part in splits.items()}
        return items, {split: np.zeros(len(rows)) for split, rows in items.items()}

    def round(
        self,
        data: FitData,
        chosen: Sequence[tuple[float, ...]],
        scores: Mapping[str, NDArray[np.float64]],
    ) -> Round:
        """The round after which ``chosen`` are the rankers, the numbers of ``names`` of each."""
        count = len(chosen)
        columns: dict[str, float] = {self.makes: count}
        if chosen:
            names = (name.removesuffix("s") for name in self.names)
            columns |= dict(zip(names, chosen[-1], strict=True))
            columns["feature"] += 1  # as people count them

        def state() -> Numbers | None:
            arrays = np.array(chosen[:count], np.float64).T
            return dict(zip(self.names, arrays.copy(), strict=True)) if count else None

        return Round({split: single(scores[split]) for split in data.scored}, state, columns)

    def fits(self, content: Numbers) -> bool:
        if set(content) != set(self.names):
            return False
        features = content["features"]
        return (
            features.ndim == 1
            and all(array.shape == features.shape for array in content.values())
            and bool(np.isin(features, np.arange(self.width)).all())
        )

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum over rankers of ``values`` for each feature, ``[width]``."""
        features = self.content["features"].astype(int)
        return np.bincount(features, values, self.width).astype(np.float64)

    def importances(self) -> Importances:
        """The sum of |alpha| of each feature, and how often it was chosen."""
        if not self.content:
            return Importances(np.zeros(self.width), np.zeros(self.width))
        alphas = np.abs(self.content["alphas"])
        return Importances(self.sums(alphas), self.sums(np.ones_like(alphas)))


def finite_features(data: ItemTensors, title: str) -> NDArray[np.float32]:
    """The features of ``data``, ``[items, width]``; ``DataError`` if one is not finite."""
    features: NDArray[np.float32] = data.features.cpu().numpy()
    if not np.isfinite(features).all():
        raise DataError(
            f"a feature is missing or not finite, and {title} reads numbers alone: set "
            "transform.missing=mean, or choose model=lightgbm, xgboost or catboost"
        )
    return features

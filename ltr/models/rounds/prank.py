"""PRank: perceptrons for grades; with kernels, with a margin, and averaged over many."""

import itertools
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ltr.errors import CheckpointError, ConfigError, DataError
from ltr.knobs import check_positive, positive_int
from ltr.models.rounds.model import (
    FitData,
    Importances,
    Numbers,
    NumbersModel,
    Round,
    check_whole_labels,
    finite_features,
    single,
)

KERNELS = ("polynomial", "rbf")
_VALUES = 1 << 22  # numbers in a block of rows: 32 MB
_MOST_GRADES = 1000


class PRank(NumbersModel):
    """PRank (Crammer and Singer, 2001): one direction w and thresholds b_1 <= ... <= b_{K-1}.

    A round is a pass over the items of train in a random order. An item of grade y with
    b_y <= w.x < b_{y+1} (b_0 = -inf, b_K = inf) changes nothing; for any other w and the thresholds
    on the wrong side of w.x move by one step towards it, which keeps the thresholds in order.
    The score is w.x. A list of items does not matter to it, a grade does.

    Args:
        kernel: None, or w in the space of ``"polynomial"``, (gamma x.z + offset)^degree, or of
            ``"rbf"``, exp(-gamma |x - z|^2). A pass then compares each pair of items.
        degree, offset: of ``"polynomial"``.
        gamma: None: 1 / width.
        margin: an item also changes the model where w.x is within this distance of a threshold, in
            units of w.x: the perceptron with margins (Krauth and Mezard, 1987), of which the fixed
            margin of Shashua and Levin (2002) is the batch form. 0: the paper's.
        average: whether a model is its mean over all steps so far (averaged perceptron), or as it
            is after the last one.
        members: so many perceptrons are averaged, each of which visits
        share: of the items, drawn anew in every pass. Several with 0.3, say, are OAP-BPM
            (Harrington, 2003), near the Bayes point: the large-margin PRank of the RankNet paper.

    Raises:
        ConfigError: a knob is out of its range.
    """

    title = "PRank"
    makes = "passes"

    def __init__(
        self,
        width: int,
        *,
        kernel: str | None = None,
        degree: int = 2,
        gamma: float | None = None,
        offset: float = 1.0,
        margin: float = 0.0,
        average: bool = True,
        members: int = 1,
        share: float = 1.0,
    ) -> None:
        super().__init__(width)
        if kernel not in (None, *KERNELS):
            raise ConfigError(f"model.kernel={kernel}: choose null, {' or '.join(KERNELS)}")
        for name, value in {"gamma": gamma, "offset": offset, "margin": margin}.items():
            if value is not None and (name == "gamma" or value != 0):
                check_positive(f"model.{name}", value)
        if not 0 < share <= 1:
            raise ConfigError(f"model.share={share}: give a share of the items > 0, at most 1")
        self.kernel, self.offset = kernel, float(offset)
        self.degree = positive_int("model.degree", degree)
        self.gamma = 1 / width if gamma is None else float(gamma)
        self.margin, self.average, self.share = float(margin), average, float(share)
        self.members = positive_int("model.members", members)

    def rounds(self, data: FitData) -> Iterator[Round]:
        from ltr.kernels.prank import prank_pass  # not at the top: half a second

        instead = "grade these labels, or choose a loss that takes any, such as loss=rmse"
        check_whole_labels(data.train, "PRank", most=_MOST_GRADES - 1, instead=instead)
        if data.weights is not None:
            raise DataError("PRank takes no weights of lists: leave them out")
        items = finite_features(data.train, "PRank").astype(np.float64)
        scored = {split: finite_features(part, "PRank") for split, part in data.scored.items()}
        grades = data.train.labels.cpu().numpy().astype(np.int64)
        size = self.width if self.kernel is None else len(items)
        # of each member; ``moves`` are what the means over all steps need
        states, state_moves = np.zeros((2, self.members, size))
        thresholds, threshold_moves = np.zeros((2, self.members, int(grades.max())))
        steps = np.zeros((self.members, 1), np.int64)
        random = np.random.default_rng(data.seed)
        zeros = {split: np.zeros(len(rows), np.float32) for split, rows in scored.items()}
        yield Round(zeros, lambda: None, {self.makes: 0})
        for passes in itertools.count(1):
            changes = 0
            for one in range(self.members):
                visited = random.permutation(len(items))
                if self.share < 1:
                    visited = visited[random.random(len(visited)) < self.share]
                for part in blocks(len(visited), size):
                    places = visited[part]
                    rows = items[places]
                    if self.kernel is not None:
                        rows = self.kernels(rows, items)
                    changes += prank_pass(
                        rows, places, grades[places], self.kernel is not None, self.margin,
                        int(steps[one, 0]), states[one], thresholds[one], state_moves[one],
                        threshold_moves[one],
                    )  # fmt: skip
                    steps[one] += len(places)
            share = self.average / np.maximum(steps, 1)  # of a step
            state = (states - share * state_moves).mean(axis=0)
            content = {"weights": state}
            if self.kernel is not None:
                used = np.flatnonzero(state)
                content = {"coefficients": state[used], "items": items[used]}
            content["thresholds"] = (thresholds - share * threshold_moves).mean(axis=0)
            scores = {s: single(self.scores_with(content, rows)) for s, rows in scored.items()}
            yield Round(scores, partial(dict, content), {self.makes: passes, "changes": changes})

    def fits(self, content: Numbers) -> bool:
        count = content.get("coefficients", np.zeros(())).shape
        shapes = {"weights": (self.width,)}
        if self.kernel is not None:
            shapes = {"coefficients": count, "items": (*count, self.width)}
        own = {name: array.shape for name, array in content.items()}
        thresholds = own.pop("thresholds", ())
        return len(thresholds) == 1 and own == shapes and (self.kernel is None or len(count) == 1)

    def score_items(self, items: NDArray[np.float32]) -> NDArray[np.floating]:
        return self.scores_with(self.content, items)

    def linear_weights(self) -> NDArray[np.float64]:
        """The weight of each feature, ``[width]``; only without a kernel."""
        return self.content["weights"]

    def scores_with(self, content: Numbers, items: NDArray[np.float32]) -> NDArray[np.floating]:
        """As ``score_items`` of a model with ``content``."""
        if self.kernel is None:
            return items.astype(np.float64) @ content["weights"]
        known, scores = content["items"], np.empty(len(items))
        for rows in blocks(len(items), len(known)):
            kernels = self.kernels(items[rows].astype(np.float64), known)
            scores[rows] = kernels @ content["coefficients"]
        return scores

    def kernels(
        self, items: NDArray[np.float64], others: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The kernel of each of ``items`` with each of ``others``, ``[items, others]``."""
        products = items @ others.T
        if self.kernel == "polynomial":
            return (self.gamma * products + self.offset) ** self.degree
        squares = np.square(items).sum(1)[:, None] + np.square(others).sum(1) - 2 * products
        return np.exp(-self.gamma * squares)

    def importances(self) -> Importances:
        """|w| of each feature; a kernel has none."""
        if self.kernel is not None:
            raise CheckpointError(
                f"PRank with model.kernel={self.kernel} has no weight for each feature"
            )
        weights = np.abs(self.content.get("weights", np.zeros(self.width)))
        return Importances(weights, np.full(self.width, np.nan))


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of ``rows`` such that a block by ``columns`` stays small."""
    size = max(1, _VALUES // max(1, columns))
    return (slice(start, start + size) for start in range(0, rows, size))

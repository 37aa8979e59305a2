"""What ranks the items of a list: their features, the other items, and features on the metric."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from ltr.data.batches import ItemTensors
from ltr.data.lists import Lists
from ltr.errors import ConfigError, install
from ltr.inference.explain.subject import Subject
from ltr.models.embeddings import WithEmbeddings
from ltr.models.rounds import BoostedTrees, CatBoost, RoundModel, XGBoost
from ltr.models.rounds.catboost import with_categories
from ltr.scorers.ensemble import Ensemble
from ltr.training.evaluation import metrics_of_scores, ranks_of
from ltr.training.hooks import progress_bar

Doubles = NDArray[np.float64]
ALPHA = 0.05
_STEPS = (32, 64, 128, 256, 512)  # of a path, until the sum is that of the scores
_CLOSE = 1e-3  # of the way from the baseline's score


class Attributions(NamedTuple):
    """The parts of the scores of some items, which with the baseline add up to them."""

    method: str  # in words, with what the baseline is
    values: Doubles  # [items, features], what an item's own features add to its score
    # [items, list], what the features of each other item of the list add to it, 0 for itself; None:
    # the model scores items one by one
    others: Doubles | None
    baseline: Doubles  # [items]
    scores: Doubles  # [items], that the parts should add up to

    @property
    def error(self) -> float:
        """The largest difference of baseline plus all parts from the score, of any item."""
        others = 0.0 if self.others is None else self.others.sum(-1)
        return float(np.abs(self.baseline + self.values.sum(-1) + others - self.scores).max())


def attributions_of(subject: Subject, *, items: int = 32768) -> Attributions | None:
    """The parts of the scores of ``subject.items``; None: the model has no such parts.

    ``items`` bounds the padded items of a batch. Of trees they are the SHAP values of the library's
    own method (Lundberg et al., 2020, TreeSHAP).

    Raises:
        ConfigError: Captum is not installed.
    """
    model = subject.scorer.model
    if isinstance(model, BoostedTrees):
        rows = np.ascontiguousarray(subject.data.features[subject.items].cpu().numpy())
        parts = np.zeros((len(rows), model.width + 1))  # the expected score is the last
        if model.content:
            booster, module = model.load(model.content), model.module
            if isinstance(model, CatBoost):
                table = with_categories(rows, model.categories)
                pool = module.Pool(table, cat_features=model.categories or None)
                parts = booster.get_feature_importance(pool, type="ShapValues")
            elif isinstance(model, XGBoost):
                kinds = ["c" if i in model.categories else "q" for i in range(model.width)]
                given = module.DMatrix(rows, feature_types=kinds, enable_categorical=True)
                parts = booster.predict(given, pred_contribs=True)
            else:
                parts = booster.predict(rows, pred_contrib=True)
            parts = np.asarray(parts, np.float64)
        method = f"SHAP values of {model.title}'s own method; the baseline is its expected score"
        scores = subject.scores[subject.items].astype(np.float64)
        return Attributions(method, parts[:, :-1], None, parts[:, -1], scores)
    if isinstance(model, (Ensemble, RoundModel)):
        return None
    return _integrated_gradients(subject, model, items)


def _integrated_gradients(subject: Subject, model: nn.Module, items: int) -> Attributions:
    """Integrated gradients (Sundararajan et al., 2017) from the mean item of the list.

    At the baseline every item of the list is the mean of its items, so that all tie; of a category
    it has the mean of the learned vectors. A list-aware score has parts of the other items'
    features too.
    """
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise ConfigError(
            f"explaining a network needs captum, which does not load here ({error}): "
            f"{install('explain')}"
        ) from error
    features, transform = subject.data.features[None], subject.scorer.transform  # [1, list, column]
    column_of = np.concatenate([np.arange(transform.width), transform.indicated])
    if isinstance(model, WithEmbeddings):
        with torch.no_grad():
            features = model.inputs(features, torch.ones_like(features[..., 0], dtype=torch.bool))
        column_of, model = column_of[model.columns.cpu().numpy()], model.model
    baseline = features.mean(1, keepdim=True).expand_as(features).clone()
    size = features.shape[1]
    places = torch.arange(1, size + 1, device=features.device)

    def scores_of(given: Tensor) -> Tensor:
        mask = torch.ones(given.shape[:2], dtype=torch.bool, device=given.device)
        return model(given, mask, places.expand(len(given), -1)).float()

    model.requires_grad_(False)
    method, batch = IntegratedGradients(scores_of), max(1, items // size)
    start, end = (scores_of(one)[0].double().cpu().numpy() for one in (baseline, features))
    parts = []
    for item, away in zip(subject.items.tolist(), (end - start)[subject.items], strict=True):
        for steps in _STEPS:
            found = method.attribute(
                features, baseline, target=item, n_steps=steps, internal_batch_size=batch
            )[0].double()
            if abs(float(found.sum()) - away) <= _CLOSE * abs(away):
                break
        parts.append(found.cpu().numpy())
    whole = np.stack(parts) @ np.eye(transform.width)[column_of]  # [items, list, feature]
    rows, others = np.arange(len(whole)), whole.sum(-1)
    others[rows, subject.items] = 0.0
    return Attributions(
        "integrated gradients of Captum; at the baseline every item is the list's mean item",
        whole[rows, subject.items],
        None if subject.pointwise else others,
        start[subject.items],
        end[subject.items],
    )


class Effects(NamedTuple):
    """Of each item of a list that is left out, one at a time."""

    # [items, list], the score of an item without another less that with it; NaN of the item itself
    scores: Doubles
    # [items, list], how many places it stands higher without the other than the gap alone explains:
    # its score against that of the rest has changed; 0 of the item itself
    places: NDArray[np.int64]


def leave_one_out(subject: Subject, *, items: int = 32768) -> Effects:
    """Score the list without each of its items, for ``subject.items``.

    ``items`` bounds the padded items of a batch.
    """
    size, lists = len(subject.scores), subject.lists
    found, features = np.full((size, size), np.nan), lists.features[subject.rows]  # [out, item]
    at_a_time = max(1, items // size)
    for first in range(0, size if size > 1 else 0, at_a_time):
        out = np.arange(first, min(size, first + at_a_time))
        rest = np.array([np.delete(np.arange(size), j) for j in out])  # in their order
        offsets = np.arange(0, rest.size + 1, size - 1)
        labels, qids = np.zeros(rest.size, np.float32), out.astype(str)
        without = Lists(features[rest.ravel()], labels, offsets, qids, columns=lists.columns)
        scores = subject.scorer.scores(without, items=items).cpu().numpy()
        found[out[:, None], rest] = scores.reshape(rest.shape)
    places = np.stack([ranks_of(row, np.array([0, size])) for row in found])  # left out: the last
    gap = subject.ranks - (subject.ranks > subject.ranks[:, None])
    moved = np.where(np.eye(size, dtype=bool), 0, gap - places)
    changed = found - subject.scores.astype(np.float64)
    return Effects(changed.T[subject.items], moved.T[subject.items])


def permutation_importance(
    subject: Subject, *, lists: int, seed: int = 0, items: int = 32768
) -> pd.DataFrame:
    """The drop of ``subject.metric`` for each feature, mean and interval over lists.

    A feature's values are shuffled within each list, by one draw for all features (Breiman, 2001,
    "Random forests", section 10, for a metric of lists). A feature that is the same for all items
    of a list, as one of the query, loses nothing.

    ``seed`` draws the shuffles and at most ``lists`` of the split; ``items`` bounds the padded
    items of a batch.

    Returns:
        Columns feature, name, drop, low, high, the largest drop first; low and high are the
        interval of 95% (Student's t over lists).
    """
    rng, count = np.random.default_rng([seed, *b"permutation"]), len(subject.lists)
    part = subject.lists.subset(np.sort(rng.choice(count, min(lists, count), replace=False)))
    scorer, transform = subject.scorer, subject.scorer.transform
    data = ItemTensors(part, transform, subject.data.device, mapped=False)
    of_item = np.repeat(np.arange(len(part)), part.lengths)
    shuffled = torch.from_numpy(np.lexsort([rng.random(part.items), of_item])).to(data.device)

    def values() -> Doubles:
        scores = scorer.scores(data, items=items)
        metric, convention = subject.metric, subject.convention
        return metrics_of_scores(data, scores, [metric], convention, items=items)[str(metric)]

    whole, rows = values(), []
    for feature, name in enumerate(progress_bar(iterable=subject.features, desc="shuffled")):
        columns = [feature, *(transform.width + np.flatnonzero(transform.indicated == feature))]
        before = data.features[:, columns].clone()
        data.features[:, columns] = before[shuffled]
        drops = pd.Series(whole - values()).dropna()
        data.features[:, columns] = before
        # one list says nothing of others: NaN
        reach = stats.t.ppf(1 - ALPHA / 2, max(len(drops) - 1, 1)) * drops.sem()
        mean = drops.mean()
        rows.append([feature + 1, name, mean, mean - reach, mean + reach])
    table = pd.DataFrame(rows, columns=["feature", "name", "drop", "low", "high"])
    return table.sort_values("drop", ascending=False, kind="stable")

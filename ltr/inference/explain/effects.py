"""Compute what affects the scores of a list's items: their features, and the other items."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ltr.arrays import Doubles
from ltr.data.lists import Lists
from ltr.errors import need
from ltr.inference.explain.subject import Subject
from ltr.models.embeddings import WithEmbeddings
from ltr.models.rounds import BoostedTrees, CatBoost, RoundModel, XGBoost
from ltr.models.rounds.catboost import with_categories
from ltr.scorers.ensemble import Ensemble

_STEPS = 256  # steps on the path from the baseline


class Attributions(NamedTuple):
    """Scores of some items, split into a baseline and parts that add up to the score."""

    method: str  # the method and its baseline in words
    values: Doubles  # [items, features], what an item's own features add to its score
    others: Doubles  # [items], what the features of the other items in the list add to its score
    baseline: Doubles  # [items]

    @property
    def sums(self) -> Doubles:
        """The sum of baseline and all parts, ``[items]``, which is (nearly) the score."""
        return self.baseline + self.values.sum(-1) + self.others


def attributions_of(subject: Subject, *, items: int = 32768) -> Attributions | None:
    """Split the scores of ``subject.items`` into parts from their features; None without a method.

    For boosted trees, the parts are the SHAP values that the tree library computes (Lundberg et
    al., 2020, TreeSHAP). For networks, they are integrated gradients, with at most ``items`` items
    in a batch, including padding.

    Raises:
        ConfigError: Captum is not installed.
    """
    model = subject.scorer.model
    if isinstance(model, BoostedTrees):
        rows = np.ascontiguousarray(subject.data.features[subject.items].cpu().numpy())
        parts = np.zeros((len(rows), model.width + 1))  # last column: the expected score
        booster, module = model.booster, model.module
        if isinstance(model, CatBoost) and booster:
            table = with_categories(rows, model.categories)
            pool = module.Pool(table, cat_features=model.categories or None)
            parts = booster.get_feature_importance(pool, type="ShapValues")
        elif isinstance(model, XGBoost) and booster:
            kinds = ["c" if i in model.categories else "q" for i in range(model.width)]
            given = module.DMatrix(rows, feature_types=kinds, enable_categorical=True)
            parts = booster.predict(given, pred_contribs=True).astype(np.float64)
        elif booster:
            parts = booster.predict(rows, pred_contrib=True)
        method = f"SHAP values of {model.title}'s own method; the baseline is its expected score"
        return Attributions(method, parts[:, :-1], np.zeros(len(rows)), parts[:, -1])
    if isinstance(model, (Ensemble, RoundModel)):
        return None
    return _integrated_gradients(subject, model, items)


def _integrated_gradients(subject: Subject, model: nn.Module, items: int) -> Attributions:
    """Compute integrated gradients (Sundararajan et al., 2017) from the mean item of the list.

    At the baseline, every item of the list is replaced by the mean of the list's items, so that all
    items are equal. For a category this is the mean of the learned vectors. In a list-aware model,
    the features of other items have parts in a score too.
    """
    captum = need("captum.attr", "explain")
    features, transform = subject.data.features[None], subject.scorer.transform  # [1, list, column]
    column_of = np.concatenate([np.arange(transform.width), transform.indicated])
    if isinstance(model, WithEmbeddings):
        with torch.no_grad():
            features = model.inputs(features, torch.ones_like(features[..., 0], dtype=torch.bool))
        column_of, model = column_of[model.columns.cpu().numpy()], model.model
    baseline = features.mean(1, keepdim=True).expand_as(features).clone()
    size, targets = features.shape[1], subject.items
    places = torch.arange(1, size + 1, device=features.device)

    def scores_of(given: Tensor) -> Tensor:
        mask = torch.ones(given.shape[:2], dtype=torch.bool, device=given.device)
        return model(given, mask, places.expand(len(given), -1)).float()

    model.requires_grad_(False)
    method, batch = captum.IntegratedGradients(scores_of), max(1, items // size)
    knobs = {"n_steps": _STEPS, "internal_batch_size": batch}
    parts = [method.attribute(features, baseline, target=i, **knobs)[0] for i in targets.tolist()]
    # [items, list, feature]
    whole = torch.stack(parts).double().cpu().numpy() @ np.eye(transform.width)[column_of]
    own = whole[np.arange(len(whole)), targets]
    return Attributions(
        "integrated gradients of Captum; at the baseline every item is the list's mean item; where "
        "the model's output is saturated (tanh, sigmoid), scores and parts differ by very little",
        own,
        whole.sum((1, 2)) - own.sum(-1),
        scores_of(baseline)[0, targets].double().cpu().numpy(),
    )


def leave_one_out(subject: Subject, *, items: int = 32768) -> Doubles:
    """Compute how the scores of ``subject.items`` change if one other item is left out of the list.

    Return ``[items, list]``, the score without an item minus the score with it; NaN for the item
    itself. A batch has at most ``items`` items, including padding; the list needs at least two.
    """
    size, lists = len(subject.scores), subject.lists
    found = np.full((size, size), np.nan)  # [out, item]
    at_a_time = max(1, items // size)
    for first in range(0, size, at_a_time):
        out = np.arange(first, min(size, first + at_a_time))
        rest = np.array([np.delete(np.arange(size), j) for j in out])  # in the list's order
        offsets = np.arange(0, rest.size + 1, size - 1)
        labels, qids = np.zeros(rest.size, np.float32), out.astype(str)
        without = Lists(lists.features[rest.ravel()], labels, offsets, qids, columns=lists.columns)
        scores = subject.scorer.scores(without, items=items).cpu().numpy()
        found[out[:, None], rest] = scores.reshape(rest.shape)
    return (found - subject.scores.astype(np.float64)).T[subject.items]

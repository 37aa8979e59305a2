"""Compute how features and other items affect the scores of a list's items."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ltr.arrays import Doubles
from ltr.boosting import BoostedTrees, CatBoost, RoundModel, XGBoost
from ltr.boosting.catboost import with_categories
from ltr.data.lists import Lists
from ltr.errors import need
from ltr.inference.explain.subject import ExplainedList
from ltr.models.embeddings import WithEmbeddings
from ltr.parts.ensemble import Ensemble

_STEPS = 256  # steps on the path from the baseline


class Attributions(NamedTuple):
    """Scores of some items, each split into a baseline and parts that add up to the score."""

    method: str  # the method and its baseline in words
    values: Doubles  # [items, features], the parts of an item's own features
    other_items: Doubles  # [items], the parts of the features of the list's other items, summed
    baseline: Doubles  # [items]

    @property
    def sums(self) -> Doubles:
        """The sum of the baseline and all parts, ``[items]``, which nearly equals the score."""
        return self.baseline + self.values.sum(-1) + self.other_items


def attribute_scores(explained: ExplainedList, *, items: int = 32768) -> Attributions | None:
    """Split the scores of the explained items into parts that belong to features.

    For boosted trees, the parts are the SHAP values that the tree library computes (TreeSHAP,
    Lundberg et al., 2020). For networks, the parts are integrated gradients (Sundararajan et al.,
    2017).

    Args:
        explained: the list, its model, and the items to explain.
        items: the maximum number of items in a batch, including padding.

    Returns:
        The parts; None for ensembles, AdaRank, PRank and RankBoost, whose scores cannot be split.

    Raises:
        ConfigError: Captum is not installed.
    """
    model = explained.scorer.model
    if isinstance(model, BoostedTrees):
        return _shap_values(explained, model)
    if isinstance(model, (Ensemble, RoundModel)):
        return None
    return _integrated_gradients(explained, model, items)


def _shap_values(explained: ExplainedList, model: BoostedTrees) -> Attributions:
    """Return the SHAP values that the tree library computes."""
    rows = np.ascontiguousarray(explained.tensors.features[explained.items].cpu().numpy())
    values = np.zeros((len(rows), model.width + 1))  # last column: the expected score
    booster = model.booster
    module = model.module
    if isinstance(model, CatBoost) and booster:
        table = with_categories(rows, model.categories)
        pool = module.Pool(table, cat_features=model.categories or None)
        values = booster.get_feature_importance(pool, type="ShapValues")
    elif isinstance(model, XGBoost) and booster:
        kinds = ["c" if column in model.categories else "q" for column in range(model.width)]
        matrix = module.DMatrix(rows, feature_types=kinds, enable_categorical=True)
        values = booster.predict(matrix, pred_contribs=True).astype(np.float64)
    elif booster:
        values = booster.predict(rows, pred_contrib=True)
    method = f"SHAP values of {model.title}'s own method; the baseline is its expected score"
    return Attributions(method, values[:, :-1], np.zeros(len(rows)), values[:, -1])


def _integrated_gradients(explained: ExplainedList, model: nn.Module, items: int) -> Attributions:
    """Compute integrated gradients (Sundararajan et al., 2017) from the mean item of the list.

    At the baseline, every item of the list is replaced by the mean of the list's items; a category
    is replaced by the mean of the learned vectors. All items are then equal. If a model sees the
    whole list, the features of other items are also given parts of a score.
    """
    captum = need("captum.attr", "explain")
    transform = explained.scorer.transform
    features = explained.tensors.features[None]  # [1, list, column]
    raw_columns = np.concatenate([np.arange(transform.width), transform.indicated])
    if isinstance(model, WithEmbeddings):
        with torch.no_grad():
            features = model.inputs(features, torch.ones_like(features[..., 0], dtype=torch.bool))
        raw_columns = raw_columns[model.columns.cpu().numpy()]
        model = model.model
    baseline = features.mean(1, keepdim=True).expand_as(features).clone()
    list_size = features.shape[1]
    targets = explained.items
    ranks = torch.arange(1, list_size + 1, device=features.device)

    def score(inputs: Tensor) -> Tensor:
        mask = torch.ones(inputs.shape[:2], dtype=torch.bool, device=inputs.device)
        return model(inputs, mask, ranks.expand(len(inputs), -1)).float()

    model.requires_grad_(False)
    method = captum.IntegratedGradients(score)
    settings = {"n_steps": _STEPS, "internal_batch_size": max(1, items // list_size)}
    gradients = [
        method.attribute(features, baseline, target=target, **settings)[0]
        for target in targets.tolist()
    ]
    column_values = torch.stack(gradients).double().cpu().numpy()
    values = column_values @ np.eye(transform.width)[raw_columns]  # [items, list, feature]
    item_values = values[np.arange(len(values)), targets]
    return Attributions(
        "integrated gradients of Captum; at the baseline, every item is the mean item of the list; "
        "if the model's output is saturated (tanh, sigmoid), scores and parts differ very little",
        item_values,
        values.sum((1, 2)) - item_values.sum(-1),
        score(baseline)[0, targets].double().cpu().numpy(),
    )


def leave_one_out(explained: ExplainedList, *, items: int = 32768) -> Doubles:
    """Compute how the scores of the explained items change if another item is left out of the list.

    Args:
        explained: the list, which must have at least two items, its model, and the items to
            explain.
        items: the maximum number of items in a batch, including padding.

    Returns:
        The scores without another item of the list minus the scores with it, ``[items, list]``; NaN
        where the other item is the explained item itself.
    """
    size = len(explained.scores)
    lists = explained.lists
    scores_without = np.full((size, size), np.nan)  # [left out, item]
    batch_size = max(1, items // size)
    for first in range(0, size, batch_size):
        left_out = np.arange(first, min(size, first + batch_size))
        remaining = np.array([np.delete(np.arange(size), item) for item in left_out])  # in order
        shortened = Lists(
            lists.features[remaining.ravel()],
            labels=np.zeros(remaining.size, np.float32),
            offsets=np.arange(0, remaining.size + 1, size - 1),
            qids=left_out.astype(str),
            columns=lists.columns,
        )
        scores = explained.scorer.scores(shortened, items=items).cpu().numpy()
        scores_without[left_out[:, None], remaining] = scores.reshape(remaining.shape)
    return (scores_without - explained.scores.astype(np.float64)).T[explained.items]

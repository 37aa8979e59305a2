"""What each feature adds to the score of an item: exact for trees, by integrated gradients else."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ltr.errors import ConfigError, install
from ltr.inference.explain.subject import Subject
from ltr.models.embeddings import WithEmbeddings
from ltr.models.rounds import BoostedTrees, CatBoost, RoundModel, XGBoost
from ltr.models.rounds.catboost import with_categories
from ltr.scorers.ensemble import Ensemble

Doubles = NDArray[np.float64]
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

    ``items`` bounds the padded items of a batch.

    Raises:
        ConfigError: Captum is not installed.
    """
    model = subject.scorer.model
    if isinstance(model, BoostedTrees):
        rows = np.ascontiguousarray(subject.data.features[subject.items].cpu().numpy())
        parts = _shap(model, rows) if model.content else np.zeros((len(rows), model.width + 1))
        method = f"SHAP values of {model.title}'s own method; the baseline is its expected score"
        scores = subject.scores[subject.items].astype(np.float64)
        return Attributions(method, parts[:, :-1], None, parts[:, -1], scores)
    if isinstance(model, (Ensemble, RoundModel)):
        return None
    return _integrated_gradients(subject, model, items)


def _shap(model: BoostedTrees, items: NDArray[np.float32]) -> Doubles:
    """SHAP values of trees by the library's own method (Lundberg et al., 2020, TreeSHAP).

    ``[items, features + 1]``, the expected score last.
    """
    booster, module = model.load(model.content), model.module
    if isinstance(model, CatBoost):
        table = with_categories(items, model.categories)
        pool = module.Pool(table, cat_features=model.categories or None)
        parts = booster.get_feature_importance(pool, type="ShapValues")
    elif isinstance(model, XGBoost):
        kinds = ["c" if i in model.categories else "q" for i in range(model.width)]
        given = module.DMatrix(items, feature_types=kinds, enable_categorical=True)
        parts = booster.predict(given, pred_contribs=True)
    else:
        parts = booster.predict(items, pred_contrib=True)
    return np.asarray(parts, np.float64)


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

"""Check whether a search engine can represent a model; the check also works before training."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from torch import nn

from ltr.boosting import AdaRank, BoostedTrees, PRank, RankBoost
from ltr.data.transforms import LOG, QUANTILE, SIGNED_LOG, FeatureTransform
from ltr.errors import ConfigError
from ltr.models import MLP
from ltr.models.embeddings import WithEmbeddings
from ltr.models.layers import ACTIVATIONS
from ltr.parts.ensemble import Ensemble

LUCENE = ("elasticsearch", "opensearch")  # their scores must not be negative
_ENGINE_FORMATS = ("solr", "ranklib", *LUCENE)
_BY_ITEM = (*_ENGINE_FORMATS, "vespa")  # they score one document at a time
ENGINES = ("onnx", *_BY_ITEM, "native")
_ACTIVATIONS = ("relu", "leaky_relu", "sigmoid", "tanh")  # the activations that Solr has
_NAMES = {kind: name for name, kind in ACTIVATIONS.items()}


def check_engine(
    engine: str | None,
    model: nn.Module,
    transform: FeatureTransform | None = None,
    missing: int = 0,
) -> None:
    """Raise ``ConfigError``, with reasons and remedies, if ``engine`` cannot represent ``model``.

    Args:
        engine: one of ``ENGINES``; if None, nothing is checked.
        model: the model.
        transform: the transform of its features; None if it is not fitted yet.
        missing: the number of missing values in the lists.
    """
    if engine is None:
        return
    if engine not in ENGINES:
        raise ConfigError(f"to={engine}: choose one of {', '.join(ENGINES)}")
    reasons = dict.fromkeys(_reasons(engine, model, transform, missing))
    if reasons:
        raise ConfigError("; ".join(f"to={engine}: {reason}" for reason in reasons))


def is_dense(model: nn.Module) -> bool:
    """Return whether the model is linear in the transformed features, or has only dense layers."""
    return isinstance(model, MLP | AdaRank | PRank)


def _reasons(
    engine: str, model: nn.Module, transform: FeatureTransform | None, missing: int
) -> Iterator[str]:
    """Yield the reasons why ``engine`` cannot represent ``model``, each with a remedy."""
    yield from _reasons_of_model(engine, model)
    if transform is not None:
        yield from _reasons_of_transform(engine, model, transform, missing)
    if engine == "onnx" and isinstance(model, Ensemble):
        members: Any = zip(model.members, model.weights, strict=True)
        for member, weight in members:
            if weight:
                reasons = _reasons(engine, member.model, member.transform, missing)
                name = type(member.model).__name__
                yield from (f"its member {name} cannot be exported: {reason}" for reason in reasons)


def _reasons_of_model(engine: str, model: nn.Module) -> Iterator[str]:
    """Yield the reasons why ``engine`` cannot represent ``model`` with any transform."""
    if engine == "native":
        if not isinstance(model, BoostedTrees):
            yield "only boosted trees have a native file: use to=onnx, or train model=lightgbm"
    elif isinstance(model, BoostedTrees) and model.categories:
        yield (
            "the engine has no splits on categories: train without category columns, or "
            "use to=native"
        )
    elif engine in _BY_ITEM and not getattr(model, "pointwise", False):
        yield (
            "the engine scores one document at a time, but this model scores a whole list: train "
            "model=mlp or model=lightgbm to imitate this run's scores (loss=distil), or use "
            "to=onnx and run the ONNX file in a separate service"
        )
    elif engine in _ENGINE_FORMATS and not isinstance(
        model, BoostedTrees | RankBoost | WithEmbeddings
    ):
        if engine in LUCENE:
            yield "the engine accepts only trees: train model=lightgbm, or use to=onnx"
        elif not is_dense(model) or (engine == "ranklib" and _layers(model)):
            yield (
                f"the engine has no layers like those of {type(model).__name__}: use to=onnx, or "
                "train trees"
            )
        else:
            yield from _reasons_of_layers(engine, model)


def _reasons_of_layers(engine: str, model: nn.Module) -> Iterator[str]:
    """Yield the reasons why ``engine`` cannot represent the layers of a dense model."""
    supported = _ACTIVATIONS if engine == "solr" else ("null",)
    activations: dict[str, Iterable[nn.Module]] = {"activation": _layers(model)}
    if isinstance(model, MLP):
        if model.embedding.numbers:
            yield "the engine cannot embed numbers: set model.embedding.kind=null, or use to=onnx"
        if any(isinstance(layer, nn.LayerNorm) for layer in model.layers):
            yield "the engine has no layer norm: set model.input_norm=false, or use to=onnx"
        activations["output_activation"] = [model.head.activation]
    for knob, layers in activations.items():
        names = {_NAMES.get(type(layer)) for layer in layers} - {None, "none", *supported}
        for name in names:
            remedy = f"set model.{knob}={' or '.join(supported)}, or use to=onnx"
            yield f"the engine has no activation {name}: {remedy}"


def _layers(model: nn.Module) -> Iterable[nn.Module]:
    return model.layers if isinstance(model, MLP) else ()


def _reasons_of_transform(
    engine: str, model: nn.Module, transform: FeatureTransform, missing: int
) -> Iterator[str]:
    """Yield the reasons why ``engine`` cannot compute ``transform`` of the features."""
    is_boosted = isinstance(model, BoostedTrees)
    has_splits = isinstance(model, BoostedTrees | RankBoost)
    if engine in _BY_ITEM and transform.codes.any() and not is_boosted:
        yield "the engine has no categories: train without category columns, or use to=onnx"
    is_scaled = transform.shape.any() or (transform.sign * transform.scale != 1).any()
    if has_splits and engine != "native" and (is_scaled or transform.mean.any()):
        yield "the exported trees read features without a transform: train with transform=none"
    if engine not in _ENGINE_FORMATS:
        return  # the exported graph includes the transform
    if len(transform.indicated):
        yield "the engine has no indicators of missing values: set transform.missing=mean"
    if missing and not (has_splits and engine in LUCENE):
        yield (
            f"the engine reads a missing value as 0, but {missing:,} values in the lists are "
            "missing: replace them with numbers, or use to=onnx or to=vespa"
        )
    if not has_splits and (transform.shape == QUANTILE).any():
        yield "the engine has no quantiles: set transform=standardise, or use to=onnx or to=vespa"
    if not has_splits and np.isin(transform.shape, (LOG, SIGNED_LOG)).any():
        yield "the engine has no logarithm of features: set transform=standardise, or use to=onnx"

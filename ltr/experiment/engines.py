"""What each search engine can hold, so that a run can be refused before it trains."""

from collections.abc import Iterator

import numpy as np
from torch import nn

from ltr.data.transforms import LOG, QUANTILE, SIGNED_LOG, FeatureTransform
from ltr.errors import ConfigError
from ltr.models import MLP, Linear
from ltr.models.embeddings import WithEmbeddings
from ltr.models.rounds import AdaRank, BoostedTrees, PRank, RankBoost, RoundModel

ENGINES = ("onnx", "solr", "ranklib", "elasticsearch", "opensearch", "vespa", "native")
LUCENE = ("elasticsearch", "opensearch")  # their scores must not be negative
_BY_ITEM = ("solr", "ranklib", *LUCENE, "vespa")  # they score one document at a time
_OWN_FORMAT = ("solr", "ranklib", *LUCENE)

# The activations that an engine's networks have.
_LOGISTIC = ("sigmoid", "tanh")
_ACTIVATIONS = {
    "solr": ("relu", "leaky_relu", *_LOGISTIC),
    **dict.fromkeys(("ranklib", *LUCENE), _LOGISTIC),
}
_NAMES = {
    nn.ReLU: "relu", nn.LeakyReLU: "leaky_relu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid",
    nn.GELU: "gelu", nn.ELU: "elu", nn.Identity: "none",
}  # fmt: skip


def check_engine(
    engine: str | None,
    model: nn.Module,
    transform: FeatureTransform | None = None,
    missing: int = 0,
    *,
    key: str = "for_engine",
) -> None:
    """Raise ``ConfigError`` where ``engine`` cannot hold ``model``, with all reasons and remedies.

    Args:
        engine: one of ``ENGINES``, or None, which holds everything.
        model: trained or not.
        transform: of the features; None: not fitted yet.
        missing: how many values of the lists are missing.
        key: names the engine in the message.
    """
    if engine is None:
        return
    if engine not in ENGINES:
        raise ConfigError(f"{key}={engine}: choose one of {', '.join(ENGINES)}")
    wrong = [*_of_model(engine, model), *_of_transform(engine, model, transform, missing)]
    if wrong:
        raise ConfigError("; ".join(f"{key}={engine}: {one}" for one in dict.fromkeys(wrong)))


def activation_of(module: nn.Module) -> str | None:
    """The name of an activation, as configs have it; None of any other module."""
    return _NAMES.get(type(module))


def is_dense(model: nn.Module) -> bool:
    """Whether a score is that of layers over the transformed features, or linear in them."""
    if isinstance(model, PRank):
        return model.kernel is None
    return isinstance(model, MLP | Linear | AdaRank)


def _of_model(engine: str, model: nn.Module) -> Iterator[str]:
    if engine == "native":
        if not isinstance(model, RoundModel):
            yield (
                "a network has no library whose file it could be: export it with to=onnx, or train "
                "model=lightgbm, xgboost or catboost"
            )
        return
    if isinstance(model, PRank) and model.kernel is not None:
        yield "PRank with a kernel holds the items of train: set model.kernel=null, or to=native"
        return
    if isinstance(model, BoostedTrees) and model.categories:
        yield (
            "splits on categories are of their library alone: leave these columns out of the "
            "table, or use to=native"
        )
    if engine in _BY_ITEM and not getattr(model, "pointwise", False):
        yield (
            "a score depends on the other items of its list (attention), and the engine scores one "
            "document at a time: train model=mlp or lightgbm, which loss=distil teaches with this "
            "run's scores, or serve to=onnx beside the engine"
        )
    elif engine in _OWN_FORMAT and not isinstance(model, BoostedTrees | RankBoost):
        yield from _of_network(engine, model)


def _of_network(engine: str, model: nn.Module) -> Iterator[str]:
    """Why ``engine`` holds no layers such as those of ``model``."""
    if isinstance(model, WithEmbeddings):
        return  # the transform has the reason
    if not is_dense(model):
        yield (
            f"it has no such layers as a {type(model).__name__}'s: train model=mlp, linear or "
            "lightgbm, or use to=onnx or to=vespa"
        )
        return
    if isinstance(model, MLP):
        if model.embedding.numbers:
            yield "it embeds no numbers: set model.embedding.kind=null, or use to=onnx"
        if any(isinstance(layer, nn.LayerNorm) for layer in model.layers):
            yield "it has no layer norm: set model.input_norm=false, or use to=onnx"
    if isinstance(model, MLP | Linear):
        ends = {activation_of(model.head.activation)}
        inner = {*map(activation_of, model.layers)} - {None} if isinstance(model, MLP) else set()
        known = {"none", *_ACTIVATIONS[engine]}
        for knob, used in (("activation", inner), ("output_activation", ends)):
            if unknown := sorted(str(name) for name in used - known):
                yield (
                    f"it has no activation {unknown[0]}: set model.{knob}="
                    f"{' or '.join(_ACTIVATIONS[engine])}, or use to=onnx"
                )


def _of_transform(
    engine: str, model: nn.Module, transform: FeatureTransform | None, missing: int
) -> Iterator[str]:
    """Why ``engine`` cannot read the features as ``transform`` leaves them."""
    if engine not in (*_OWN_FORMAT, "vespa") or transform is None:
        return
    splits = isinstance(model, BoostedTrees | RankBoost)
    if transform.codes.any() and not isinstance(model, BoostedTrees):
        yield "it has no categories: leave these columns out of the table, or use to=onnx"
    if engine == "vespa":
        return  # the graph has the transform
    if len(transform.indicated):
        yield "it has no indicators of missing values: set transform.missing=mean"
    if missing and not (splits and engine in LUCENE):
        yield (
            f"it takes a missing value for 0, and {missing:,} values of the lists are missing: "
            "write a number in their place, or use to=onnx or to=vespa"
        )
    if splits:
        return  # a threshold before the transform does what one behind it does
    if (transform.shape == QUANTILE).any():
        yield "it has no quantiles: set transform=standardise, or use to=onnx or to=vespa"
    if np.isin(transform.shape, (LOG, SIGNED_LOG)).any():
        yield (
            "its models read features as they are, without a logarithm: set transform=standardise, "
            "train model=lightgbm, or use to=onnx or to=vespa"
        )

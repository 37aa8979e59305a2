"""Properties of a model ``(features, mask, ranks) -> scores``.

Each public function checks one property, which its docstring states. The function raises
``Violation`` if the property does not hold, and ``DoesNotApply`` if the property has no meaning for
the model.
"""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from ltr.testing.loss_properties import GENERAL_PROPERTIES
from ltr.testing.subject import (
    Component,
    DoesNotApply,
    Violation,
    calling,
    expect_close,
    expect_finite,
    expect_shape,
    properties_of,
    seeded,
)

_MOVED = 1e-4  # if a score changes by more than this, it depends on the input that was changed


class Scored(NamedTuple):
    """One score per item, ``[batch, list]``."""

    score: Tensor


@dataclass(frozen=True)
class ModelSubject(Component):
    """A model under test, which is built anew for every call."""

    make: Callable[[int], nn.Module]  # builds the model for a number of features
    width: int = 6  # number of features
    # The following fields are set by ``modes``.
    training: bool = False
    gradients: bool = True
    mode: str = ""

    names = ("features", "ranks")
    close = 1e-5  # in float32, sums depend on the shapes of the tensors

    def modes(self) -> Sequence[Self]:
        """Return the subject in three modes: evaluation, evaluation without gradients, training."""
        training = replace(self, training=True, mode=" in training mode")
        return [self, replace(self, gradients=False), training]

    def built(self, seed: int = 0) -> nn.Module:
        """Build the model with a seed; noise on all weights ensures that no weight is 0."""
        with seeded(seed), torch.no_grad():
            model = self.make(self.width)
            for weight in model.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
        return model.train(self.training)

    def lists(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return features, ranks and mask of lists of 9, 4, 1 and 0 items, with scattered padding.

        Padding also occurs before and between the items of a list.
        """
        features = torch.randn(4, 9, self.width, generator=torch.Generator().manual_seed(1))
        mask = torch.zeros(4, 9, dtype=torch.bool)
        mask[0] = True
        mask[1, [1, 2, 5, 8]] = True
        mask[2, 4] = True
        return features, mask.cumsum(-1), mask

    def call(self, *data: Tensor) -> Tensor:
        """Build the model and return its scores, ``[batch, list]``."""
        return _scores(self.built(), *data)

    def measure(self, *data: Tensor) -> Scored:
        """Return the scores, detached."""
        with torch.set_grad_enabled(self.gradients):
            return Scored(self.call(*data).detach())


def _scores(
    model: nn.Module, features: Tensor, ranks: Tensor, mask: Tensor, *, seed: int = 0
) -> Tensor:
    """Call ``model`` with a seed; raise ``Violation`` unless it returns one score per item."""
    with seeded(seed), calling(mask):
        scores = model(features, mask, ranks)
    expect_shape(scores, mask.shape, mask, "score per item")
    return scores


def an_item_is_scored_by_its_own_features_alone(model: ModelSubject) -> str:
    """The other items of a list do not change a score: the model is pointwise."""
    inputs = model.lists()
    first_items = [tensor[:, :1] for tensor in inputs]
    change = (model.call(*first_items)[0, 0] - model.call(*inputs)[0, 0]).abs().item()
    if change > _MOVED:
        raise DoesNotApply(
            f"it is list-aware: a score changed by {change:.3g} when the other items were removed"
        )
    return "the model is pointwise"


def training_sees_each_list_alone(model: ModelSubject) -> str | None:
    """In training mode, other lists do not change scores, unless ``batch_statistics`` is True."""
    if getattr(model.built(), "batch_statistics", False):
        return "other lists may matter, because the model has batch_statistics = True"
    training = replace(model, training=True)
    features, ranks, mask = model.lists()
    changed = features.clone()
    changed[1:] = 0
    scores = training.call(changed, ranks, mask)[:1].detach()
    expected = training.call(features, ranks, mask)[:1].detach()
    when = "when the other lists changed, in training mode"
    expect_close(scores, expected, "score", when, tolerance=model.close)
    return None


def the_given_ranks_mean_nothing(model: ModelSubject) -> None:
    """Scores do not depend on ``ranks``, the positions at which the items were shown."""
    features, ranks, mask = model.lists()
    reversed_ranks = torch.where(mask, mask.sum(-1, keepdim=True) + 1 - ranks, ranks)
    differences = model.call(features, reversed_ranks, mask) - model.call(features, ranks, mask)
    change = differences.abs().max().item()
    if change > _MOVED:
        raise DoesNotApply(
            f"the model uses positions: reversing the ranks changed a score by {change:.3g}"
        )


def the_gradient_is_finite_and_reaches_every_parameter(model: ModelSubject) -> str:
    """In training mode, with NaN on padding, every parameter has a finite gradient other than 0.

    The gradient with respect to the features is 0 on padding, so that layers before the model can
    be trained.
    """
    features, ranks, mask = model.lists()
    built = replace(model, training=True).built()
    weights = {name: weight for name, weight in built.named_parameters() if weight.requires_grad}
    if not weights:
        raise DoesNotApply("it has no parameters that gradients can train")
    poisoned = features.masked_fill(~mask[..., None], math.nan).requires_grad_()
    generator = torch.Generator().manual_seed(0)
    for seed in range(3):  # dropout may stop a gradient
        scores = _scores(built, poisoned, ranks, mask, seed=seed)
        if not scores.requires_grad:
            raise Violation("the scores have no graph, so backward fails")
        (scores * torch.randn(scores.shape, generator=generator)).sum().backward()
    for name, weight in weights.items():
        if weight.grad is None or not (weight.grad != 0).any():
            raise Violation(f"no gradient reaches {name}, of shape {list(weight.shape)}")
        expect_finite(weight.grad, f"the gradient with respect to {name}", "with NaN on padding")
    if poisoned.grad is not None and (poisoned.grad[~mask] != 0).any():
        raise Violation("the gradient with respect to the features is not 0 on padding")
    return f"{sum(weight.numel() for weight in weights.values()):,} parameters"


def lists_of_any_size_are_scored(model: ModelSubject) -> None:
    """Lists of 1 and 240 items, and lists with only padding, have finite scores."""
    for size, items in ((1, 1), (240, 240), (3, 0)):
        built = replace(model, training=True).built()
        generator = torch.Generator().manual_seed(size)
        features = torch.randn(2, size, model.width, generator=generator)
        mask = (torch.arange(size) < items).expand(2, size).clone()
        scores = _scores(built, features, mask.cumsum(-1), mask)
        expect_finite(scores, "a score", f"of a list of {items} items, padded to {size}")


def evaluation_is_deterministic(model: ModelSubject) -> None:
    """In evaluation mode, two calls give exactly the same scores."""
    built = model.built()
    first = _scores(built, *model.lists()).detach()
    expect_close(_scores(built, *model.lists(), seed=1), first, "score", "at a second call")


def a_seed_gives_the_model(model: ModelSubject) -> None:
    """Two models that are built with the same seed have the same weights."""
    first = model.built().state_dict()
    second = model.built().state_dict()
    for name, weight in first.items():
        if not torch.equal(second[name], weight):
            raise Violation(f"{name} differs when the model is built again with the same seed")


def the_state_dict_holds_the_model(model: ModelSubject) -> None:
    """The state dict, loaded into a model with another seed, gives exactly the same scores."""
    saved = model.built()
    loaded = model.built(seed=1)
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    expected = _scores(saved, *model.lists())
    when = "after saving and loading: the state_dict lacks something (register a buffer)"
    expect_close(_scores(loaded, *model.lists()), expected, "score", when)


MODEL_PROPERTIES = (*properties_of(globals(), "model"), *GENERAL_PROPERTIES)

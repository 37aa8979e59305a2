"""Properties of a model ``(features, mask, ranks) -> scores``: padding, lists, order, gradients."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ltr.battery.verdict import Broken, DoesNotApply, expect_close, expect_finite, told, where

Weights = Mapping[str, Tensor]

_MOVED = 1e-4  # a score that changed by more depends on what was changed
_CLOSE = 1e-5  # float32, whose sums depend on the shapes


@dataclass(frozen=True)
class ModelSubject:
    """A model to be made and how it trains.

    Attributes:
        make: the model for a number of features.
        width: that number.
        list_aware: whether the other items of a list may change a score; None: either.
        trained: the weights after trainings of so many epochs, each of which resumes the one
            before; None: it is not tried.
    """

    make: Callable[[int], nn.Module]
    width: int = 6
    list_aware: bool | None = None
    trained: Callable[[Sequence[int]], Weights] | None = None

    def built(self, seed: int = 0, *, training: bool = False) -> nn.Module:
        """The model of a seed, whose weights are none of them 0, so that all of it counts."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                model = self.make(self.width)
            except Exception as error:
                raise Broken(f"cannot be built: {told(error)}") from error
            with torch.no_grad():
                for weight in model.parameters():
                    weight.add_(0.1 * torch.randn_like(weight))
        return model.train(training)

    def lists(self) -> tuple[Tensor, Tensor, Tensor]:
        """Features, mask and ranks of lists of 9, 4, 1 and 0 items, padded on every side."""
        generator = torch.Generator().manual_seed(1)
        features = torch.randn(4, 9, self.width, generator=generator)
        mask = torch.zeros(4, 9, dtype=torch.bool)
        mask[0] = True
        mask[1, [1, 2, 5, 8]] = True
        mask[2, 4] = True
        return features, mask, mask.cumsum(-1)


def scores_of(
    model: nn.Module, features: Tensor, mask: Tensor, ranks: Tensor, *, seed: int = 0
) -> Tensor:
    """The scores, with torch's generator seeded.

    Raises:
        Broken: the model crashed, or did not return one score per item.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            scores = model(features, mask, ranks)
        except Exception as error:
            raise Broken(f"crashed{where(mask)}: {told(error)}") from error
    if not isinstance(scores, Tensor) or scores.shape != mask.shape:
        found = (
            f"shape {list(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
        )
        raise Broken(f"returned {found}{where(mask)}, not one score per item, {list(mask.shape)}")
    return scores


def there_is_one_score_per_item(model: ModelSubject) -> None:
    """The scores are ``[batch, list]``, finite, and 0 on padding."""
    features, mask, ranks = model.lists()
    scores = scores_of(model.built(), features, mask, ranks)
    expect_finite(scores[mask], "a score", "of a real item")
    if (scores[~mask] != 0).any():
        raise Broken("scores on padding are not 0: end with masked_fill(~mask, 0)")


def padding_is_never_read(model: ModelSubject) -> None:
    """NaN, infinities or 1e30 on padding change no score, nor with gradients off or in training."""
    features, mask, ranks = model.lists()
    for training, gradients in ((False, True), (False, False), (True, True)):
        with torch.set_grad_enabled(gradients):
            expected = scores_of(model.built(training=training), features, mask, ranks)
            for junk in (math.nan, math.inf, -math.inf, 1e30):
                poisoned = features.masked_fill(~mask[..., None], junk)
                found = scores_of(model.built(training=training), poisoned, mask,
                                  ranks.masked_fill(~mask, -7))  # fmt: skip
                when = (
                    f"when the features on padding became {junk}{_mode(training)}: padding is read"
                )
                expect_close(found, expected, "score", when)


def more_padding_and_its_place_change_nothing(model: ModelSubject) -> None:
    """Padding added behind, in front or on both sides changes no score."""
    features, mask, ranks = model.lists()
    built = model.built()
    expected = scores_of(built, features, mask, ranks)
    for front, behind in ((0, 9), (5, 0), (3, 4)):
        pad = nn.functional.pad
        wider = pad(features, (0, 0, front, behind)), pad(mask, (front, behind))
        found = scores_of(built, *wider, pad(ranks, (front, behind)))
        when = f"with {front} more places of padding in front and {behind} behind"
        inner = found[:, front : found.shape[1] - behind]
        expect_close(inner, expected, "score", when, tolerance=_CLOSE)


def lists_do_not_see_each_other(model: ModelSubject) -> str | None:
    """Features of the other lists of a batch change no score of a list, in training neither.

    In training they may where the model says ``batch_statistics = True``, as one with batch norm.
    """
    features, mask, ranks = model.lists()
    for training in (False, True):
        if training and getattr(model.built(), "batch_statistics", False):
            return "in training they do: the model has batch_statistics = True"
        expected = scores_of(model.built(training=training), features, mask, ranks)
        for others in (0.0, 1e3):
            changed = features.clone()
            changed[[0, 2, 3]] = others
            found = scores_of(model.built(training=training), changed, mask, ranks)
            when = f"when the features of the lists beside it became {others:g}{_mode(training)}"
            expect_close(found[1:2], expected[1:2], "score", when, tolerance=_CLOSE, first=1)
    return None


def a_list_alone_is_scored_as_in_a_batch(model: ModelSubject) -> None:
    """A list alone, without padding, has the scores that it has in a batch."""
    features, mask, ranks = model.lists()
    built = model.built()
    expected = scores_of(built, features, mask, ranks)
    for i in range(3):
        *alone, before = (x[i : i + 1, mask[i]] for x in (features, mask, ranks, expected))
        when = "when it stood alone without padding"
        expect_close(scores_of(built, *alone), before, "score", when, tolerance=_CLOSE, first=i)


def an_item_is_scored_by_its_own_features_alone(model: ModelSubject) -> str:
    """The other items of its list, and their number, change nothing: the model is pointwise."""
    features, mask, ranks = model.lists()
    built = model.built()
    changed = features.clone()
    changed[0, 1:] = 2 * features[0, 1:].flip(0)
    before = scores_of(built, features, mask, ranks)[0, 0]
    moved = max(
        (scores_of(built, *given)[0, 0] - before).abs().item()
        for given in ((changed, mask, ranks), (features[:, :1], mask[:, :1], ranks[:, :1]))
    )
    seen = f"a score moved by {moved:.3g} when the other items of its list changed"
    if moved > _MOVED and model.list_aware is False:
        raise Broken(f"{seen}: it is list-aware, and list_aware=false says that it is not")
    if moved > _MOVED:
        raise DoesNotApply(f"the model is list-aware: {seen}")
    if model.list_aware:
        raise Broken("no score changed with the other items, and list_aware=true says it does")
    return "the model is pointwise"


def the_order_of_the_items_means_nothing(model: ModelSubject) -> None:
    """Items in another order, each with its rank, keep their scores."""
    features, mask, ranks = model.lists()
    built = model.built()
    expected = scores_of(built, features, mask, ranks)
    for seed in (3, 4):
        order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
        found = scores_of(built, features[:, order], mask[:, order], ranks[:, order])
        when = "when the items were given in another order, each with its rank"
        expect_close(found, expected[:, order], "score", when, tolerance=_CLOSE)


def the_given_ranks_mean_nothing(model: ModelSubject) -> None:
    """Scores do not depend on ``ranks``, the places in which the items were given."""
    features, mask, ranks = model.lists()
    built = model.built()
    turned = torch.where(mask, mask.sum(-1, keepdim=True) + 1 - ranks, ranks)
    before = scores_of(built, features, mask, ranks)
    moved = (scores_of(built, features, mask, turned) - before).abs().max().item()
    if moved > _MOVED:
        raise DoesNotApply(f"the model uses positions: scores moved by {moved:.3g} with the ranks")


def the_gradient_is_finite_and_reaches_every_parameter(model: ModelSubject) -> str:
    """With NaN on padding, in training, every parameter has a finite gradient that is not 0.

    That of the features is 0 on padding, as of an embedding in front of the model.
    """
    features, mask, ranks = model.lists()
    built = model.built(training=True)
    weights = {name: w for name, w in built.named_parameters() if w.requires_grad}
    if not weights:
        raise DoesNotApply("it has no parameters that a gradient trains")
    poisoned = features.masked_fill(~mask[..., None], math.nan).requires_grad_()
    generator = torch.Generator().manual_seed(0)
    for seed in range(3):  # dropout may stop one
        scores = scores_of(built, poisoned, mask, ranks, seed=seed)
        if not scores.requires_grad:
            raise Broken("the scores have no graph, so backward fails")
        try:
            (scores * torch.randn(scores.shape, generator=generator)).sum().backward()
        except Exception as error:
            raise Broken(f"backward crashed{where(mask)}: {told(error)}") from error
    for name, weight in weights.items():
        if weight.grad is None or not (weight.grad != 0).any():
            raise Broken(f"no gradient reaches {name}, {list(weight.shape)}")
        expect_finite(weight.grad, f"the gradient of {name}", "with NaN on padding")
    if poisoned.grad is not None and (poisoned.grad[~mask] != 0).any():
        raise Broken("the gradient of the features on padding is not 0")
    return f"{sum(w.numel() for w in weights.values()):,} parameters"


def lists_of_any_size_are_scored(model: ModelSubject) -> None:
    """Lists of 1 and 240 items, and of padding only, have finite scores and gradients."""
    for size, items in ((1, 1), (240, 240), (3, 0)):
        built = model.built(training=True)
        generator = torch.Generator().manual_seed(size)
        features = torch.randn(2, size, model.width, generator=generator)
        mask = (torch.arange(size) < items).expand(2, size).clone()
        scores = scores_of(built, features, mask, mask.cumsum(-1))
        what = f"of a list of {items} items in {size} places"
        expect_finite(scores, "a score", what)
        if scores.requires_grad:
            scores.sum().backward()
            for name, weight in built.named_parameters():
                if weight.grad is not None:
                    expect_finite(weight.grad, f"the gradient of {name}", what)


def inputs_are_left_as_they_are(model: ModelSubject) -> None:
    """A call does not change its features, mask and ranks."""
    given = model.lists()
    kept = [x.clone() for x in given]
    scores_of(model.built(training=True), *given)
    for name, x, before in zip(("features", "mask", "ranks"), given, kept, strict=True):
        if not torch.equal(x, before):
            raise Broken(f"the {name} were changed in place: work on a copy")


def evaluation_is_deterministic(model: ModelSubject) -> None:
    """In evaluation mode two calls give the same bits, with gradients off about the same."""
    data = model.lists()
    built = model.built()
    first = scores_of(built, *data).detach()
    expect_close(scores_of(built, *data, seed=1), first, "score", "at a second call")
    with torch.no_grad():
        found = scores_of(built, *data)
    expect_close(found, first, "score", "with gradients off", tolerance=_CLOSE)


def a_seed_gives_the_model(model: ModelSubject) -> None:
    """Two models that are made under one seed have the same weights."""
    first, second = (model.built().state_dict() for _ in range(2))
    _expect_same(second, first, "when the model was made again under the same seed")


def the_state_dict_holds_the_model(model: ModelSubject) -> None:
    """Saved, and loaded into a model of another seed, it gives the same scores to the bit."""
    data = model.lists()
    kept, other = model.built(), model.built(seed=1)
    file = io.BytesIO()
    torch.save(kept.state_dict(), file)
    file.seek(0)
    try:
        other.load_state_dict(torch.load(file, weights_only=True))
    except Exception as error:
        raise Broken(f"what was saved cannot be loaded: {told(error)}") from error
    when = "after saving and loading: the state_dict lacks something (register a buffer)"
    expect_close(scores_of(other, *data), scores_of(kept, *data), "score", when)


def a_resumed_training_gives_the_same_weights(model: ModelSubject) -> str:
    """Two epochs give, to the bit, what one epoch gives that is resumed for another."""
    if model.trained is None:
        raise DoesNotApply("there is nothing that trains it")
    try:
        whole, resumed = model.trained([2]), model.trained([1, 1])
    except Exception as error:
        raise Broken(f"it cannot be trained: {told(error)}") from error
    _expect_same(resumed, whole, "when the training was resumed after one of two epochs")
    return f"{len(whole)} tensors are equal after two epochs"


def _mode(training: bool) -> str:
    return " in training mode" if training else ""


def _expect_same(found: Weights, expected: Weights, when: str) -> None:
    """Raise ``Broken`` unless both have the same tensors, bit for bit."""
    for name, weight in expected.items():
        if name not in found or not torch.equal(found[name], weight):
            raise Broken(f"{name} is another {when}")

"""Properties of a model ``(features, mask, ranks) -> scores``. Each public function here is one."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ltr.checks.subject import (
    Broken,
    DoesNotApply,
    calling,
    expect_close,
    expect_finite,
    expect_unchanged,
    on_lists,
    properties_of,
    seeded,
)

Weights = Mapping[str, Tensor]

_MOVED = 1e-4  # a score that changed by more depends on what was changed
_CLOSE = 1e-5  # float32, whose sums depend on the shapes


@dataclass(frozen=True)
class ModelSubject:
    """A model to be built and how it trains.

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
        with seeded(seed), torch.no_grad():
            model = self.make(self.width)
            for weight in model.parameters():
                weight.add_(0.1 * torch.randn_like(weight))
        return model.train(training)

    def lists(self) -> tuple[Tensor, Tensor, Tensor]:
        """Features, mask and ranks of lists of 9, 4, 1 and 0 items, padded on every side."""
        features = torch.randn(4, 9, self.width, generator=torch.Generator().manual_seed(1))
        mask = torch.zeros(4, 9, dtype=torch.bool)
        mask[0] = True
        mask[1, [1, 2, 5, 8]] = True
        mask[2, 4] = True
        return features, mask, mask.cumsum(-1)


def _scores(
    model: nn.Module, features: Tensor, mask: Tensor, ranks: Tensor, *, seed: int = 0
) -> Tensor:
    """The scores, with torch's generator seeded; ``Broken`` unless there is one per item."""
    with seeded(seed), calling(mask):
        scores = model(features, mask, ranks)
    if not isinstance(scores, Tensor) or scores.shape != mask.shape:
        got = f"shape {list(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
        raise Broken(f"returned {got}{on_lists(mask)}, not one score per item, {list(mask.shape)}")
    return scores


def there_is_one_score_per_item(model: ModelSubject) -> None:
    """The scores are ``[batch, list]``, finite, and 0 on padding."""
    features, mask, ranks = model.lists()
    scores = _scores(model.built(), features, mask, ranks)
    expect_finite(scores[mask], "a score", "of a real item")
    if (scores[~mask] != 0).any():
        raise Broken("scores on padding are not 0: end with masked_fill(~mask, 0)")


def padding_is_never_read(model: ModelSubject) -> None:
    """NaN, infinities or 1e30 on padding change no score, nor with gradients off or in training."""
    features, mask, ranks = model.lists()
    for training, gradients in ((False, True), (False, False), (True, True)):
        with torch.set_grad_enabled(gradients):
            expected = _scores(model.built(training=training), features, mask, ranks)
            for junk in (math.nan, math.inf, -math.inf, 1e30):
                poisoned = features.masked_fill(~mask[..., None], junk)
                hidden = ranks.masked_fill(~mask, -7)
                found = _scores(model.built(training=training), poisoned, mask, hidden)
                when = f"when the features on padding became {junk}{_mode(training)}"
                expect_close(found, expected, "score", f"{when}: padding is read")


def more_padding_and_its_place_change_nothing(model: ModelSubject) -> None:
    """Padding added behind, in front or on both sides changes no score."""
    features, mask, ranks = model.lists()
    built, pad = model.built(), nn.functional.pad
    expected = _scores(built, features, mask, ranks)
    for sides in ((0, 9), (5, 0), (3, 4)):
        found = _scores(built, pad(features, (0, 0, *sides)), pad(mask, sides), pad(ranks, sides))
        when = f"with {sides[0]} more places of padding in front and {sides[1]} behind"
        expect_close(found, pad(expected, sides), "score", when, tolerance=_CLOSE)


def lists_do_not_see_each_other(model: ModelSubject) -> str | None:
    """Features of the other lists of a batch change no score of a list, in training neither.

    In training they may where the model says ``batch_statistics = True``, as one with batch norm.
    """
    features, mask, ranks = model.lists()
    for training in (False, True):
        if training and getattr(model.built(), "batch_statistics", False):
            return "in training they do: the model has batch_statistics = True"
        expected = _scores(model.built(training=training), features, mask, ranks)
        for others in (0.0, 1e3):
            changed = torch.full_like(features, others)
            changed[1] = features[1]
            found = expected.clone()
            found[1] = _scores(model.built(training=training), changed, mask, ranks)[1]
            when = f"when the features of the lists beside it became {others:g}{_mode(training)}"
            expect_close(found, expected, "score", when, tolerance=_CLOSE)
    return None


def a_list_alone_is_scored_as_in_a_batch(model: ModelSubject) -> None:
    """A list alone, without padding, has the scores that it has in a batch."""
    features, mask, ranks = model.lists()
    built = model.built()
    expected = _scores(built, features, mask, ranks)
    for i in range(3):
        *alone, before = (x[i : i + 1, mask[i]] for x in (features, mask, ranks, expected))
        when = f"when list {i} of a batch stood alone without padding"
        expect_close(_scores(built, *alone), before, "score", when, tolerance=_CLOSE)


def an_item_is_scored_by_its_own_features_alone(model: ModelSubject) -> str:
    """The other items of its list, and their number, change nothing: the model is pointwise."""
    features, mask, ranks = model.lists()
    built = model.built()
    changed = features.clone()
    changed[0, 1:] = 2 * features[0, 1:].flip(0)
    before = _scores(built, features, mask, ranks)[0, 0]
    moved = max(
        (_scores(built, *given)[0, 0] - before).abs().item()
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
    expected = _scores(built, features, mask, ranks)
    for seed in (3, 4):
        order = torch.randperm(9, generator=torch.Generator().manual_seed(seed))
        found = _scores(built, features[:, order], mask[:, order], ranks[:, order])
        when = "when the items were given in another order, each with its rank"
        expect_close(found, expected[:, order], "score", when, tolerance=_CLOSE)


def the_given_ranks_mean_nothing(model: ModelSubject) -> None:
    """Scores do not depend on ``ranks``, the places in which the items were given."""
    features, mask, ranks = model.lists()
    built = model.built()
    turned = torch.where(mask, mask.sum(-1, keepdim=True) + 1 - ranks, ranks)
    before = _scores(built, features, mask, ranks)
    moved = (_scores(built, features, mask, turned) - before).abs().max().item()
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
        scores = _scores(built, poisoned, mask, ranks, seed=seed)
        if not scores.requires_grad:
            raise Broken("the scores have no graph, so backward fails")
        (scores * torch.randn(scores.shape, generator=generator)).sum().backward()
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
        scores = _scores(built, features, mask, mask.cumsum(-1))
        what = f"of a list of {items} items in {size} places"
        expect_finite(scores, "a score", what)
        if scores.requires_grad:
            scores.sum().backward()
        for name, weight in built.named_parameters():
            if weight.grad is not None:
                expect_finite(weight.grad, f"the gradient of {name}", what)


def inputs_are_left_as_they_are(model: ModelSubject) -> None:
    """A call does not change its features, mask and ranks."""
    features, mask, ranks = model.lists()
    expect_unchanged(model.built(training=True), features=features, mask=mask, ranks=ranks)


def evaluation_is_deterministic(model: ModelSubject) -> None:
    """In evaluation mode two calls give the same bits, with gradients off about the same."""
    built = model.built()
    first = _scores(built, *model.lists()).detach()
    expect_close(_scores(built, *model.lists(), seed=1), first, "score", "at a second call")
    with torch.no_grad():
        found = _scores(built, *model.lists())
    expect_close(found, first, "score", "with gradients off", tolerance=_CLOSE)


def a_seed_gives_the_model(model: ModelSubject) -> None:
    """Two models that are built under one seed have the same weights."""
    first, second = (model.built().state_dict() for _ in range(2))
    _expect_same(second, first, "when the model was built again under the same seed")


def the_state_dict_holds_the_model(model: ModelSubject) -> None:
    """Saved, and loaded into a model of another seed, it gives the same scores to the bit."""
    saved, other = model.built(), model.built(seed=1)
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    found, expected = (_scores(each, *model.lists()) for each in (other, saved))
    when = "after saving and loading: the state_dict lacks something (register a buffer)"
    expect_close(found, expected, "score", when)


def a_resumed_training_gives_the_same_weights(model: ModelSubject) -> str:
    """Two epochs give, to the bit, what one epoch gives that is resumed for another."""
    if model.trained is None:
        raise DoesNotApply("there is nothing that trains it")
    whole, resumed = model.trained([2]), model.trained([1, 1])
    _expect_same(resumed, whole, "when the training was resumed after one of two epochs")
    return f"{len(whole)} tensors are equal after two epochs"


def _mode(training: bool) -> str:
    return " in training mode" if training else ""


def _expect_same(found: Weights, expected: Weights, when: str) -> None:
    """Raise ``Broken`` unless both have the same tensors, bit for bit."""
    for name, weight in expected.items():
        if name not in found or not torch.equal(found[name], weight):
            raise Broken(f"{name} is another {when}")


MODEL_PROPERTIES = properties_of(globals())

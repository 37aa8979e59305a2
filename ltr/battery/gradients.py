"""Properties of the gradient."""

import torch
from torch import Tensor

from ltr.battery.findings import Broken, expect_close, expect_finite
from ltr.battery.lists import ragged
from ltr.battery.subject import Subject
from ltr.losses.reduction import mean_over_lists


def the_gradient_agrees_with_finite_differences(loss: Subject) -> None:
    """In float64 the gradient of every value is its slope, to about six digits."""
    scores, labels, mask = ragged()

    def seeded(scores: Tensor) -> Tensor:
        torch.manual_seed(0)
        return loss.value(scores, labels, mask)

    with torch.random.fork_rng(devices=[]):
        try:
            torch.autograd.gradcheck(seeded, scores.requires_grad_())
        except RuntimeError as error:
            lines = [" ".join(line.split()) for line in str(error).splitlines()]
            raise Broken(f"not so: {lines[0]}") from error


def there_is_something_to_learn(loss: Subject) -> None:
    """The gradient of some score is not 0."""
    _, gradient = loss.measure(*ragged())
    if not (gradient != 0).any():
        raise Broken("the gradient is 0 everywhere")


def following_the_gradient_lowers_the_loss(loss: Subject) -> None:
    """A small step against the gradient lowers the value of some list and raises that of none."""
    scores, labels, mask = ragged()
    before, gradient = loss.measure(scores, labels, mask)
    after, _ = loss.measure(scores - 1e-3 * gradient, labels, mask)
    rises = after - before
    if not (rises <= 1e-12 * before.abs().clamp(min=1)).all():
        raise Broken(f"a step against the gradient raised a value by {rises.max().item():.3g}")
    if not (rises < 0).any():
        raise Broken("a step against the gradient lowered no value")


def a_batch_without_lists_to_count_can_be_trained_on(loss: Subject) -> None:
    """A batch of empty lists that are left out, or of no items, has the mean 0 and gradient 0."""
    for empty in ("keep", "skip"):
        scores, labels = torch.randn(2, 3).requires_grad_(), torch.zeros(2, 3)
        mask = torch.full((2, 3), empty == "skip")
        with torch.random.fork_rng(devices=[]):
            values = loss.value(scores, labels, mask)
            mean = mean_over_lists(values, labels, mask, empty=empty)
            if not mean.requires_grad:
                raise Broken("the values have no graph, so backward fails")
            (gradient,) = torch.autograd.grad(mean, scores)
        what = "of a batch without lists to count"
        expect_finite(gradient, "the gradient", what)
        expect_close(mean.detach()[None], torch.zeros(1), "mean", what)
        expect_close(gradient, torch.zeros(2, 3), "gradient", what)

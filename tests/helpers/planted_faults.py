"""Losses with a fault: a small wrong one, or a right one with something of ``ltr`` made wrong."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ltr import losses
from ltr.losses.soft_permutation import negative_ndcg, neural_sort_dcg
from ltr.metrics import dcg
from ltr.metrics.cumulative_gain import ideal_dcg
from ltr.metrics.ordering import rank_of_item, ranks_like


class Fault(NamedTuple):
    """A loss, the property that catches it when it is wrong, a part of what that says, the fault.

    ``puts`` is what is put in the place of something of ``ltr``, by its name there.
    """

    right: Callable[..., Tensor]
    caught_by: str
    seen: str
    wrong: Callable[..., Tensor]
    puts: dict[str, Any] = {}  # noqa: RUF012  (read only)


def real(x: Tensor, mask: Tensor) -> Tensor:
    return x.masked_fill(~mask, 0)


CALLS = itertools.count()


def squares(s: Tensor, y: Tensor, m: Tensor) -> Tensor:
    return real(s - y, m).square().sum(-1)


FAULTS = {
    "padding read": Fault(
        losses.listnet_loss, "padding_is_never_read", "padding is read",
        lambda s, y, m: -real(y.softmax(-1) * s.log_softmax(-1), m).sum(-1),
    ),
    "k ignored": Fault(
        losses.neural_ndcg_loss, "the_cutoff_is_honoured", "k is ignored", losses.neural_ndcg_loss,
        {"ltr.losses.soft_permutation.neural_sort_dcg": lambda *x: neural_sort_dcg(
            *x[:3], None, *x[4:]),
         "ltr.losses.soft_permutation.negative_ndcg": lambda *x, k: negative_ndcg(*x, k=None)},
    ),
    "ideal not cut": Fault(
        losses.neural_ndcg_loss, "the_sharp_limit_is_minus_the_metric",
        "between minus ndcg and the loss at k=1",
        losses.neural_ndcg_loss,
        {"ltr.losses.soft_permutation.ideal_dcg": lambda *x, k: ideal_dcg(*x, k=None)},
    ),
    "gain ignored": Fault(
        losses.approx_ndcg_loss, "a_gain_is_a_scale_of_the_labels", "with gain=[1, 3, 9, 27, 81]",
        lambda s, y, m, *, gain="exp2": losses.approx_ndcg_loss(
            s, y, m, gain=gain if gain == "linear" else "exp2"),
    ),
    "lists coupled": Fault(
        losses.approx_ndcg_loss, "lists_do_not_see_each_other", "was alone",
        lambda s, y, m, *, k=None, temperature=1.0: losses.approx_ndcg_loss(
            s / real(s, m).abs().amax().detach().clamp(min=1e-6), y, m, k=k,
            temperature=temperature),
    ),
    "ties from the last to the first": Fault(
        losses.lambdarank_loss, "tied_scores_stand_in_file_order_or_share_ranks",
        "the tie rule is wrong",
        losses.lambdarank_loss,
        {"ltr.losses.pairwise.rank_of_item": lambda s, m: rank_of_item(
            s.flip(-1), m.flip(-1)).flip(-1)},
    ),
    "label ties in file order": Fault(
        losses.listmle_loss, "the_order_of_the_items_means_nothing", "given in a different order",
        losses.listmle_loss,
        {"ltr.losses.listwise.uniform_noise": lambda mask, samples, like, generator: (
            torch.arange(mask.shape[-1]).to(like).expand(1, *mask.shape))},
    ),
    "temperature does not sharpen": Fault(
        losses.neural_ndcg_loss, "the_sharp_limit_is_minus_the_metric",
        "between minus ndcg and the loss at k=None",
        lambda s, y, m, *, k=None, temperature=1.0: losses.neural_ndcg_loss(
            s, y, m, k=k, temperature=100 * temperature**0.01),
    ),
    "input changed": Fault(
        losses.mse_loss, "inputs_are_left_as_they_are", "the argument labels was changed in place",
        lambda s, y, m: losses.mse_loss(s, y.masked_fill_(~m, 0), m),
    ),
    "nan at ties": Fault(
        losses.listnet_loss, "degenerate_lists_are_defined",
        "is nan for a list without items in float64",
        lambda s, y, m: losses.listnet_loss(s / s.std(-1, keepdim=True), y, m),
    ),
    "global generator": Fault(
        losses.listmle_loss, "what_is_drawn_comes_from_the_generator",
        "torch's own generator was used although generator was given",
        lambda s, y, m, *, generator=None: losses.listmle_loss(s, y, m),
    ),
    "generator without a knob": Fault(
        losses.listmle_loss, "what_is_drawn_comes_from_the_generator", "it draws from global state",
        lambda s, y, m: losses.listmle_loss(s, y, m),
    ),
    "one number": Fault(
        losses.mse_loss, "there_is_something_to_learn",
        "returned shape [] on 3 lists padded to 8 items, expected one value per list, [3]",
        lambda s, y, m: losses.mse_loss(s, y, m).mean(),
    ),
    "float32 inside": Fault(
        losses.mse_loss, "float64_stays_float64_and_the_rest_becomes_float32", "compute in float64",
        lambda s, y, m: losses.mse_loss(s.float(), y, m).to(
            torch.promote_types(s.dtype, torch.float32)),
    ),
    "detached": Fault(
        losses.mse_loss, "there_is_something_to_learn", "the values have no graph",
        lambda s, y, m: losses.mse_loss(s.detach(), y, m),
    ),
    "gradient not of the value": Fault(
        losses.ranknet_loss, "the_gradient_agrees_with_finite_differences", "Jacobian mismatch",
        lambda s, y, m: losses.ranknet_loss(s.detach(), y, m)
        + losses.ranknet_loss(s.clamp(-0.3, 0.3), y, m),
    ),
    "slopes as constants": Fault(
        losses.mse_loss, "the_second_derivative_is_right_or_refused",
        "to 0 between finite differences of the gradient",
        lambda s, y, m: real(s * (s - y).detach(), m).sum(-1),
    ),
    "estimate doubled": Fault(
        losses.plrank_loss, "the_gradient_agrees_with_finite_differences", "over 5000 draws",
        lambda s, y, m, *, temperature=1.0, generator=None: losses.plrank_loss(
            2 * s - s.detach(), y, m, temperature=temperature, generator=generator),
    ),
    "nothing to learn": Fault(
        losses.mse_loss, "there_is_something_to_learn", "the gradient is 0 everywhere",
        lambda s, y, m: real(s, m).sum(-1) * 0 + 1.0,
    ),
    "nan on no items": Fault(
        losses.mse_loss, "degenerate_lists_are_defined",
        "the value is nan for a list without items",
        lambda s, y, m: squares(s, y, m) / m.sum(-1),
    ),
    "of the wrong sign": Fault(
        losses.listnet_loss, "a_better_order_has_a_smaller_loss_on_average", "the sign is wrong",
        lambda s, y, m: -losses.listnet_loss(s, y, m),
    ),
    "labels not read": Fault(
        losses.ranknet_loss, "a_better_order_has_a_smaller_loss_on_average",
        "it does not distinguish orders", lambda s, y, m: real(s, m).square().sum(-1),
    ),
    "rises": Fault(
        losses.listnet_loss, "the_gradient_agrees_with_finite_differences", "Jacobian mismatch",
        lambda s, y, m: losses.listnet_loss(2 * s.detach() - s, y, m),
    ),
    "any k taken": Fault(
        losses.neural_ndcg_loss, "a_cutoff_below_1_is_refused", "k=0 was accepted",
        lambda s, y, m, *, k=None: losses.neural_ndcg_loss(s, y, m, k=k if k and k > 0 else None),
    ),
    "k beyond the list is an error": Fault(
        losses.neural_ndcg_loss, "a_cutoff_beyond_the_list_is_none",
        "crashed on 3 lists padded to 8 items: RuntimeError: selected index k out of range",
        lambda s, y, m, *, k=None: losses.neural_ndcg_loss(
            s + 0 * real(s, m).topk(k or 1)[0].sum(), y, m, k=k),
    ),
    "mean over places": Fault(
        losses.mse_loss, "lists_do_not_see_each_other", "when list 0 was alone, without padding",
        lambda s, y, m: squares(s, y, m) / max(1, m.shape[-1]),
    ),
    "mean over the batch too": Fault(
        losses.mse_loss, "lists_do_not_see_each_other", "when list 0 was alone",
        lambda s, y, m: losses.mse_loss(s, y, m) / len(m),
    ),
    "ideal of 0": Fault(
        losses.neural_ndcg_loss, "degenerate_lists_are_defined",
        "nan for a list without a relevant item",
        lambda s, y, m: -real(s.masked_fill(~m, -1e30).softmax(-1) * (y.exp2() - 1), m).sum(-1)
        / dcg(y, y, m),
    ),
    "epsilon of float64": Fault(
        losses.mse_loss, "degenerate_lists_are_defined",
        "the value is nan for a list without items in float32",
        lambda s, y, m: squares(s, y, m) / (m.sum(-1).to(s.dtype) + 1e-300),
    ),
    "largest of none": Fault(
        losses.listnet_loss, "degenerate_lists_are_defined",
        "on 2 lists padded to 0 items: IndexError",
        lambda s, y, m: losses.listnet_loss(s - real(s, m).amax(-1, keepdim=True), y, m),
    ),
    "memory of calls": Fault(
        losses.mse_loss, "the_same_call_gives_the_same_value", "at a second call",
        lambda s, y, m: losses.mse_loss(s, y, m) * next(CALLS),
    ),
    "views only": Fault(
        losses.mse_loss, "the_layout_in_memory_means_nothing",
        "crashed on 3 lists padded to 8 items: RuntimeError: view size is not compatible",
        lambda s, y, m: losses.mse_loss(s.view(-1).view_as(s), y, m),
    ),
}  # fmt: skip

# A knob that is not what it says, by the loss: the references of test_losses_reference.py catch it.
OF_KNOBS: dict[str, tuple[Callable[..., Tensor], dict[str, Any]]] = {
    "ranknet sigma ignored": (lambda *x, sigma=1.0, **more: losses.ranknet_loss(*x, **more), {}),
    "approxndcg temperature squared": (
        lambda *x, temperature=1.0, **y: losses.approx_ndcg_loss(
            *x, temperature=temperature**2, **y), {},
    ),
    "ordinal sigma ignored": (lambda *x, sigma=1.0, **more: losses.ordinal_loss(*x, **more), {}),
    "softndcg linear discount shifted": (
        losses.soft_ndcg_loss,
        {"ltr.losses.soft_ranks.ranks_like": lambda like: ranks_like(like) + 1},
    ),
}  # fmt: skip

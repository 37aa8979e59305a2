"""Row-stochastic relaxations from a softmax: NeuralSort, with or without noise, and SoftSort."""

import torch
from torch import Tensor

from ltr.knobs import check_positive, positive_int
from ltr.metrics.ordering import order_by_score, ranks_like, real_ranks, running_sums
from ltr.metrics.per_list import promoted
from ltr.typing import Mask, Matrix, SampledScores, Scores


def neural_sort(scores: Scores, mask: Mask, *, temperature: float = 1.0) -> Matrix:
    r"""Return the matrix P of NeuralSort; its row r is the distribution of the item at rank r.

    .. math::
        P_{rj} = \operatorname{softmax}_j
        \frac{(n + 1 - 2r) \, s_j - \sum_i |s_i - s_j|}{\mathrm{temperature}}

    where n is the number of items of the list and r goes from 1 to n. As the temperature goes to 0,
    P becomes the permutation matrix; items with equal scores share their ranks equally.

    Args:
        scores, mask: ``[batch, list]``, as described in ``ltr.relaxations``.
        temperature: > 0, in units of the scores.

    Returns:
        P, ``[batch, rank, item]``; the rows of the ranks up to n sum to one.

    Raises:
        ConfigError: ``temperature`` is not a finite number above 0.

    Source: Grover et al. (2019); Pobrotyn and Bialobrzeski (2021), eq. 3.

    >>> scores = torch.tensor([[1.0, 3.0, 9.0]])
    >>> neural_sort(scores, scores < 9, temperature=0.1).round().tolist()  # ranks 1, 2, none
    [[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]
    """
    temperature = check_positive("temperature", temperature)
    scores = promoted(scores).masked_fill(~mask, 0)
    sizes = mask.sum(-1, keepdim=True)
    # Shifting all scores does not change P; near 0 the sums below lose the fewest digits.
    center = scores.detach().sum(-1, keepdim=True) / sizes.clamp(min=1)
    scores = (scores - center).masked_fill(~mask, 0) / temperature
    weights = (sizes + 1 - 2 * ranks_like(mask)).to(scores.dtype)
    # An infinite spread leaves padding out of the softmax. A list that is only padding is an
    # exception, as it would give NaN.
    spread = _sum_of_distances(scores, mask).masked_fill(~mask & (sizes > 0), torch.inf)
    logits = weights.unsqueeze(-1) * scores.unsqueeze(-2) - spread.unsqueeze(-2)
    return logits.softmax(-1).masked_fill(~real_ranks(mask).unsqueeze(-1), 0)


def _sum_of_distances(scores: Scores, mask: Mask) -> Scores:
    """Return the sum over i of |s_i - s_j| for each j, ``[batch, list]``; undefined on padding.

    It is computed from one sort and prefix sums as s_j (#below - #above) - sum below + sum above.
    For equal scores, the results are equal to the last bit.
    """
    ascending = scores.masked_fill(~mask, torch.inf).sort(-1).values
    sizes = mask.sum(-1, keepdim=True)
    below = torch.searchsorted(ascending, scores.contiguous())
    not_above = torch.searchsorted(ascending, scores.contiguous(), right=True)
    prefix = torch.nn.functional.pad(
        running_sums(ascending.masked_fill(ascending == torch.inf, 0)), (1, 0)
    )
    sum_below = prefix.gather(-1, below)
    sum_above = prefix[:, -1:] - prefix.gather(-1, not_above)
    return scores * (below - (sizes - not_above)) - sum_below + sum_above


def soft_sort(scores: Scores, mask: Mask, *, temperature: float = 1.0) -> Matrix:
    r"""Return the matrix P of SoftSort; its row r is the distribution of the item at rank r.

    .. math::
        P_{rj} = \operatorname{softmax}_j \frac{-|s_{(r)} - s_j|}{\mathrm{temperature}}

    where s_(r) is the r-th largest score. As the temperature goes to 0, P becomes the permutation
    matrix; items with equal scores share their ranks equally.

    Args:
        scores, mask: ``[batch, list]``, as described in ``ltr.relaxations``.
        temperature: > 0, in units of the scores.

    Returns:
        P, ``[batch, rank, item]``; the rows of the ranks up to n sum to one.

    Raises:
        ConfigError: ``temperature`` is not a finite number above 0.

    Source: Prillo and Eisenschlos (2020), eq. 4 with the absolute difference as distance.

    >>> scores = torch.tensor([[1.0, 3.0, 9.0]])
    >>> soft_sort(scores, scores < 9)[0, 0]  # exp(-2) / (exp(-2) + 1) and the rest
    tensor([0.1192, 0.8808, 0.0000])
    """
    temperature = check_positive("temperature", temperature)
    scores = promoted(scores).masked_fill(~mask, 0)
    ordered = scores.gather(-1, order_by_score(scores, mask))
    distances = (ordered.unsqueeze(-1) - scores.unsqueeze(-2)).abs() / temperature
    # Leave padding out of the softmax, except in a list that is only padding: it would give NaN.
    outside = (~mask & mask.any(-1, keepdim=True)).unsqueeze(-2)
    logits = (-distances).masked_fill(outside, -torch.inf)
    return logits.softmax(-1).masked_fill(~real_ranks(mask).unsqueeze(-1), 0)


def drawn_scores(
    scores: Scores,
    mask: Mask,
    *,
    n_samples: int,
    beta: float,
    generator: torch.Generator | None = None,
) -> SampledScores:
    r"""Draw the noisy log scores that stochastic NeuralSort sorts.

    .. math::
        \log p_j + \beta \, G_j, \qquad p_j = 1 + s_j - \min_i s_i

    where the G_j are Gumbel noise and the minimum is over the items of the list. ``neural_sort`` of
    the noisy scores is a relaxed draw from the Plackett-Luce model, which picks the item of each
    rank in turn, with a probability in proportion to p_j^(1 / beta).

    Args:
        scores, mask: ``[batch, list]``, as described in ``ltr.relaxations``.
        n_samples: >= 1, the number of draws.
        beta: > 0, the scale of the noise.
        generator: draws the noise; None: torch's own generator.

    Returns:
        The noisy scores, ``[sample, batch, list]``.

    Raises:
        ConfigError: ``n_samples`` or ``beta`` is out of range.

    Source: Grover et al. (2019), section 4; Pobrotyn and Bialobrzeski (2021), section 4.1. Here
    beta scales only the noise; in both papers it scales log p too.
    """
    beta = check_positive("beta", beta)
    n_samples = positive_int("n_samples", n_samples)
    scores = promoted(scores)
    without_padding = scores.masked_fill(~mask, torch.inf)
    # one more column, because amin fails on lists of length 0
    lowest = torch.nn.functional.pad(without_padding, (0, 1), value=torch.inf)
    lowest = lowest.amin(-1, keepdim=True)
    logs = (scores - lowest).masked_fill(~mask, 0).log1p()
    noise = uniform_noise(mask, n_samples, logs, generator)
    gumbel = -(-noise.masked_fill(~mask, 0.5).log()).log()
    return logs + beta * gumbel


def _items_to_count(mask: Mask) -> int | None:
    """Return the number of real items; None if reading it would fail or wait for a GPU."""
    if mask.device.type != "cpu" or torch.compiler.is_compiling():
        return None
    try:
        return int(mask.sum())
    except RuntimeError:  # under vmap
        return None


def uniform_noise(
    mask: Mask, samples: int, like: Tensor, generator: torch.Generator | None = None
) -> Tensor:
    """Draw independent uniform numbers in (0, 1), ``[samples, batch, list]``; 0 on padding.

    On the CPU, numbers are drawn for real items only, in the order of the lists, so padding changes
    nothing. On a GPU (where counting the items would make the CPU wait), under torch.compile and
    under a vmap over masks, numbers are drawn for padding too. The number that an item gets then
    depends on how much padding there is, but not on where the padding is.

    Args:
        mask: ``[batch, list]``, True where an item exists.
        samples: how many numbers to draw for each item.
        like: a tensor with the dtype and the device of the result.
        generator: draws the numbers; None: torch's own generator of the device.

    Raises:
        NotImplementedError: vmap is active and its ``randomness`` is not set.
    """
    device = like.device if generator is None else generator.device
    n_items = _items_to_count(mask)
    shape = samples, mask.numel() if n_items is None else n_items
    try:
        drawn = torch.rand(shape, generator=generator, dtype=like.dtype, device=device)
    except RuntimeError as error:
        if "randomness" not in str(error):  # the argument that vmap asks for
            raise
        raise NotImplementedError(
            "this loss draws random numbers, which torch.func's vmap and hessian do not allow: "
            "call vmap or jacfwd with randomness='same' or 'different', or use "
            "jacrev(jacrev(loss))"
        ) from error
    limits = torch.finfo(like.dtype)
    drawn = drawn.to(like.device).clamp(limits.tiny, 1 - limits.eps)
    # the i-th number of each sample goes to the i-th real item of the batch
    if (
        n_items is not None
    ):  # indexing is slower here, because its threads mostly wait for each other
        noise = drawn.new_zeros(samples, *mask.shape)
        return noise.masked_scatter_(mask.expand_as(noise), drawn)
    index = (mask.flatten().cumsum(0) - 1).clamp(min=0)
    return drawn[:, index].view(samples, *mask.shape).masked_fill(~mask, 0)

"""Optimal transport: Sinkhorn scaling to a doubly stochastic matrix, and soft sorting with it."""

from typing import Any

import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.knobs import check_choice, positive_int
from ltr.metrics.ordering import at_items, order_by_score, real_ranks
from ltr.metrics.per_list import promoted
from ltr.relaxations.neuralsort import neural_sort
from ltr.relaxations.second_derivatives import fast_path
from ltr.typing import Mask, Matrix, Scores


def sinkhorn(
    matrix: Matrix, mask: Mask, *, max_iter: int = 30, tol: float = 1e-6, first: str = "columns"
) -> Matrix:
    r"""Normalise columns and rows in turn until both sum to one.

    .. math::
        \mathrm{diag}(u) \, P \, \mathrm{diag}(v), \qquad
        v_j \leftarrow \frac{1}{\sum_r u_r P_{rj}}, \qquad
        u_r \leftarrow \frac{1}{\sum_j P_{rj} v_j}

    For a list of n items, only the n x n block of its ranks 1 to n and its real items is read. The
    iterations compute only the factors u and v; the matrix and its gradient are formed once, at the
    end. A row or column whose sum has underflowed (below 1e-19 in float32) keeps its factor, so
    0/0 never occurs.

    Args:
        matrix: P, ``[batch, rank, item]``, non-negative, float32 or float64.
        mask: ``[batch, list]``, True where an item exists.
        max_iter: >= 1, the maximum number of iterations; one iteration normalises columns and rows.
        tol: >= 0; the iterations for a list end when every row and column sum differs from one by
            less than this.
        first: whether ``"columns"`` or ``"rows"`` are normalised first. The others are normalised
            last, so they sum to one exactly. ``"rows"`` gives the scaling of the transposed matrix.

    Returns:
        The scaled matrix, ``[batch, rank, item]``, 0 outside the block.

    Raises:
        ConfigError: ``max_iter``, ``tol`` or ``first`` is out of range.

    Source: Sinkhorn (1964); Pobrotyn and Bialobrzeski (2021), section 4.2 and its footnote 2.

    >>> matrix, mask = torch.tensor([[[0.5, 0.5], [0.0, 1.0]]]), torch.tensor([[True, True]])
    >>> sinkhorn(matrix, mask, max_iter=1)[0, 0].tolist()  # 0.5 / 0.5 and 0.5 / 1.5, then / 4/3
    [0.75, 0.25]
    """
    check_choice("first", first, ["columns", "rows"])
    check_iterations(max_iter, tol)
    if first == "rows":
        return _scaled(matrix.mT, mask, real_ranks(mask), max_iter, tol).mT
    return _scaled(matrix, real_ranks(mask), mask, max_iter, tol)


def check_iterations(max_iter: int, tol: float) -> None:
    """Raise ``ConfigError`` unless ``max_iter`` is an integer >= 1 and ``tol`` a number >= 0."""
    positive_int("max_iter", max_iter)
    if not tol >= 0:
        raise ConfigError(f"tol={tol} is out of range: write a number >= 0")


def _scaled(matrix: Matrix, *args: Any) -> Matrix:
    """Return the scaled matrix, with a hand-written gradient; ``_iterate`` gets the ``args``."""
    return fast_path(
        matrix,
        lambda matrix, _: _iterate(matrix, *args),
        _gradient,
        lambda matrix: _iterate(matrix, *args)[0],
    )


def _iterate(
    matrix: Matrix, rows: Mask, columns: Mask, max_iter: int, tol: float
) -> tuple[Tensor, ...]:
    """Scale P, which is ``matrix`` at the real ``rows`` and ``columns``, and 0 elsewhere.

    Return the scaled matrix, P, and four stacks with one vector per iteration: u, v, and two masks
    that are True where the iteration set u and v. The stack of u begins with the initial u.
    """
    p = matrix.masked_fill(~(rows.unsqueeze(-1) & columns.unsqueeze(-2)), 0)
    floor = torch.finfo(p.dtype).tiny ** 0.5
    u = rows.to(p.dtype)
    v = columns.to(p.dtype)
    histories: tuple[list[Tensor], ...] = ([u], [], [], [])  # u begins with its initial value
    running = rows.new_ones((len(rows), 1))
    # The test for an early end would wait for a GPU, and would break a compiled graph. Without it
    # the loop goes on, but lists that have converged do not change.
    may_end_early = p.device.type == "cpu" and not torch.compiler.is_compiling()
    for i in range(max_iter):
        sums = _column_sums(p, u)
        if i > 0:
            # The rows have just been normalised, so only the columns can deviate.
            within = ((v * sums - 1).abs() < tol) | ~columns
            running = running & ~within.all(-1, keepdim=True)
            if may_end_early and _all_false(running):
                break
        new_v = running & columns & (sums > floor)
        v = torch.where(new_v, _inverse(sums, new_v), v)
        sums = _row_sums(p, v)
        new_u = running & rows & (sums > floor)
        u = torch.where(new_u, _inverse(sums, new_u), u)
        for history, vector in zip(histories, (u, v, new_u, new_v), strict=True):
            history.append(vector)
    scaled = u.unsqueeze(-1) * p * v.unsqueeze(-2)
    return scaled, p, *(torch.stack(history) for history in histories)


def _all_false(flags: Tensor) -> bool:
    """Return whether all flags are False; return False under vmap, where the answer can vary."""
    try:
        return not flags.any()
    except RuntimeError:
        return False


def _inverse(sums: Tensor, used: Tensor) -> Tensor:
    """Return 1 / sums, valid where ``used``.

    If PyTorch differentiates the result, unused sums are replaced, because a sum of 0 would make
    the whole gradient NaN.
    """
    return 1 / (sums.masked_fill(~used, 1) if torch.is_grad_enabled() else sums)


def _gradient(
    grad: Tensor, p: Matrix, us: Tensor, vs: Tensor, new_us: Tensor, new_vs: Tensor
) -> Matrix:
    """Return the gradient with respect to P, given P and the vectors of the iterations."""
    # result = u p v
    grad_p = us[-1].unsqueeze(-1) * grad * vs[-1].unsqueeze(-2)
    product = grad * p
    grad_u = _row_sums(product, vs[-1])
    grad_v = _column_sums(product, us[-1])
    # Every matrix-vector product of the iterations adds an outer product to the gradient of p. The
    # factors are collected, and one matrix product computes the sum of the outer products.
    row_factors: list[Tensor] = []
    column_factors: list[Tensor] = []
    for i in reversed(range(len(vs))):
        # u_i = 1 / (p v_i)
        grad_sums = torch.where(new_us[i], -grad_u * us[i + 1] * us[i + 1], 0)
        grad_u = torch.where(new_us[i], 0, grad_u)
        grad_v = grad_v + _column_sums(p, grad_sums)
        row_factors.append(grad_sums)
        column_factors.append(vs[i])
        # v_i = 1 / (u_(i-1) p)
        grad_sums = torch.where(new_vs[i], -grad_v * vs[i] * vs[i], 0)
        grad_v = torch.where(new_vs[i], 0, grad_v)
        grad_u = grad_u + _row_sums(p, grad_sums)
        row_factors.append(us[i])
        column_factors.append(grad_sums)
    grad_p.baddbmm_(torch.stack(row_factors, -1), torch.stack(column_factors, -2))
    return grad_p


def _row_sums(matrix: Tensor, weights: Tensor) -> Tensor:
    """Return ``matrix @ weights``, without matmul, which autocast or TF32 may round to 10 bits."""
    return (matrix * weights.unsqueeze(-2)).sum(-1)


def _column_sums(matrix: Tensor, weights: Tensor) -> Tensor:
    """Return ``weights @ matrix``, without matmul."""
    return (matrix * weights.unsqueeze(-1)).sum(-2)


def ot_sort(
    scores: Scores, mask: Mask, *, temperature: float = 0.01, max_iter: int = 100, tol: float = 1e-6
) -> Matrix:
    r"""Return P, n times the optimal transport plan from ranks to items.

    .. math::
        P = \arg\min_P \sum_{r,j} P_{rj} (a_r - x_j)^2 - \mathrm{temperature} \cdot H(P), \qquad
        a_r = \frac{n - r}{n - 1}

    among all matrices whose rows and columns sum to one, where H is the entropy. The targets a_r go
    from 1 down to 0. The scores are squashed within each list, x = sigmoid((s - mean) / deviation),
    so scaling or shifting them changes nothing. As the temperature goes to 0, P becomes the
    permutation matrix; items with equal scores share their ranks equally. The solution is
    NeuralSort of x with n - 1 times the temperature, followed by Sinkhorn scaling.

    Args:
        scores, mask: ``[batch, list]``, as described in ``ltr.relaxations``.
        temperature: > 0, in units of a_r squared; the a_r of a list span an interval of length 1.
        max_iter, tol: as for ``sinkhorn``.

    Returns:
        P, ``[batch, rank, item]``, doubly stochastic.

    Raises:
        ConfigError: a keyword argument is out of range.

    Source: Cuturi, Teboul and Vert (2019), sections 3 and 4.

    >>> scores = torch.tensor([[1.0, 3.0, 9.0]])
    >>> ot_sort(scores, scores < 9, temperature=1e-3).round().tolist()  # ranks 1, 2, none
    [[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]
    """
    soft = neural_sort(squashed_scores(scores, mask), mask, temperature=temperature)
    return sinkhorn(soft, mask, max_iter=max_iter, tol=tol)


def squashed_scores(scores: Scores, mask: Mask) -> Scores:
    """Return the sigmoid of the standardised scores, divided by n - 1.

    n is the number of items of the list. ``ot_sort`` passes the result to NeuralSort.
    """
    standard = standardise_scores(promoted(scores), mask)
    squashed = _equal_where_tied(standard.sigmoid(), standard, mask)
    return squashed / (mask.sum(-1, keepdim=True) - 1).clamp(min=1)


def _equal_where_tied(values: Tensor, scores: Scores, mask: Mask) -> Tensor:
    """Return ``values``, made equal where ``scores`` are equal, with unchanged gradients.

    On the CPU, a function such as ``sigmoid`` rounds the last numbers of a tensor differently from
    the others, so its results for equal numbers can differ in the last digit. Here all tied items
    get the value of the first of them.
    """
    if values.device.type == "cuda":
        return values
    order = order_by_score(scores.detach(), mask)
    ordered = scores.detach().gather(-1, order)
    starts_tie = ordered != ordered.roll(1, -1)  # may be False at the first rank
    ranks = torch.arange(mask.shape[-1], device=mask.device)
    first_of_tie = ranks.where(starts_tie, 0).cummax(-1).values  # at each rank, from 0
    values_at_ranks = values.detach().gather(-1, order.gather(-1, first_of_tie))
    equal_values = values_at_ranks.gather(-1, at_items(order) - 1)
    return values + (equal_values - values).detach()


def standardise_scores(scores: Scores, mask: Mask) -> Scores:
    """Return (s - mean) / sqrt(variance + 1e-6) within each list, 0 on padding."""
    sizes = mask.sum(-1, keepdim=True).clamp(min=1)
    scores = scores.masked_fill(~mask, 0)
    centred = (scores - scores.sum(-1, keepdim=True) / sizes).masked_fill(~mask, 0)
    variance = centred.square().sum(-1, keepdim=True) / sizes
    return centred / (variance + 1e-6).sqrt()

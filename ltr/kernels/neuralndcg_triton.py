"""NeuralNDCG's sum and its gradient as one Triton kernel for CUDA, with one program per list."""

import triton
import triton.language as tl


@triton.jit
def _earlier(a, b):
    return tl.minimum(a, b)


@triton.jit
def _later(a, b):
    return tl.maximum(a, b)


@triton.jit
def _row_numbers(first, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Return the row numbers from ``first`` on, ``[ROWS, LANES]``; each lane holds its own."""
    return first + tl.arange(0, ROWS)[:, None] + 0 * tl.arange(0, LANES)[None, :]


@triton.jit
def _entries(x, x_rest, a, a_rest, top_ptr, states, r, n):
    """Return 2^(logit - logit on the diagonal) in the rows ``r``, ``[CHUNKS, ROWS, LANES]``."""
    w = (n - 1 - 2 * r).to(x.dtype)[None, :, :]
    top = tl.load(top_ptr + r * states, mask=r < n, other=-float("inf"))
    logits = w * x[:, None, :] - a[:, None, :] + top[None, :, :]
    if x.dtype == tl.float32:
        logits = (w * x_rest[:, None, :] + logits) - a_rest[:, None, :]
    return tl.exp2(logits)


@triton.jit
def _row_sums(entries):
    return tl.sum(tl.sum(entries, 0), 1)[:, None]


@triton.jit
def _store_rows(ptr, values, rows, LANES: tl.constexpr):
    tl.store(ptr, values, mask=rows & (tl.arange(0, LANES)[None, :] == 0))


@triton.jit
def _scale_columns(ptr, v, column_sums, columns, FLOOR: tl.constexpr):
    """Compute the next v from the column sums; store it, negative where it was not set."""
    new = columns & (column_sums > FLOOR)
    v = tl.where(new, 1.0 / tl.where(new, column_sums, 1.0), v)
    tl.store(ptr, tl.where(new, v, -v), mask=columns)
    return v


@triton.jit
def _through_columns(ptr, grad_v, v, columns):
    """Propagate the gradient from v to the column sums; store theirs, and return both gradients."""
    grad_columns = tl.where(v > 0, -grad_v * v * v, 0.0)
    grad_v = tl.where(v > 0, 0.0, grad_v)
    tl.store(ptr, grad_columns, mask=columns)
    return grad_columns, grad_v


@triton.jit
def _through_distances(
    slope_ptr, order_ptr, scores_ptr, sums_ptr, moments_ptr, scratch_ptr, n, BLOCK: tl.constexpr
):
    """Write the gradient with respect to the scores, from sums and moments of the one for P.

    a_j is the sum of |x_i - x_j|. Items with equal scores, from ``start`` to ``end``, add
    nothing to each other's sums.
    """
    k = tl.arange(0, BLOCK)
    real = k < n
    grad = tl.load(moments_ptr + k, mask=real, other=0.0).to(tl.float64)
    grad_a = tl.load(sums_ptr + k, mask=real, other=0.0).to(tl.float64)
    through = tl.cumsum(grad_a, 0)
    tl.store(scratch_ptr + k, through.to(scratch_ptr.dtype.element_ty), mask=real)
    score = tl.load(scores_ptr + k, mask=real, other=0.0)
    begins = score != tl.load(scores_ptr + k - 1, mask=real & (k > 0), other=float("inf"))
    ends = score != tl.load(scores_ptr + k + 1, mask=k + 1 < n, other=-float("inf"))
    start = tl.associative_scan(tl.where(begins, k, 0), 0, _later)
    end = tl.associative_scan(tl.where(ends, k + 1, BLOCK), 0, _earlier, reverse=True)
    tl.debug_barrier()
    grad += (start + end - 1 - 2 * k) * grad_a
    grad += tl.load(scratch_ptr + start - 1, mask=real & (start > 0), other=0.0)
    grad += tl.load(scratch_ptr + end - 1, mask=real, other=0.0) - tl.sum(grad_a, 0)
    item = tl.load(order_ptr + k, mask=real, other=0)
    tl.store(slope_ptr + item, grad.to(slope_ptr.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["size", "max_iter"])
def neural_ndcg_list(
    scores_ptr, order_ptr, gain_ptr, discount_ptr, sizes_ptr, value_ptr, slope_ptr, work_ptr,
    size, max_iter, tol, FLOOR: tl.constexpr, FAR: tl.constexpr, TRANSPOSED: tl.constexpr,
    CHUNKS: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, SLOPE_ROWS: tl.constexpr,
):  # fmt: skip
    """Do the steps of ``ltr.kernels.neuralndcg`` for one list, a tile of rows at a time.

    S = diag(u) E diag(v) with E[r, j] = 2^(l_rj - l_rr), where l are the logits of P in descending
    order of score. The diagonal entry is the largest of its row. Each iteration stores u and v, and
    the gradients with respect to the row sums and the column sums. Entries of u and v that the
    iteration has not set are stored as negative numbers.

    Row data are stored as [row, iteration], so Triton keeps them in the lanes that hold the
    row. There is a barrier between writing a number and reading it in another thread, and no number
    is overwritten.
    """
    b = tl.program_id(0).to(tl.int64)
    gain_ptr += b * size
    scores_ptr += b * size
    states = max_iter + 1  # the initial state and one for each iteration
    u_ptr = work_ptr + b * (5 * states + 2) * size
    v_ptr = u_ptr + states * size
    grad_u_ptr = v_ptr + states * size
    grad_rows_ptr = grad_u_ptr + states * size
    grad_columns_ptr = grad_rows_ptr + states * size
    top_ptr = grad_rows_ptr  # iteration 0 has no gradient of the row sums
    sums_ptr = grad_columns_ptr + states * size
    moments_ptr = sums_ptr + size
    dtype: tl.constexpr = work_ptr.dtype.element_ty

    BLOCK: tl.constexpr = CHUNKS * LANES
    k = tl.arange(0, BLOCK)
    n = tl.load(sizes_ptr + b).to(tl.int32)
    has_gain = tl.load(gain_ptr + k, mask=k < n, other=0.0) != 0
    # without any gain the gradient is 0, and the list is not computed
    n = tl.where(tl.max(tl.where(has_gain, 1, 0), 0) > 0, n, 0)
    real = k < n
    gap = tl.load(scores_ptr + k - 1, mask=real & (k > 0), other=0.0)
    gap -= tl.load(scores_ptr + k, mask=real & (k > 0), other=0.0)
    # Beyond FAR an entry is 0, and a wider gap would lose digits. Infinite scores become NaN.
    x = -tl.cumsum(tl.where(gap > FAR, FAR, gap) + 0 * gap, 0)
    x = tl.where(real, x - tl.sum(tl.where(real, x, 0.0), 0) / tl.maximum(n, 1), 0.0)
    top = 2 * tl.cumsum(x, 0) - x
    a = top + (n - 1 - 2 * k) * x  # the sum of the distances
    # Split into a head of few bits, for which products and sums are exact, and a rest.
    grid = tl.max(tl.where(real, tl.maximum(tl.abs(a), n * tl.abs(x)), 0.0), 0) * 2147483648.0
    if dtype == tl.float64:
        grid = 0 * grid
    top = (top + grid) - grid
    tl.store(top_ptr + k * states, top.to(dtype), mask=real)
    x_head = (x + grid) - grid
    a_head = (a + grid) - grid
    x_rest = tl.reshape((x - x_head).to(dtype), [CHUNKS, LANES])
    a_rest = tl.reshape((a - a_head).to(dtype), [CHUNKS, LANES])
    x = tl.reshape(x_head.to(dtype), [CHUNKS, LANES])
    a = tl.reshape(tl.where(real, a_head, float("inf")).to(dtype), [CHUNKS, LANES])
    j = tl.arange(0, CHUNKS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    columns = j < n
    gain = tl.load(gain_ptr + j, mask=columns, other=0.0)
    zeros = tl.zeros([CHUNKS, LANES], dtype)
    tile_zeros = tl.zeros([CHUNKS, ROWS, LANES], dtype)
    tl.debug_barrier()

    # normalise the rows
    sums = tile_zeros
    for first in range(0, n, ROWS):
        r = _row_numbers(first, ROWS, LANES)
        e = _entries(x, x_rest, a, a_rest, top_ptr, states, r, n)
        u = 1.0 / tl.where(r < n, _row_sums(e), 1.0)
        _store_rows(u_ptr + r * states, u, r < n, LANES)
        sums += e * u[None, :, :]
    column_sums = tl.sum(sums, 1)

    # Sinkhorn scaling
    v = zeros + 1.0
    last = max_iter * 0
    i = last + 1
    running = i > 0
    while running:
        tl.debug_barrier()
        if not TRANSPOSED:
            # The rows have just been normalised, so only the columns can deviate.
            far = tl.where(columns & ~(tl.abs(v * column_sums - 1.0) < tol), 1, 0)
            running = (i == 1) | (tl.max(tl.max(far, 1), 0) > 0)
            if running:
                v = _scale_columns(v_ptr + i * size + j, v, column_sums, columns, FLOOR)
        if running:
            sums = tile_zeros
            far_rows = tl.zeros([ROWS, LANES], tl.int32)
            for first in range(0, n, ROWS):
                r = _row_numbers(first, ROWS, LANES)
                e = _entries(x, x_rest, a, a_rest, top_ptr, states, r, n)
                u = tl.abs(tl.load(u_ptr + r * states + i - 1, mask=r < n, other=0.0))
                total = _row_sums(e * v[:, None, :])
                if TRANSPOSED:
                    far_rows = tl.where((r < n) & ~(tl.abs(u * total - 1.0) < tol), 1, far_rows)
                new = total > FLOOR
                u = tl.where(new, 1.0 / tl.where(new, total, 1.0), u)
                _store_rows(u_ptr + r * states + i, tl.where(new, u, -u), r < n, LANES)
                sums += e * u[None, :, :]
            column_sums = tl.sum(sums, 1)
            if TRANSPOSED:
                running = (i == 1) | (tl.max(tl.max(far_rows, 1), 0) > 0)
                if running:
                    v = _scale_columns(v_ptr + i * size + j, v, column_sums, columns, FLOOR)
        if running:
            last = i
            i += 1
            running = i <= max_iter
    tl.debug_barrier()

    # the value, and the gradients with respect to the last u and v
    sums = tile_zeros
    value = tl.zeros([ROWS, LANES], dtype)
    scaled_gain = v * gain
    for first in range(0, n, ROWS):
        r = _row_numbers(first, ROWS, LANES)
        e = _entries(x, x_rest, a, a_rest, top_ptr, states, r, n)
        u = tl.abs(tl.load(u_ptr + r * states + last, mask=r < n, other=0.0))
        d = tl.load(discount_ptr + r, mask=r < n, other=0.0)
        total = d * _row_sums(e * scaled_gain[:, None, :])
        _store_rows(grad_u_ptr + r * states + last, total, r < n, LANES)
        value += u * total
        sums += e * (d * u)[None, :, :]
    tl.store(value_ptr + b, tl.sum(tl.sum(value, 1), 0) / LANES)
    grad_v = gain * tl.sum(sums, 1)

    # back through the scaling
    grad_columns = zeros
    i = last
    while i > 0:
        tl.debug_barrier()
        v = tl.load(v_ptr + i * size + j, mask=columns, other=-1.0)
        if TRANSPOSED:
            grad_columns, grad_v = _through_columns(
                grad_columns_ptr + i * size + j, grad_v, v, columns
            )
        sums = tile_zeros
        for first in range(0, n, ROWS):
            r = _row_numbers(first, ROWS, LANES)
            e = _entries(x, x_rest, a, a_rest, top_ptr, states, r, n)
            u = tl.load(u_ptr + r * states + i, mask=r < n, other=-1.0)
            grad_u = tl.load(grad_u_ptr + r * states + i, mask=r < n, other=0.0)
            grad_u += _row_sums(e * grad_columns[:, None, :])
            grad_rows = tl.where(u > 0, -grad_u * u * u, 0.0)
            _store_rows(grad_rows_ptr + r * states + i, grad_rows, r < n, LANES)
            earlier_grad_u = tl.where(u > 0, 0.0, grad_u)
            _store_rows(grad_u_ptr + r * states + i - 1, earlier_grad_u, r < n, LANES)
            sums += e * grad_rows[None, :, :]
        grad_v += tl.sum(sums, 1)
        if not TRANSPOSED:
            grad_columns, grad_v = _through_columns(
                grad_columns_ptr + i * size + j, grad_v, v, columns
            )
        i -= 1
    tl.debug_barrier()

    # Only here is the gradient with respect to E formed, as a sum g of outer products. Its diagonal
    # entry and then the mean of its row are subtracted. This mean is small if P is nearly a
    # permutation, so no large numbers cancel.
    sums = zeros
    moments = zeros
    for first in range(0, n, SLOPE_ROWS):
        r = _row_numbers(first, SLOPE_ROWS, LANES)
        d = tl.load(discount_ptr + r, mask=r < n, other=0.0)
        d *= tl.abs(tl.load(u_ptr + r * states + last, mask=r < n, other=0.0))
        g = d[None, :, :] * scaled_gain[:, None, :]
        for i in range(1, last + 1):
            grad_rows = tl.load(grad_rows_ptr + r * states + i, mask=r < n, other=0.0)
            u = tl.load(u_ptr + r * states + i - 1 + TRANSPOSED, mask=r < n, other=0.0)
            stored = columns & (i > TRANSPOSED)  # v of iteration 0 is 1 and not stored
            v = tl.load(v_ptr + (i - TRANSPOSED) * size + j, mask=stored, other=1.0)
            grad_columns = tl.load(grad_columns_ptr + i * size + j, mask=columns, other=0.0)
            g += grad_rows[None, :, :] * tl.abs(v)[:, None, :]
            g += tl.abs(u)[None, :, :] * grad_columns[:, None, :]
        e = _entries(x, x_rest, a, a_rest, top_ptr, states, r, n)
        away = j[:, None, :] - r[None, :, :]
        g = e * (g - _row_sums(tl.where(away == 0, g, 0.0))[None, :, :])
        mean = _row_sums(g) / tl.where(r < n, _row_sums(e), 1.0)
        g -= e * mean[None, :, :]
        sums += tl.sum(g, 1)
        moments += tl.sum(2 * away.to(dtype) * g, 1)
    tl.store(sums_ptr + j, sums, mask=columns)
    tl.store(moments_ptr + j, moments, mask=columns)
    tl.debug_barrier()

    _through_distances(
        slope_ptr + b * size, order_ptr + b * size, scores_ptr, sums_ptr, moments_ptr, v_ptr, n,
        BLOCK,
    )  # fmt: skip

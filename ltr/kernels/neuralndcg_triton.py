"""NeuralNDCG's sum and its slopes as one Triton kernel for CUDA, with one program per list."""

import triton
import triton.language as tl


@triton.jit
def _earlier(a, b):
    return tl.minimum(a, b)


@triton.jit
def _later(a, b):
    return tl.maximum(a, b)


@triton.jit
def _numbers(first, ROWS: tl.constexpr, LANES: tl.constexpr):
    """Return the row numbers from ``first`` on, ``[ROWS, LANES]``; each lane holds its own."""
    return first + tl.arange(0, ROWS)[:, None] + 0 * tl.arange(0, LANES)[None, :]


@triton.jit
def _entries(x, x_rest, a, a_rest, top_ptr, most, r, n):
    """Return 2^(logit - diagonal's logit) of the rows ``r``, ``[CHUNKS, ROWS, LANES]``."""
    w = (n - 1 - 2 * r).to(x.dtype)[None, :, :]
    top = tl.load(top_ptr + r * most, mask=r < n, other=-float("inf"))
    logits = w * x[:, None, :] - a[:, None, :] + top[None, :, :]
    if x.dtype == tl.float32:
        logits = (w * x_rest[:, None, :] + logits) - a_rest[:, None, :]
    return tl.exp2(logits)


@triton.jit
def _row_sums(entries):
    return tl.sum(tl.sum(entries, 0), 1)[:, None]


@triton.jit
def _keep(ptr, values, rows, LANES: tl.constexpr):
    tl.store(ptr, values, mask=rows & (tl.arange(0, LANES)[None, :] == 0))


@triton.jit(do_not_specialize=["size", "max_iter"])
def neural_ndcg_list(
    scores_ptr, order_ptr, gain_ptr, discount_ptr, sizes_ptr, value_ptr, slope_ptr, work_ptr,
    size, max_iter, tol, FLOOR: tl.constexpr, FAR: tl.constexpr, TRANSPOSED: tl.constexpr,
    CHUNKS: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, SLOPE_ROWS: tl.constexpr,
):  # fmt: skip
    """Do the steps of ``ltr.kernels.neuralndcg`` for one list, a tile of rows at a time.

    S = diag(u) E diag(v) with E[r, j] = 2^(l_rj - l_rr), where l are the logits of P in descending
    order of score; the diagonal is the largest entry of its row. Each iteration stores u and v,
    negative where it has not set them, and the slopes with respect to the row sums and to the
    column sums.

    Data of rows is stored as [row, iteration], so that Triton keeps it in the lanes that hold the
    row. There is a barrier between writing a number and reading it in another thread, and no number
    is overwritten.
    """
    b = tl.program_id(0).to(tl.int64)
    gain_ptr += b * size
    scores_ptr += b * size
    most = max_iter + 1
    u_ptr = work_ptr + b * (5 * most + 2) * size
    v_ptr = u_ptr + most * size
    of_u_ptr = v_ptr + most * size  # the slope with respect to u
    of_rows_ptr = of_u_ptr + most * size
    of_columns_ptr = of_rows_ptr + most * size
    top_ptr = of_rows_ptr  # uses the unused place of iteration 0
    sums_ptr = of_columns_ptr + most * size
    moments_ptr = sums_ptr + size
    dtype: tl.constexpr = work_ptr.dtype.element_ty

    BLOCK: tl.constexpr = CHUNKS * LANES
    k = tl.arange(0, BLOCK)
    n = tl.load(sizes_ptr + b).to(tl.int32)
    found = tl.load(gain_ptr + k, mask=k < n, other=0.0) != 0
    n = tl.where(tl.max(tl.where(found, 1, 0), 0) > 0, n, 0)  # no gain, no slope: no work
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
    tl.store(top_ptr + k * most, top.to(dtype), mask=real)
    x_head, a_head = (x + grid) - grid, (a + grid) - grid
    x_rest = tl.reshape((x - x_head).to(dtype), [CHUNKS, LANES])
    a_rest = tl.reshape((a - a_head).to(dtype), [CHUNKS, LANES])
    x = tl.reshape(x_head.to(dtype), [CHUNKS, LANES])
    a = tl.reshape(tl.where(real, a_head, float("inf")).to(dtype), [CHUNKS, LANES])
    j = tl.arange(0, CHUNKS)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    columns = j < n
    gain = tl.load(gain_ptr + j, mask=columns, other=0.0)
    zero, nothing = tl.zeros([CHUNKS, LANES], dtype), tl.zeros([CHUNKS, ROWS, LANES], dtype)
    tl.debug_barrier()

    sums = nothing
    for first in range(0, n, ROWS):
        r = _numbers(first, ROWS, LANES)
        e = _entries(x, x_rest, a, a_rest, top_ptr, most, r, n)
        u = 1.0 / tl.where(r < n, _row_sums(e), 1.0)
        _keep(u_ptr + r * most, u, r < n, LANES)
        sums += e * u[None, :, :]
    column = tl.sum(sums, 1)

    v = zero + 1.0
    last = max_iter * 0
    i = last + 1
    running = i > 0
    while running:
        tl.debug_barrier()
        if not TRANSPOSED:
            # The rows have just been normalised, so only the columns can deviate.
            off = tl.where(columns & ~(tl.abs(v * column - 1.0) < tol), 1, 0)
            running = (i == 1) | (tl.max(tl.max(off, 1), 0) > 0)
            if running:
                new = columns & (column > FLOOR)
                v = tl.where(new, 1.0 / tl.where(new, column, 1.0), v)
                tl.store(v_ptr + i * size + j, tl.where(new, v, -v), mask=columns)
        if running:
            sums = nothing
            far = tl.zeros([ROWS, LANES], tl.int32)
            for first in range(0, n, ROWS):
                r = _numbers(first, ROWS, LANES)
                e = _entries(x, x_rest, a, a_rest, top_ptr, most, r, n)
                u = tl.abs(tl.load(u_ptr + r * most + i - 1, mask=r < n, other=0.0))
                total = _row_sums(e * v[:, None, :])
                if TRANSPOSED:
                    far = tl.where((r < n) & ~(tl.abs(u * total - 1.0) < tol), 1, far)
                new = total > FLOOR
                u = tl.where(new, 1.0 / tl.where(new, total, 1.0), u)
                _keep(u_ptr + r * most + i, tl.where(new, u, -u), r < n, LANES)
                sums += e * u[None, :, :]
            column = tl.sum(sums, 1)
            if TRANSPOSED:
                running = (i == 1) | (tl.max(tl.max(far, 1), 0) > 0)
                if running:
                    new = columns & (column > FLOOR)
                    v = tl.where(new, 1.0 / tl.where(new, column, 1.0), v)
                    tl.store(v_ptr + i * size + j, tl.where(new, v, -v), mask=columns)
        if running:
            last = i
            i += 1
            running = i <= max_iter
    tl.debug_barrier()

    sums = nothing
    value = tl.zeros([ROWS, LANES], dtype)
    gained = v * gain
    for first in range(0, n, ROWS):
        r = _numbers(first, ROWS, LANES)
        e = _entries(x, x_rest, a, a_rest, top_ptr, most, r, n)
        u = tl.abs(tl.load(u_ptr + r * most + last, mask=r < n, other=0.0))
        d = tl.load(discount_ptr + r, mask=r < n, other=0.0)
        total = d * _row_sums(e * gained[:, None, :])
        _keep(of_u_ptr + r * most + last, total, r < n, LANES)
        value += u * total
        sums += e * (d * u)[None, :, :]
    tl.store(value_ptr + b, tl.sum(tl.sum(value, 1), 0) / LANES)
    slope_v = gain * tl.sum(sums, 1)

    of_columns = zero
    i = last
    while i > 0:
        tl.debug_barrier()
        v = tl.load(v_ptr + i * size + j, mask=columns, other=-1.0)
        if TRANSPOSED:
            of_columns = tl.where(v > 0, -slope_v * v * v, 0.0)
            slope_v = tl.where(v > 0, 0.0, slope_v)
            tl.store(of_columns_ptr + i * size + j, of_columns, mask=columns)
        sums = nothing
        for first in range(0, n, ROWS):
            r = _numbers(first, ROWS, LANES)
            e = _entries(x, x_rest, a, a_rest, top_ptr, most, r, n)
            u = tl.load(u_ptr + r * most + i, mask=r < n, other=-1.0)
            of_u = tl.load(of_u_ptr + r * most + i, mask=r < n, other=0.0)
            of_u += _row_sums(e * of_columns[:, None, :])
            of_rows = tl.where(u > 0, -of_u * u * u, 0.0)
            _keep(of_rows_ptr + r * most + i, of_rows, r < n, LANES)
            _keep(of_u_ptr + r * most + i - 1, tl.where(u > 0, 0.0, of_u), r < n, LANES)
            sums += e * of_rows[None, :, :]
        slope_v += tl.sum(sums, 1)
        if not TRANSPOSED:
            of_columns = tl.where(v > 0, -slope_v * v * v, 0.0)
            slope_v = tl.where(v > 0, 0.0, slope_v)
            tl.store(of_columns_ptr + i * size + j, of_columns, mask=columns)
        i -= 1
    tl.debug_barrier()

    # Only here is g formed, the slope with respect to E, as a sum of outer products. Its diagonal
    # entry and then the row's mean are subtracted. That mean is small if P is nearly a permutation,
    # so that no large numbers cancel.
    sums, moments = zero, zero
    for first in range(0, n, SLOPE_ROWS):
        r = _numbers(first, SLOPE_ROWS, LANES)
        d = tl.load(discount_ptr + r, mask=r < n, other=0.0)
        d *= tl.abs(tl.load(u_ptr + r * most + last, mask=r < n, other=0.0))
        g = d[None, :, :] * gained[:, None, :]
        for i in range(1, last + 1):
            of_rows = tl.load(of_rows_ptr + r * most + i, mask=r < n, other=0.0)
            u = tl.load(u_ptr + r * most + i - 1 + TRANSPOSED, mask=r < n, other=0.0)
            before = columns & (i > TRANSPOSED)
            v = tl.load(v_ptr + (i - TRANSPOSED) * size + j, mask=before, other=1.0)
            of_columns = tl.load(of_columns_ptr + i * size + j, mask=columns, other=0.0)
            g += of_rows[None, :, :] * tl.abs(v)[:, None, :]
            g += tl.abs(u)[None, :, :] * of_columns[:, None, :]
        e = _entries(x, x_rest, a, a_rest, top_ptr, most, r, n)
        away = j[:, None, :] - r[None, :, :]
        g = e * (g - _row_sums(tl.where(away == 0, g, 0.0))[None, :, :])
        mean = _row_sums(g) / tl.where(r < n, _row_sums(e), 1.0)
        g -= e * mean[None, :, :]
        sums += tl.sum(g, 1)
        moments += tl.sum(2 * away.to(dtype) * g, 1)
    tl.store(sums_ptr + j, sums, mask=columns)
    tl.store(moments_ptr + j, moments, mask=columns)
    tl.debug_barrier()

    # a_j is the sum of |x_i - x_j|; items with equal scores, from start to end, add nothing.
    slope = tl.load(moments_ptr + k, mask=real, other=0.0).to(tl.float64)
    of_a = tl.load(sums_ptr + k, mask=real, other=0.0).to(tl.float64)
    through = tl.cumsum(of_a, 0)
    tl.store(v_ptr + k, through.to(dtype), mask=real)
    here = tl.load(scores_ptr + k, mask=real, other=0.0)
    begins = here != tl.load(scores_ptr + k - 1, mask=real & (k > 0), other=float("inf"))
    ends = here != tl.load(scores_ptr + k + 1, mask=k + 1 < n, other=-float("inf"))
    start = tl.associative_scan(tl.where(begins, k, 0), 0, _later)
    end = tl.associative_scan(tl.where(ends, k + 1, BLOCK), 0, _earlier, reverse=True)
    tl.debug_barrier()
    slope += (start + end - 1 - 2 * k) * of_a
    slope += tl.load(v_ptr + start - 1, mask=real & (start > 0), other=0.0)
    slope += tl.load(v_ptr + end - 1, mask=real, other=0.0) - tl.sum(of_a, 0)
    place = tl.load(order_ptr + b * size + k, mask=real, other=0)
    tl.store(slope_ptr + b * size + place, slope.to(dtype), mask=real)

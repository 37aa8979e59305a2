"""The lists on which the battery tries a loss."""

import torch
from torch import Tensor

# scores, labels, and which of the items exist
DEGENERATE: dict[str, tuple[list[float], list[int], list[int]]] = {
    "an empty list": ([0.3, -0.2, 0.9], [0, 0, 0], [1, 1, 1]),
    "a list of one grade": ([0.3, -0.2, 0.9], [2, 2, 2], [1, 1, 1]),
    "a list all tied": ([0.5, 0.5, 0.5], [0, 3, 1], [1, 1, 1]),
    "a list of one item": ([0.3, -0.2, 0.9], [0, 3, 1], [0, 1, 0]),
    "an empty list of one item": ([0.3, -0.2, 0.9], [0, 0, 1], [0, 1, 0]),
    "a list of two items": ([0.3, -0.2, 0.9], [0, 3, 1], [1, 1, 0]),
    "a list of no items": ([0.3, -0.2, 0.9], [0, 3, 1], [0, 0, 0]),
    "scores 1e4 apart": ([1e4, -1e4, 0.0], [0, 3, 1], [1, 1, 1]),
    "scores all at 1e4": ([1e4, 1e4, 1e4], [0, 3, 1], [1, 1, 1]),
    "scores all at -1e4": ([-1e4, -1e4, -1e4], [0, 3, 1], [1, 1, 1]),
    "saturated scores": ([1.0, 1.0, -1.0], [0, 3, 1], [1, 1, 1]),
    "scores 1e-12 apart": ([1e-12, 0.0, -1e-12], [0, 3, 1], [1, 1, 1]),
}


def ragged(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Lists of 6, 3 and 4 items with padding behind, in front and between; some labels are equal.

    >>> [x.shape for x in ragged()], ragged()[2].sum(-1).tolist()
    ([torch.Size([3, 8]), torch.Size([3, 8]), torch.Size([3, 8])], [6, 3, 4])
    """
    generator = torch.Generator().manual_seed(0)
    mask = torch.tensor(
        [[1, 1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1, 1, 0], [1, 0, 1, 0, 0, 1, 1, 0]],
        dtype=torch.bool,
    )
    scores = torch.randn(3, 8, dtype=dtype, generator=generator)
    labels = torch.tensor([4, 0, 2, 0, 1, 3, 2, 0], dtype=dtype).expand(3, 8).clone()
    return scores, labels, mask


def padded(rows: list[list[tuple[float, int]]]) -> tuple[Tensor, Tensor, Tensor]:
    """Lists of (score, label) as float64 tensors, one place of padding in front of every item.

    >>> scores, labels, mask = padded([[(0.5, 2), (0.25, 1)], [(4.0, 3)]])
    >>> scores[mask].tolist(), labels[mask].tolist(), mask.tolist()[1]
    ([0.5, 0.25, 4.0], [2.0, 1.0, 3.0], [False, True, False, False])
    """
    width = 2 * max(map(len, rows))
    scores = torch.full((len(rows), width), 7.0, dtype=torch.float64)
    labels = torch.full((len(rows), width), 2.0, dtype=torch.float64)
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        for j, (score, label) in enumerate(row):
            scores[i, 2 * j + 1], labels[i, 2 * j + 1], mask[i, 2 * j + 1] = score, label, True
    return scores, labels, mask

"""Pad the scores and labels of lists of different lengths into the tensors that losses take."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ltr.errors import ConfigError
from ltr.metrics.per_list import describe_value
from ltr.typing import Labels, Mask, Scores


def pad_lists(scores: Tensor | Sequence[Any], labels: Sequence[Any]) -> tuple[Scores, Labels, Mask]:
    """Pad scores and labels of lists of different lengths into the tensors that losses take.

    Metrics take the same tensors.

    Args:
        scores: one flat tensor, ``[items]``, with the lists one after another; or one tensor,
            ``[items]``, per list.
        labels: one tensor, array or sequence of numbers, ``[items]``, per list.

    Returns:
        ``(scores, labels, mask)``, each ``[batch, list]``. The scores keep their gradient and
        dtype. The labels are on the scores' device, in float64 if any of the label lists is
        float64, otherwise in float32. Shorter lists end with padding, which no loss reads.

    Raises:
        ConfigError: the numbers of scores and labels differ, or there are no lists.

    >>> pad_lists(torch.tensor([0.1, 0.9, 0.5]), [[2], [0, 1]])[1:]
    (tensor([[2., 0.],
            [0., 1.]]), tensor([[ True, False],
            [ True,  True]]))
    """
    label_lists = [torch.as_tensor(values) for values in labels]
    if not label_lists or any(values.dim() != 1 for values in label_lists):
        raise ConfigError(
            "labels: expected one sequence of numbers per list, such as [[1, 0], [2, 0, 1]]"
        )
    lengths = [len(values) for values in label_lists]
    if isinstance(scores, Tensor):
        if scores.shape != (sum(lengths),):
            raise ConfigError(
                f"scores: expected one score per item, [{sum(lengths)}], because there are "
                f"{sum(lengths)} labels in {len(lengths)} lists, got {describe_value(scores)}"
            )
        scores = scores.split(lengths)
    score_lists = [torch.as_tensor(values) for values in scores]
    if [values.shape for values in score_lists] != [(length,) for length in lengths]:
        raise ConfigError(
            f"scores: expected one score per label, in lists of lengths {lengths}, got shapes "
            f"{[list(values.shape) for values in score_lists]}"
        )
    padded = pad_sequence(score_lists, batch_first=True)
    has_float64 = any(values.dtype == torch.float64 for values in label_lists)
    dtype = torch.float64 if has_float64 else torch.float32
    label_lists = [values.to(padded.device, dtype) for values in label_lists]
    columns = torch.arange(padded.shape[1], device=padded.device)
    mask = columns < torch.tensor(lengths, device=padded.device).unsqueeze(-1)
    return padded, pad_sequence(label_lists, batch_first=True), mask

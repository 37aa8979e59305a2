"""Ragged lists as tensors: from scores and labels of lists of any lengths to what losses take."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ltr.errors import ConfigError
from ltr.metrics.per_list import told
from ltr.typing import Labels, Mask, Scores


def pad_lists(scores: Tensor | Sequence[Any], labels: Sequence[Any]) -> tuple[Scores, Labels, Mask]:
    """Return ``(scores, labels, mask)``, each ``[batch, list]``, as every loss and metric takes it.

    The scores keep their gradient and dtype. The labels are put on the scores' device, in float32,
    or float64 if they have it. Shorter lists end with padding, which no loss reads.

    Args:
        scores: ``[items]``, those of all lists one after another, or a tensor ``[items]`` a list.
        labels: for each list those of its items: a tensor, an array or numbers.

    Raises:
        ConfigError: the numbers of scores and labels differ, or there are no lists.

    >>> pad_lists(torch.tensor([0.1, 0.9, 0.5]), [[2], [0, 1]])[1:]
    (tensor([[2., 0.],
            [0., 1.]]), tensor([[ True, False],
            [ True,  True]]))
    """
    given = [torch.as_tensor(of_list) for of_list in labels]
    if not given or any(of_list.dim() != 1 for of_list in given):
        raise ConfigError("labels: wanted those of each list, [items], such as [[1, 0], [2, 0, 1]]")
    lengths = [len(of_list) for of_list in given]
    if isinstance(scores, Tensor):
        if scores.shape != (sum(lengths),):
            raise ConfigError(
                f"scores: given is {told(scores)}, wanted one score an item, [{sum(lengths)}], as "
                f"the labels are of {sum(lengths)} items in {len(lengths)} lists"
            )
        scores = scores.split(lengths)
    scores = [torch.as_tensor(of_list) for of_list in scores]
    if [of_list.shape for of_list in scores] != [(length,) for length in lengths]:
        raise ConfigError(
            "scores and labels: wanted as many scores of each list as labels, [items]"
        )
    padded = pad_sequence(scores, batch_first=True)
    dtype = torch.float64 if torch.float64 in {x.dtype for x in given} else torch.float32
    ragged = [of_list.to(padded.device, dtype) for of_list in given]
    places = torch.arange(padded.shape[1], device=padded.device)
    mask = places < torch.tensor(lengths, device=padded.device).unsqueeze(-1)
    return padded, pad_sequence(ragged, batch_first=True), mask

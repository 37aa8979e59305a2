"""LambdaRank as the RankNet note derives it: one lambda per item, without a graph over pairs."""

import torch
from torch import Tensor

from ltr.errors import ConfigError
from ltr.losses.inputs import without_padding
from ltr.losses.lambdarank import ndcg_parts
from ltr.metrics.checks import check_choice, check_positive
from ltr.metrics.ordering import rank_of_item
from ltr.typing import Labels, Mask, Scores


@torch.no_grad()
def lambdarank_lambdas(
    scores: Scores,
    labels: Labels,
    mask: Mask,
    *,
    k: int | None = None,
    sigma: float = 1.0,
    pairs: str = "any",
    block: int = 64,
) -> Scores:
    """How strongly LambdaRank pushes each item up, ``[batch, list]``; without gradient.

    lambda_i = sum over j with y_i > y_j of lambda_ij - sum over j with y_j > y_i of lambda_ji, with
    lambda_ij = sigma |delta NDCG@k|_ij / (1 + exp(sigma (s_i - s_j))) (the RankNet note, "for each
    document we can simply accumulate lambda"; Burges, 2010, section 4.1). This is minus the
    gradient of ``lambdarank_loss``, which takes the same knobs, but the pairs are formed for
    ``block`` items at a time and not kept: memory grows with the list, not with its square.
    ``scores.backward(-lambdas)`` is then one pass through the model. 0 on padding and for lists
    without pairs.

    Args:
        scores: ``[batch, list]``, higher is better.
        labels: ``[batch, list]``, graded relevance, 0 = not relevant.
        mask: ``[batch, list]``, True where an item exists.
        k: cutoff rank >= 1, None for the whole list.
        sigma: > 0, slope of the logistic, in units of 1 / score.
        pairs: ``"any"`` or ``"both"``, which pairs count at a cutoff; see ``lambdarank_loss``.
        block: >= 1, items whose pairs are formed at a time; changes no value.

    Returns:
        float64 for float64 scores, else float32.

    Raises:
        ConfigError: a knob is out of range.

    >>> scores, labels = torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> mask = torch.tensor([[True, True]])
    >>> lambdarank_lambdas(scores, labels, mask, k=1)  # |1 - 0| / (1 + exp(0)), up and down
    tensor([[-0.5000,  0.5000]])
    """
    check_choice("pairs", pairs, ["any", "both"])
    check_positive("sigma", sigma)
    if block < 1:
        raise ConfigError(f"block={block} is out of range: write an integer >= 1")
    scores, labels = without_padding(scores, labels, mask)
    gain, discount = ndcg_parts(scores, labels, mask, k=k)
    counted = mask
    if pairs == "both" and k is not None:
        counted = mask & (rank_of_item(scores, mask) <= k)
    lambdas = torch.zeros_like(scores)
    for start in range(0, scores.shape[-1], block):
        some = slice(start, start + block)

        def difference(values: Tensor, some: slice = some) -> Tensor:
            return values[:, some].unsqueeze(-1) - values.unsqueeze(-2)

        # 1 if the item is the better one of the pair, -1 if the worse
        direction = difference(labels).sign()
        push = sigma * (-sigma * direction * difference(scores)).sigmoid()
        push *= (difference(gain) * difference(discount)).abs() * direction
        push *= counted[:, some].unsqueeze(-1) & counted.unsqueeze(-2)
        lambdas[:, some] = push.sum(-1)
    return lambdas

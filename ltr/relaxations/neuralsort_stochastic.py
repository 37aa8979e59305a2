"""Stochastic NeuralSort: NeuralSort of scores that Gumbel noise has perturbed."""

import torch

from ltr.errors import ConfigError
from ltr.metrics.checks import check_positive
from ltr.relaxations.neuralsort import neural_sort
from ltr.relaxations.noise import uniform_noise
from ltr.typing import Mask, Matrices, SampledScores, Scores


def stochastic_neural_sort(
    scores: Scores,
    mask: Mask,
    *,
    temperature: float = 1.0,
    n_samples: int = 8,
    beta: float = 1.0,
    generator: torch.Generator | None = None,
) -> Matrices:
    """NeuralSort of ``log(positive scores) + beta * Gumbel noise``, drawn ``n_samples`` times.

    The matrices ``[sample, batch, rank, item]`` are relaxed draws from the Plackett-Luce model in
    which an item of positive score p_j is drawn next with a probability in proportion to p_j (its
    power 1 / beta in general; Grover et al., 2019, section 4; the NeuralNDCG paper, 4.1). Scores
    are made positive list by list, p_j = 1 + s_j - min over the list's items of s_i; the papers
    take positive scores for granted. The 1 keeps the logarithm's slope at most 1. The papers scale
    log p with beta too, which makes beta a second unit of the temperature; here it is the amount of
    noise, and without noise this is NeuralSort of log p.

    Args:
        scores: ``[batch, list]``, higher is better.
        mask: ``[batch, list]``, True where an item exists, padding anywhere.
        temperature: > 0, in units of log scores; smaller is closer to sorting.
        n_samples: >= 1, draws.
        beta: > 0, scale of the noise.
        generator: what draws; None is torch's own generator of the device, see ``uniform_noise``.

    Raises:
        ConfigError: a knob is out of range.

    >>> scores, mask = torch.tensor([[1.0, 5.0, 9.0]]), torch.tensor([[True, True, False]])
    >>> generator = torch.Generator().manual_seed(0)
    >>> soft = stochastic_neural_sort(
    ...     scores, mask, temperature=1e-3, n_samples=4000, generator=generator
    ... )
    >>> round(soft[:, 0, 0, 1].mean().item(), 1)  # the second first: in 5 / (5 + 1) of the draws
    0.8
    """
    drawn = drawn_scores(scores, mask, n_samples=n_samples, beta=beta, generator=generator)
    soft = neural_sort(drawn.flatten(0, 1), mask.repeat(n_samples, 1), temperature=temperature)
    return soft.unflatten(0, (n_samples, len(mask)))


def drawn_scores(
    scores: Scores,
    mask: Mask,
    *,
    n_samples: int,
    beta: float,
    generator: torch.Generator | None = None,
) -> SampledScores:
    """What ``stochastic_neural_sort`` sorts, ``[sample, batch, list]``; its knobs mean the same.

    Raises:
        ConfigError: a knob is out of range.
    """
    check_positive("beta", beta)
    if n_samples < 1:
        raise ConfigError(f"n_samples={n_samples} draws nothing: write an integer >= 1")
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    others = scores.masked_fill(~mask, torch.inf)
    # one more column, for lists of no places
    lowest = torch.nn.functional.pad(others, (0, 1), value=torch.inf).amin(-1, keepdim=True)
    logs = (scores - lowest).masked_fill(~mask, 0).log1p()
    noise = uniform_noise(mask, n_samples, logs, generator)
    gumbel = -(-noise.masked_fill(~mask, 0.5).log()).log()
    return logs + beta * gumbel

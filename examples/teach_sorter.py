"""Teach the network of ``loss=sodeep`` to sort, on scores that are drawn; a minute on one core.

    python examples/teach_sorter.py sorters/mine.json
    ltr train loss=sodeep loss.sorter=sorters/mine.json

The file that comes with the package is that of the defaults.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ltr.relaxations.learned_sorter import HIDDEN, Sorter
from ltr.relaxations.optimal_transport import standardise_scores
from ltr.typing import Scores

SIZES = (2, 5, 20, 100, 240, 1000)  # of the lists on which it prints how well it sorts


def main(argv: list[str] | None = None) -> None:
    """Teach a network, write its file, and print how well it sorts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="the weights, plain numbers; it must not exist")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and of the scores")
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--items", type=int, default=4096, help="of the lists of a step together")
    parser.add_argument("--longest", type=int, default=240, help="items of a list")
    parser.add_argument("--lr", type=float, default=0.003, help="of Adam, falling to 0")
    given = parser.parse_args(argv)
    if given.output.exists():
        parser.error(f"{given.output} exists: remove it, or choose another name")
    knobs = {name: one for name, one in vars(given).items() if name != "output"}
    sorter = teach(**knobs)
    weights = {name: _six_digits(value.tolist()) for name, value in sorter.state_dict().items()}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps({**knobs, "weights": weights}, allow_nan=False) + "\n")
    print(f"{sum(p.numel() for p in sorter.parameters()):,} weights, {HIDDEN} hidden units")
    generator = torch.Generator().manual_seed(0)
    for n in SIZES:
        scores = torch.randn((max(8, 20000 // n), n), generator=generator)
        with torch.no_grad():
            off = _errors(sorter, scores).mean().item() * (n - 1)
        print(f"lists of {n:>5,} items: ranks are off by {off:.2f} on average")


def teach(*, seed: int, steps: int, items: int, longest: int, lr: float) -> Sorter:
    """A network after so many steps of Adam, the rate falling to 0 by half a cosine."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sorter = Sorter()
    optimizer = torch.optim.Adam(sorter.parameters(), lr=lr)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * (1 + math.cos(math.pi * step / steps)) / 2
        optimizer.zero_grad()
        _errors(sorter, _draw_scores(items, longest, generator)).mean().backward()
        optimizer.step()
    return sorter


def _errors(sorter: Sorter, scores: Scores) -> Tensor:
    """|share of the others above - its estimate| of each item, half of an equal one counted."""
    everything = torch.ones_like(scores, dtype=torch.bool)
    above = (scores.unsqueeze(-2) - scores.unsqueeze(-1)).sign().sum(-1)
    share = (above / max(1, scores.shape[-1] - 1) + 1) / 2
    return (sorter(standardise_scores(scores, everything), everything) - share).abs()


def _six_digits(values: Any) -> Any:
    return [*map(_six_digits, values)] if isinstance(values, list) else float(f"{values:.6g}")


def _draw_scores(items: int, longest: int, generator: torch.Generator) -> Scores:
    """Scores to learn sorting from, ``[lists, n]``, ``items`` in all, n from 2 to ``longest``.

    Uniform, normal, evenly spaced in a part of the range and mixtures, as in Engilberge et al.
    (2019), and with heavy tails or saturated by Tanh, as rankers give; log n is uniform.
    """

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator)

    low, high = math.log(2), math.log(longest)
    n = round(math.exp(low + (high - low) * uniform(1).item()))
    lists = max(8, items // n)
    normal = torch.randn((lists, n), generator=generator)
    even = uniform(lists, 1) + uniform(lists, 1) * uniform(lists, n).argsort(-1) / n
    mixed = torch.where(uniform(lists, n) < uniform(lists, 1), 1 + 0.3 * uniform(lists, n), normal)
    heavy = normal * torch.randn((lists, n), generator=generator).exp()
    slope, shift = torch.randn((2, lists, 1), generator=generator)
    saturated = (2 * slope.exp() * normal + shift).tanh()
    kinds = torch.stack([uniform(lists, n), normal, even, mixed, heavy, saturated])
    kind = torch.randint(0, len(kinds), (lists, 1), generator=generator)
    return kinds.gather(0, kind.expand(lists, n)[None])[0]


if __name__ == "__main__":
    main()

"""Teach the network of ``loss=sodeep`` to sort, on scores that are drawn."""

import time
from pathlib import Path

import torch
from omegaconf import DictConfig

from ltr.errors import ConfigError
from ltr.relaxations.learned_sorter import (
    HIDDEN,
    Sorter,
    as_text,
    kept_sorter,
    made_scores,
    share_above,
)
from ltr.relaxations.optimal_transport import standardised
from ltr.training.schedules import cosine
from ltr.whole import make_folder, write_whole

SIZES = (2, 5, 20, 100, 240, 1000)  # lists of the report


def train_sorter(cfg: DictConfig) -> str:
    """Train as ``cfg`` says (``configs/train_sorter.yaml``), write its ``output``; the report.

    Raises:
        ConfigError: a setting is out of range, or ``output`` exists.
    """
    output, steps, longest = Path(cfg.output), int(cfg.steps), int(cfg.longest)
    items, lr = int(cfg.step_items), float(cfg.lr)
    if steps < 1 or items < 1 or longest < 2 or not lr > 0:
        raise ConfigError(
            f"steps={steps}, step_items={items}, longest={longest}, lr={lr} is out of range: "
            "write steps >= 1, step_items >= 1, longest >= 2, lr > 0"
        )
    if output.exists():
        raise ConfigError(f"output={output} exists: remove it, or choose another name")
    make_folder("output", output.parent)
    if cfg.threads is not None:
        torch.set_num_threads(int(cfg.threads))
    started = time.perf_counter()
    sorter = taught(steps=steps, items=items, longest=longest, lr=lr, seed=int(cfg.seed))
    told = {key: cfg[key] for key in ("seed", "steps", "step_items", "longest", "lr")}
    write_whole(output, as_text(sorter, told))
    took = time.perf_counter() - started
    return f"{_report(kept_sorter(output))}\n{took:.0f} s\nkept in {output}"


def taught(*, steps: int, items: int, longest: int, lr: float, seed: int) -> Sorter:
    """A network after so many steps of Adam, the rate falling to 0 by half a cosine."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        sorter = Sorter()
    optimizer = torch.optim.Adam(sorter.parameters(), lr=lr)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * cosine(step, steps)
        optimizer.zero_grad()
        _errors(sorter, made_scores(items, longest, generator)).mean().backward()
        optimizer.step()
    return sorter


def _errors(sorter: Sorter, scores: torch.Tensor) -> torch.Tensor:
    """|share above - its estimate| of each item, the paper's L1 between ranks over n - 1."""
    everything = torch.ones_like(scores, dtype=torch.bool)
    return (sorter(standardised(scores, everything), everything) - share_above(scores)).abs()


@torch.no_grad()
def _report(sorter: Sorter) -> str:
    """The mean error of the ranks on lists of normal scores."""
    generator = torch.Generator().manual_seed(0)
    lines = [f"{sum(p.numel() for p in sorter.parameters()):,} weights, {HIDDEN} hidden units"]
    for n in SIZES:
        scores = torch.randn((max(8, 20000 // n), n), generator=generator)
        found = _errors(sorter, scores).mean().item()
        lines.append(f"lists of {n:>5,} items: ranks are off by {found * (n - 1):.2f} on average")
    return "\n".join(lines)

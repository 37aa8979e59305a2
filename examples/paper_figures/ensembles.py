"""Simulate ensembles chosen on vali: what their values claim, and which weights are worth most.

python examples/paper_figures/ensembles.py [FOLDER]
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from drawn import page, save
from scipy.stats import spearmanr
from tabulate import tabulate
from torch import Tensor

from ltr.arrays import Doubles
from ltr.lab.ensembles.weights import (
    SplitHalfScores,
    fixed_weights,
    greedy_selection,
    select_on_halves,
    tuned_weights,
)
from ltr.metrics import Convention, parse_metric
from ltr.metrics.crossfit import Crossfit, Halves
from ltr.pages.style import BLUE, GREY, ORANGE, style

LISTS = [20, 50, 157, 500]  # of vali
ITEMS, MEMBERS, EPOCHS, TEST, DRAWS, SEED = 20, 8, 10, 4000, 10, 0
SPREADS = {"alike": 0.1, "unlike": 0.5, "one is best": 0.1}  # of the members' errors
METRIC, CONVENTION = parse_metric("ndcg@5"), Convention()
RULES = ("equal", "picked on halves", "shrunken", "greedy")


def main() -> None:
    """Bias of each value, its correlation with the truth, and the worth of each rule's weights."""
    rows = [
        {"lists": lists, "members": kind, **row}
        for kind in SPREADS
        for lists in LISTS
        for row in draws(kind, lists)
    ]
    found = pd.DataFrame(rows)
    title = "Ensembles: what their values on vali claim, and which weights are worth most"
    caption = (
        f"Simulated: {MEMBERS} members of {EPOCHS} epochs, {DRAWS} draws, NDCG@5 on lists of "
        f"{ITEMS} items. Left: the value minus the ensemble's mean on {TEST:,} new lists, weights "
        "shrunken. The value of the best epochs and weights on all of vali is too high; crossfit "
        "is not. Right: what each rule's weights are worth on the new lists, minus equal weights, "
        "where the members are alike. Bars: two standard errors."
    )
    figure = page(title, caption, width=7.2, height=3.0)
    left, right = figure.subplots(1, 2)
    alike = found[found["members"] == "alike"].groupby("lists")
    for column, label, colour in (
        ("vali shrunken", "best on vali", ORANGE), ("crossfit shrunken", "crossfit", BLUE),
    ):  # fmt: skip
        _line(left, alike[column], label, colour)
    for rule, colour in zip(RULES[1:], (GREY, BLUE, ORANGE), strict=True):
        _line(right, alike[f"worth {rule}"], rule, colour)
    for axes in (left, right):
        axes.set(xscale="log", xlabel="lists of vali")
        axes.set_xticks(LISTS, [f"{size:,}" for size in LISTS])
        axes.minorticks_off()
        axes.legend()
    left.set_ylabel("value minus truth")
    right.set_ylabel("worth minus equal weights")
    save("ensembles", figure, found, _text(found))


def _line(axes, groups, label: str, colour: str) -> None:  # type: ignore[no-untyped-def]
    errors = 2 * groups.sem()
    axes.errorbar(LISTS, groups.mean(), errors, label=label, color=colour, marker="o", markersize=4)


def draws(kind: str, lists: int) -> list[dict[str, float]]:
    """What ``judged`` finds in each draw."""
    generator = torch.Generator().manual_seed(SEED * 1000 + lists)
    return [judged(kind, lists, generator) for _ in range(DRAWS)]


def judged(kind: str, lists: int, generator: torch.Generator) -> dict[str, float]:
    """Values and worth of one draw of members, and of ensembles of them.

    A score is the item's true worth and four errors of mean 0: of all members, of the member, of
    the epoch, and of both, which makes a curve of epochs restless. How large a member's error is
    differs by ``SPREADS``. Labels are 0 to 2, from the true worth.
    """
    vali, test = (_lists(count, generator) for count in (lists, TEST))
    sizes = 1 + SPREADS[kind] * torch.rand(MEMBERS, generator=generator).double() * 2
    if kind == "one is best":
        sizes[0] = 0.4
    offsets = 0.3 * torch.rand(MEMBERS, EPOCHS, generator=generator).double()
    seeds = torch.randint(2**31, (2, MEMBERS, 1), generator=generator).tolist()
    shared = [0.7 * _noise(data[1].shape, generator) for data in (vali, test)]
    members, of_test = [], []
    for number in range(MEMBERS):
        own = [_noise(data[1].shape, generator) for data in (vali, test)]
        curves = []
        for part, (worth, _) in enumerate((vali, test)):
            makes = torch.Generator().manual_seed(seeds[part][number][0])
            restless = 0.6 * _noise((EPOCHS, *worth.shape), makes)
            size = (sizes[number] + offsets[number])[:, None, None]
            curves.append(worth + shared[part] + size * own[part] + restless)
        members.append(_standardised(curves[0]))
        of_test.append(_standardised(curves[1]))
    measure, on_test = _measure(vali[1]), _measure(test[1])
    halves = Halves.split(np.ones(lists, dtype=bool))
    means = np.array([[measure(e) for e in one] for one in members])  # [members, epochs, lists]
    by_half = []
    for curve, one in zip(means, members, strict=True):
        epochs = np.array([halves.means(values) for values in curve]).argmax(0)
        by_half.append(SplitHalfScores(epochs, dict(enumerate(one))))
    best = means.mean(-1).argmax(1)
    kept = torch.stack([one[epoch] for one, epoch in zip(members, best, strict=True)])
    kept_test = torch.stack([one[epoch] for one, epoch in zip(of_test, best, strict=True)])

    def truth(weights: Doubles) -> float:
        return float(on_test(torch.from_numpy(weights) @ kept_test).mean())

    def claimed(weights: Doubles) -> float:
        return float(measure(torch.from_numpy(weights) @ kept).mean())

    five = Halves(halves.first[:5], halves.second[:5])
    equal = fixed_weights("equal", by_half, measure)
    shrunken = tuned_weights(by_half, measure, np.full(lists, ITEMS))
    weights = {
        "equal": np.array(equal.weights),
        "picked on halves": select_on_halves(by_half, measure, five).mean((0, 1)),
        "shrunken": np.array(shrunken.weights),
        "greedy": greedy_selection(kept, measure, np.arange(lists)),
    }
    base = truth(weights["equal"])
    # The luck of the lists, as the first epochs show it: all values share it, its mean is 0.
    first = [torch.stack([one[0] for one in part]).mean(0) for part in (members, of_test)]
    luck = float(measure(first[0]).mean() - on_test(first[1]).mean())
    row = {f"worth {rule}": truth(one) - base for rule, one in weights.items()}
    for rule, one in (("equal", equal), ("shrunken", shrunken)):
        assert one.crossfit is not None
        row[f"crossfit {rule}"] = one.crossfit.value - truth(weights[rule]) - luck
        row[f"vali {rule}"] = claimed(weights[rule]) - truth(weights[rule]) - luck
    row["vali greedy"] = claimed(weights["greedy"]) - truth(weights["greedy"]) - luck
    row["shrunk by"] = 1 - float(
        np.abs(weights["shrunken"] - 1 / MEMBERS).sum()
        / max(np.abs(weights["picked on halves"] - 1 / MEMBERS).sum(), 1e-9)
    )
    return row | _correlations(by_half, measure, claimed, truth, equal.crossfit, shrunken)


def _correlations(by_half, measure, claimed, truth, equal: Crossfit | None, shrunken):  # type: ignore[no-untyped-def]
    """Rank correlation of values with the truth over 22 rows: members, ensembles of some of them,
    and of all.
    """
    picks = np.random.default_rng(0)
    rows = [*np.eye(MEMBERS)]
    rows += [_some(picks.permutation(MEMBERS)[: picks.integers(2, MEMBERS)]) for _ in range(12)]
    values = [fixed_weights(list(row), by_half, measure).crossfit for row in rows]
    values += [equal, shrunken.crossfit]
    rows += [np.full(MEMBERS, 1 / MEMBERS), np.array(shrunken.weights)]
    true = [truth(row) for row in rows]
    naive, found = [claimed(row) for row in rows], [one for one in values if one is not None]
    fair = [one.value for one in found]
    gains = [one.minus(found[-1]) for one in found]
    better = [n for n, gain in enumerate(gains) if gain.value > 2 * gain.error]
    clear = max(better, key=lambda n: gains[n].value, default=-1)
    return {
        "rank vali": float(spearmanr(naive, true).statistic),
        "rank crossfit": float(spearmanr(fair, true).statistic),
        "chosen vali": true[int(np.argmax(naive))] - max(true),
        "chosen crossfit": true[int(np.argmax(fair))] - max(true),
        "chosen clear": true[clear] - max(true),
    }


def _some(which: np.ndarray) -> Doubles:
    weights = np.zeros(MEMBERS)
    weights[which] = 1 / len(which)
    return weights


def _noise(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _lists(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The true worth of items and their labels, ``[lists, items]``."""
    worth = _noise((count, ITEMS), generator) + 0.5 * _noise((count, 1), generator)
    return worth, (worth > 0.8).double() + (worth > 1.8).double()


def _standardised(scores: Tensor) -> Tensor:
    """``[epochs, lists, items]`` as ``[epochs, items of all lists]``."""
    off = scores - scores.mean(-1, keepdim=True)
    return (off / off.std(-1, keepdim=True, correction=0)).flatten(1)


def _measure(labels: Tensor) -> Callable[[Tensor], Doubles]:
    mask = torch.ones_like(labels, dtype=torch.bool)

    def measure(scores: Tensor) -> Doubles:
        values: Doubles = METRIC(scores.view_as(labels), labels, mask, CONVENTION).numpy()
        return values

    return measure


def _text(found: pd.DataFrame) -> str:
    """The numbers as tables."""
    groups = found.groupby(["members", "lists"], sort=False)
    mean, error = groups.mean(), groups.sem()

    def table(columns: dict[str, str], sign: str = "+") -> str:
        rows = [
            [*key, *(f"{mean.loc[key, c]:{sign}.4f} ± {error.loc[key, c]:.4f}" for c in columns)]
            for key in mean.index
        ]
        return tabulate(rows, ["members", "lists", *columns.values()], disable_numparse=True)

    biases = {
        "vali equal": "best epochs on vali, equal weights",
        "vali shrunken": "shrunken", "vali greedy": "greedy",
        "crossfit equal": "crossfit, equal weights", "crossfit shrunken": "shrunken",
    }  # fmt: skip
    worth = {f"worth {rule}": rule for rule in RULES[1:]} | {"shrunk by": "shrunken by"}
    ranks = {
        "rank vali": "rank correlation, vali", "rank crossfit": "crossfit",
        "chosen vali": "row chosen less the best, vali", "chosen crossfit": "crossfit",
        "chosen clear": "all, shrunken, unless another is better by two errors",
    }  # fmt: skip
    return "\n\n".join(
        [
            "value minus what the ensemble is worth on new lists, ± standard error",
            table(biases),
            "worth of weights on new lists, minus equal weights",
            table(worth),
            "members, ensembles of some of them and of all: values and the truth",
            table(ranks),
        ]
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    with style():
        main()

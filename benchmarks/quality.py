"""Train the same model on two sides, and compare how well both rank.

All have the same lists, sizes, optimiser, schedule and epochs; the weights of the last epoch are
tested, by our evaluation: python benchmarks/quality.py threads=1.
"""

from itertools import product
from typing import Any

import common
import numpy as np
import training
from common import OURS, Row
from tabulate import tabulate

from ltr.data.batches import ItemTensors
from ltr.data.synthetic import SyntheticLists
from ltr.lab.analysis.values import SystemValues
from ltr.lab.analysis.verdicts import compare_systems, rule
from ltr.metrics.spec import parse_metric
from ltr.training.evaluation import metrics_of_scores, predict

METRICS, ALPHA = ("ndcg@5", "ndcg@10"), 0.05
HEAD = ("case", "metric", "ours", "the other", "seeds", "difference", "interval", "ours is")
SIZES = {
    "lists": (300, 6), "test_lists": (500, 4), "epochs": (15, 1), "list_size": (120, 20),
    "batch_size": (64, 3), "seeds": (10, 2), "margin": (0.01, 0.01),  # what does not matter
    "sides": (["allrank"], ["allrank"]),  # beside ours; or overrides of ours, such as compile=true
}  # fmt: skip


def run(row: Row, loss: str, keys: Any) -> Row:
    """``row`` with a whole training of its side: seconds, and metrics of every test list."""
    with common.trying(row):
        cfg = training.config(row["side"], loss, keys.lists, keys, row["seed"])
        model, train, parts, transform = training.trained(row["side"], loss, cfg)
        row |= {"note": training.NOTES.get(row["side"], ""), "unit": "lists"}
        row["amount"] = keys.lists * keys.epochs
        row["seconds"] = [common.seconds_of(lambda: train(keys.epochs))]
        # A third of a larger set than that trained on, drawn alike.
        drawn = SyntheticLists(queries=3 * keys.test_lists, seed=0, cache_dir=keys.cache_dir)
        data = ItemTensors(drawn.split("test"), transform, parts.device)
        if row["side"] == "allrank":  # is called as ours
            score = model.score
            model.forward = lambda x, mask, _: score(x, ~mask, None).masked_fill(~mask, 0)
        scores = predict(model, data, precision=parts.settings.precision)
        metrics = [parse_metric(name) for name in METRICS]
        found = metrics_of_scores(data, scores, metrics, parts.convention)
        row |= {name: values.tolist() for name, values in found.items()}
    return row


def verdict(metric: str, ours: list[Row], others: list[Row], margin: float) -> list[str]:
    """The cells under ``HEAD``."""
    values = {rows[0]["side"]: np.array([row[metric] for row in rows]) for rows in (ours, others)}
    queries = [(None, str(i)) for i in range(len(ours[0][metric]))]
    systems = {name: SystemValues(each, queries) for name, each in values.items()}
    (found,) = compare_systems(systems, margin=margin, alpha=ALPHA)
    means = [each.mean(1) for each in values.values()]
    told = [f"{each.mean():.4f} ± {each.std(ddof=len(each) > 1):.4f}" for each in means]
    between = f"{found.difference:+.4f}", "{:+.4f} to {:+.4f}".format(*found.interval)
    word, counts = f"{found.word}; {found.note}".rstrip("; "), f"{len(ours)} and {len(others)}"
    return [f"{others[0]['case']}, {others[0]['side']}", metric, *told, counts, *between, word]


def main() -> None:
    """Every loss with every seed on each side; a seed of all cases comes before the next."""
    keys = common.arguments(SIZES)
    of: dict[tuple[str, str], list[Row]] = {}
    for row in common.kept(keys):
        of.setdefault((row["case"], row["side"]), []).append(row)
    for seed, loss in product(range(1, keys.seeds + 1), training.LOSSES):
        case = f"{loss}, {keys.lists:,} lists, {keys.epochs} epochs"
        for side in (OURS, *keys.sides) if str(keys.only or "") in case else ():
            rows = of.setdefault((case, side), [])
            if not any("failed" in row or row["seed"] == seed for row in rows):
                new = run({"case": case, "side": side, "seed": seed, "seconds": []}, loss, keys)
                rows += common.append([new], keys)
    times = [one[-1] | {"seconds": [s for r in one for s in r["seconds"]]} for one in of.values()]
    good = {key: rows for key, rows in of.items() if "failed" not in rows[-1]}
    beside = [key for key in good if key[1] != OURS and (key[0], OURS) in good]
    cells = [
        verdict(metric, good[case, OURS], good[case, side], keys.margin)
        for (case, side), metric in product(beside, METRICS)
    ]
    more = (
        f"{tabulate(cells, HEAD, 'github', disable_numparse=True)}\n\nMeans over the same "
        f"{keys.test_lists:,} test lists, which no training saw; an empty list counts 1. ± is the "
        f"standard deviation over seeds, the interval that of {1 - ALPHA:.0%}. "
        f"{rule(keys.margin, ALPHA)}.\n"
    )
    common.show("Ranking quality beside allRank", times, keys, more)


if __name__ == "__main__":
    main()

"""Train the same model on two sides, and compare how well both rank.

All have the same lists, sizes, optimiser, schedule and epochs; the weights of the last epoch are
tested, by our evaluation. What was cut goes on by the same command and ``into=`` with its file.

python benchmarks/quality.py threads=1
python benchmarks/quality.py sides=[tf32,bfloat16,compiled] device=cuda only=neuralndcg
"""

from typing import Any

import common
import numpy as np
import training
from common import OURS, Row
from tabulate import tabulate
from torch import Tensor, nn

from ltr.data.batches import ItemTensors
from ltr.data.synthetic import SyntheticLists
from ltr.metrics.spec import parse_metric
from ltr.statistics import SystemValues, compare_systems, rule
from ltr.training.evaluation import metrics_of_scores, predict

METRICS, ALPHA = ("ndcg@5", "ndcg@10"), 0.05
HEAD = ("case", "metric", "ours", "the other", "seeds", "difference", "interval", "ours is")
SIZES = {
    "lists": 300, "test_lists": 500, "epochs": 15, "list_size": 120, "batch_size": 64, "seeds": 10,
    "margin": 0.01,  # the largest difference that does not matter
    "sides": ["allrank"],  # beside ours; or of tf32, bfloat16, compiled
}  # fmt: skip
SMALL = {"lists": 6, "test_lists": 4, "epochs": 1, "list_size": 20, "batch_size": 3, "seeds": 2}


class AllRank(nn.Module):
    """allRank's model, called as ours."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Tensor, mask: Tensor, ranks: Tensor | None = None) -> Tensor:
        """Scores ``[batch, list]``, 0 on padding."""
        scores: Tensor = self.model.score(features, ~mask, ranks)
        return scores.masked_fill(~mask, 0)


def run(row: Row, loss: str, keys: Any) -> Row:
    """``row`` with a whole training of its side: seconds, and metrics of every test list."""
    with common.trying(row):
        cfg = training.config(row["side"], loss, keys.lists, keys, row["seed"])
        one = training.trained(row["side"], loss, cfg)
        row |= {"note": one.note, "amount": keys.lists * keys.epochs, "unit": "lists"}
        row["seconds"] = [common.seconds_of(lambda: one.train(keys.epochs))]
        # A third of a larger set than that trained on, drawn alike.
        drawn = SyntheticLists(queries=3 * keys.test_lists, seed=0, cache_dir=keys.cache_dir)
        data = ItemTensors(drawn.split("test"), one.transform, one.experiment.device)
        scorer = AllRank(one.model) if row["side"] == "allrank" else one.model
        scores = predict(scorer, data, precision=one.experiment.settings.precision)
        metrics = [parse_metric(name) for name in METRICS]
        found = metrics_of_scores(data, scores, metrics, one.experiment.convention)
        row |= {name: values.tolist() for name, values in found.items()}
    return row


def verdict(metric: str, ours: list[Row], others: list[Row], margin: float) -> list[str]:
    """The cells under ``HEAD``."""
    case, side = others[0]["case"], others[0]["side"]
    values = {rows[0]["side"]: np.array([row[metric] for row in rows]) for rows in (ours, others)}
    queries = [(None, str(i)) for i in range(len(ours[0][metric]))]
    systems = {name: SystemValues(each, queries) for name, each in values.items()}
    (found,) = compare_systems(systems, margin=margin, alpha=ALPHA)
    means = [each.mean(1) for each in values.values()]
    told = [f"{each.mean():.4f} ± {each.std(ddof=1):.4f}" for each in means]
    between = f"{found.difference:+.4f}", "{:+.4f} to {:+.4f}".format(*found.interval)
    word = f"{found.word}; {found.note}" if found.note else found.word
    return [f"{case}, {side}", metric, *told, f"{len(ours)} and {len(others)}", *between, word]


def main() -> None:
    """Every loss with every seed on each side; a seed of all cases comes before the next."""
    keys = common.arguments(SIZES, SMALL)
    of: dict[tuple[str, str], list[Row]] = {}
    for row in common.kept(keys):
        of.setdefault((row["case"], row["side"]), []).append(row)
    for seed in range(1, keys.seeds + 1):
        for loss in training.LOSSES:
            case = f"{loss}, {keys.lists:,} lists, {keys.epochs} epochs"
            for side in (OURS, *keys.sides) if str(keys.only) in case else ():
                rows = of.setdefault((case, side), [])
                if not any("failed" in row or row["seed"] == seed for row in rows):
                    new = run({"case": case, "side": side, "seed": seed}, loss, keys)
                    rows += common.append([new], keys)
    good = {key: rows for key, rows in of.items() if "failed" not in rows[-1]}
    times = [
        rows[-1] | {"seconds": [s for row in rows for s in row.get("seconds", ())]}
        for rows in of.values()
    ]
    cells = [
        verdict(metric, good[case, OURS], rows, keys.margin)
        for (case, side), rows in good.items()
        for metric in METRICS
        if side != OURS and (case, OURS) in good
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

"""The named conventions against the tools themselves, run here; skipped where one is not installed.

scikit-learn and the LETOR script's figures are in test_metrics.py and test_scores_file.py.
"""

from typing import Any

import numpy as np
import pytest
import torch
from conftest import compose

from ltr.inference.evaluate import chosen_conventions
from ltr.metrics import Convention, mean_over_lists, parse_metric

pytestmark = pytest.mark.slow

CUTOFFS = (1, 3, 5, 10)


def named(name: str) -> Convention:
    return chosen_conventions(compose(f"metrics_as={name}", config="evaluate"), {})[name]


def lists(kind: str) -> list[tuple[Any, Any]]:
    """Scores and labels of 120 lists: grades, every tenth list empty, perhaps with equal scores.

    ``real``: labels from 0 to 1 on both sides of 0.5, some exactly there and some just above.
    """
    rng, made = np.random.default_rng(0), []
    edges = np.array([0.5, np.nextafter(np.float32(0.5), np.float32(1)), 0.75], np.float32)
    for i, n in enumerate(rng.integers(2, 40, 120)):
        labels = rng.choice([0, 0, 0, 1, 2, 3, 4], n) * (i % 10 > 0)
        if kind == "real":
            labels = np.where(rng.random(n) < 0.4, rng.choice(edges, n), 0.2)
        scores = rng.integers(0, 4, n) / 2 if kind == "ties" else rng.permutation(n) / 7 - 2
        made.append((scores, labels))
    return made


def padded(made: list[tuple[Any, Any]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    width = max(len(labels) for _, labels in made)
    values = torch.zeros(2, len(made), width, dtype=torch.float64)
    mask = torch.zeros(len(made), width, dtype=torch.bool)
    for i, pair in enumerate(made):
        values[:, i, : len(pair[0])] = torch.tensor(np.stack(pair))
        mask[i, : len(pair[0])] = True
    return values[0], values[1], mask


def test_trec_is_trec_eval() -> None:
    """Without equal scores: trec_eval breaks ties by document number."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    made = lists("grades")
    ranked, judged = (
        {
            str(i): {f"d{j}": v for j, v in enumerate(one[part].tolist())}
            for i, one in enumerate(made)
        }
        for part in (0, 1)
    )
    whole = {"map": "map", "recip_rank": "mrr", "ndcg": "ndcg"}
    cut = {"ndcg_cut": "ndcg", "P": "precision", "recall": "recall", "map_cut": "map"}
    names = whole | {f"{name}_{k}": f"{ours}@{k}" for name, ours in cut.items() for k in CUTOFFS}
    asked = {*whole, *(f"{name}.{','.join(map(str, CUTOFFS))}" for name in cut)}
    printed = pytrec_eval.RelevanceEvaluator(judged, asked).evaluate(ranked)
    for theirs, ours in names.items():
        found = parse_metric(ours)(*padded(made), named("trec"))
        expected = [printed[str(i)][theirs] for i in range(len(made))]
        np.testing.assert_allclose(found, expected, atol=1e-12, rtol=0, err_msg=theirs)


@pytest.mark.parametrize("kind", ["grades", "ties", "real"])
def test_lightgbm_is_lightgbm(kind: str) -> None:
    """A tree that cannot split, so that LightGBM evaluates the scores it is given.

    It refuses real-valued labels for ndcg.
    """
    lightgbm = pytest.importorskip("lightgbm")
    real = kind == "real"
    made = lists(kind)
    scores, labels = (np.concatenate(part) for part in zip(*made, strict=True))
    items, sizes = np.arange(len(scores), dtype=float)[:, None], [len(one) for one, _ in made]
    data = lightgbm.Dataset(items, labels, group=sizes, init_score=scores)
    printed: dict[str, dict[str, list[float]]] = {}
    params = {
        "objective": "regression" if real else "lambdarank",
        "metric": ["map"] if real else ["ndcg", "map"],
        "boost_from_average": False,
        "eval_at": list(CUTOFFS),
        "min_data_in_leaf": len(scores),
        "verbose": -1,
        "num_threads": 1,
    }
    kept = [lightgbm.record_evaluation(printed)]
    lightgbm.train(params, data, 1, valid_sets=[data], callbacks=kept)
    assert len(printed["training"]) == (1 if real else 2) * len(CUTOFFS)
    for name, (expected,) in printed["training"].items():
        found = mean_over_lists(parse_metric(name)(*padded(made), named("lightgbm")), empty=1)
        assert found == pytest.approx(expected, abs=1e-12), name

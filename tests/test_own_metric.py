"""A metric of one's own, as CONTRIBUTING writes it: trained by, evaluated, trusted, known."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import compose
from folders import refused

from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.experiment.evaluate import evaluate_kept
from ltr.experiment.identity import identity_without_data
from ltr.experiment.job import resumed
from ltr.experiment.run import run
from ltr.metrics import Convention, parse_metric

ROOT = Path(__file__).resolve().parents[1]
SECTION = (ROOT / "CONTRIBUTING.md").read_text().split("## A metric\n")[1].split("\n## ")[0]
TRAIN, EVALUATE = re.findall(r"^    PYTHONPATH=\. ltr \w+ (.*)$", SECTION, re.M)


@pytest.fixture
def my_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file as CONTRIBUTING has it, where Python finds it."""
    (code,) = re.findall(r"```python\n(.*?)```", SECTION, re.S)
    path = tmp_path / "own" / "my_metrics.py"
    path.parent.mkdir()
    path.write_text(code)
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.delitem(sys.modules, "my_metrics", raising=False)
    yield path
    sys.modules.pop("my_metrics", None)


@pytest.fixture
def folder(my_metrics: Path, tiny: list[str], tmp_path: Path) -> Path:
    """A run with the overrides that CONTRIBUTING types."""
    folder = tmp_path / "run"
    folder.mkdir()
    run(compose(*tiny, *TRAIN.split(), "epochs=1"), folder, {"loss": "neuralndcg"})
    return folder


def evaluated(folder: Path, *overrides: str) -> str:
    return evaluate_kept(compose(f"checkpoint={folder}", *overrides, config="evaluate"))


@pytest.mark.slow
def test_the_lines_of_contributing_train_and_evaluate(folder: Path) -> None:
    results = json.loads((folder / "results.json").read_text())
    assert results["select_on"] == "my_metrics.hits@5"
    queries, scores = (pd.read_csv(folder / f"{name}.csv") for name in ("queries", "scores"))
    hits = queries["my_metrics.hits@5"]
    assert hits.isin([0.0, 1.0]).all()
    assert results["test"]["my_metrics.hits@5"] == pytest.approx(hits.mean())
    assert len(scores)
    _, given = EVALUATE.split()
    assert "my_metrics.hits@1" in evaluated(folder, given)


def test_what_it_computes(my_metrics: Path) -> None:
    scores, mask = torch.tensor([[3.0, 2.0, 1.0]]).repeat(3, 1), torch.ones(3, 3) > 0
    labels = torch.tensor([[0.0, 0.0, 1.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]])
    hits = parse_metric("my_metrics.hits@2")
    assert hits(scores, labels, mask).tolist() == [0.0, 1.0, 1.0]
    skipped = hits(scores, labels, mask, Convention(empty="skip", relevant=2))
    assert np.isnan(skipped.numpy()).tolist() == [True, False, True]
    assert parse_metric("my_metrics.hits").parts == ("empty", "relevant")
    assert parse_metric("my_metrics.hits")(scores, labels, mask).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.slow
def test_a_checkpoint_names_no_metric_that_the_user_has_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "my_metrics")
    for use in (
        lambda: evaluated(folder),
        lambda: evaluated(folder, "trust=[my_losses]"),
        lambda: resumed(compose(f"resume={folder}"), []),
    ):
        assert "metric is my_metrics.hits" in (said := refused(use, ConfigError))
        assert "trust=" in said
    assert "ndcg@5" in evaluated(folder, "metrics=[ndcg@5]")
    assert "my_metrics" not in sys.modules
    assert "my_metrics.hits@5" in evaluated(folder, "trust=[my_metrics]")
    resumed(compose(f"resume={folder}", "trust=my_metrics"), [])


def test_it_is_part_of_what_a_run_is(my_metrics: Path) -> None:
    def known(*overrides: str) -> str:
        return identity_without_data(compose(*overrides))

    plain, own = known(), known(*TRAIN.split())
    my_metrics.write_text(my_metrics.read_text().replace("amax", "amin"))
    assert known(*TRAIN.split()) != own
    assert known() == plain


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('no disk')", "cannot be imported (OSError: no disk)"),
        ("", "cannot be imported (AttributeError"),
        ("hits = 3", "is no function"),
        ("def hits(scores, labels, mask): return scores[:, 0]", "takes no k"),
        ("def hits(scores, labels, mask, *, k): return scores", "one value per list"),
        ("def hits(scores, labels, mask, *, k): return scores.gone", "mend the function"),
    ],
)
def test_what_is_wrong_with_it_is_said_before_data_are_read(
    my_metrics: Path, code: str, said: str
) -> None:
    my_metrics.write_text(code)
    assert said in refused(lambda: build(compose(*TRAIN.split())), ConfigError)

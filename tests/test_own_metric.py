"""A metric of one's own, as CONTRIBUTING writes it: trained by, evaluated, trusted, known.

By its dotted name, and as a file of a folder ``configs`` of one's own.
"""

import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from conftest import compose
from folders import refused

from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.experiment.identity import identity_without_data
from ltr.experiment.run import run
from ltr.experiment.start import resumed
from ltr.inference.evaluate import evaluate_model
from ltr.metrics import Convention, parse_metric
from ltr.scorers.parts import named_metrics
from ltr.training.checkpoint import load_checkpoint, save_checkpoint

ROOT = Path(__file__).resolve().parents[1]
SECTION = (ROOT / "CONTRIBUTING.md").read_text().split("## A metric\n")[1].split("\n## ")[0]
TRAIN = "metrics=[ndcg@10,my_metrics.hits@5] select_on=my_metrics.hits@5"


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


def evaluated(folder: Path, *overrides: str) -> str:
    return evaluate_model(compose(f"checkpoint={folder}", *overrides, config="evaluate"))


def test_what_it_computes(my_metrics: Path) -> None:
    scores, labels = torch.tensor([[3.0, 2.0, 1.0]]).repeat(2, 1), torch.zeros(2, 3)
    labels[0, 2] = 1.0
    assert parse_metric("my_metrics.hits@2")(scores, labels, scores > 0).tolist() == [0.0, 1.0]
    assert parse_metric("my_metrics.hits").parts == ("empty", "relevant")


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


@pytest.fixture
def as_a_file(my_metrics: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same metric as ``hits``, in the folder ``configs`` of the working directory."""
    path = my_metrics.parent / "configs" / "metric" / "hits.yaml"
    path.parent.mkdir(parents=True)
    (content,) = re.findall(r"```yaml\n(.*?)```", SECTION, re.S)
    path.write_text(content)
    monkeypatch.chdir(my_metrics.parent)
    return path


BY_FILE = "metrics=[ndcg@10,hits@5] select_on=hits@5"


def test_a_file_sets_knobs_that_no_convention_overrides(as_a_file: Path) -> None:
    scores, mask = torch.tensor([[3.0, 2.0, 1.0]]), torch.ones(1, 3) > 0
    labels = torch.tensor([[1.0, 0.0, 2.0]])
    (one,) = named_metrics(["hits@2"])
    assert str(one) == "hits@2"
    assert one(scores, labels, mask).tolist() == [1.0]
    as_a_file.write_text(as_a_file.read_text().replace("wanted: 1", "wanted: 2\nrelevant: 2"))
    (two,) = named_metrics(["hits"])
    assert two.parts == ("empty",)
    assert two(scores, labels, mask, Convention(relevant=1)).tolist() == [0.0]
    as_a_file.write_text(as_a_file.read_text().replace("wanted", "wantd"))
    assert "wanted" in refused(lambda: named_metrics(["hits@2"]), ConfigError)
    as_a_file.write_text("wanted: 1\n")
    assert "_target_" in refused(lambda: named_metrics(["hits@2"]), ConfigError)
    as_a_file.rename(as_a_file.with_name("ndcg.yaml")).write_text("_target_: my_metrics.hits\n")
    assert "another name" in refused(lambda: named_metrics(["ndcg@2"]), ConfigError)
    assert "configs/metric" in refused(lambda: named_metrics(["hits@2"]), ConfigError)


@pytest.mark.parametrize("written", [TRAIN, BY_FILE], ids=["name", "file"])
def test_code_and_file_are_part_of_what_a_run_is(
    my_metrics: Path, as_a_file: Path, written: str
) -> None:
    def known(*overrides: str) -> str:
        return identity_without_data(compose(*overrides))

    plain, own = known(), known(*written.split())
    my_metrics.write_text(my_metrics.read_text().replace(">= wanted", "> wanted"))
    other_code = known(*written.split())
    as_a_file.write_text(as_a_file.read_text().replace("wanted: 1", "wanted: 2"))
    of_file = {known(*written.split())} if written == BY_FILE else {"no file"}
    assert len({plain, own, other_code, *of_file}) == 4
    assert known() == plain


@pytest.mark.slow
@pytest.mark.parametrize("written", [TRAIN, BY_FILE], ids=["name", "file"])
def test_a_checkpoint_calls_no_metric_without_trust(
    as_a_file: Path, tiny: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    run(compose(*tiny, *written.split(), "epochs=1"), folder, {})
    name = json.loads((folder / "results.json").read_text())["select_on"]
    assert pd.read_csv(folder / "queries.csv")[name].isin([0.0, 1.0]).all()
    monkeypatch.delitem(sys.modules, "my_metrics")
    as_a_file.unlink()  # the checkpoint has what it said
    for use in (
        lambda: evaluated(folder),
        lambda: evaluated(folder, "trust=[my_losses]"),
        lambda: resumed(compose(f"resume={folder}"), []),
    ):
        assert "metric is my_metrics.hits" in (said := refused(use, ConfigError))
        assert "trust=" in said
    assert "ndcg@5" in evaluated(folder, "metrics=[ndcg@5]")
    assert "my_metrics" not in sys.modules
    assert "hits@5" in evaluated(folder, "trust=[my_metrics]")
    again, _ = resumed(compose(f"resume={folder}", "trust=my_metrics"), [])
    assert [str(metric) for metric in build(again).metrics] == ["ndcg@10", name]
    if written == BY_FILE:
        change = load_checkpoint(folder / "last.pt")
        change["config"]["own_metrics"] = {"hits": {"_target_": "os.mkdir", "path": "owned"}}
        for name in ("best.pt", "last.pt"):
            save_checkpoint(folder / name, change)
        assert "os.mkdir" in refused(lambda: evaluated(folder, "trust=[my_metrics]"), ConfigError)

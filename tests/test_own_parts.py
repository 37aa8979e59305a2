"""Parts of one's own: a metric as the page extend.md has it, and files of a folder ``configs``.

The metric is trained by, evaluated, trusted and known by its dotted name, and as such a file.
"""

import json
import re
import sys
from pathlib import Path

import pandas as pd
import processes
import pytest
import torch
from conftest import compose
from folders import refused, write_folder
from processes import ROOT
from runs import run

from ltr.console.cli import call_command
from ltr.console.compose import run_config, typed
from ltr.console.configs import CONFIGS, files_of
from ltr.console.keys import resolved
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.experiment.identity import identity_without_data
from ltr.experiment.job import how_to_go_on
from ltr.experiment.resume import resumed_config
from ltr.inference.evaluate import evaluate_model
from ltr.metrics import Convention, parse_metric
from ltr.scorers.parts import named_metrics
from ltr.search.space import read_space
from ltr.tables.spec import read_table
from ltr.training.checkpoint import load_checkpoint, save_checkpoint

PAGE = (ROOT / "docs" / "how-to" / "extend.md").read_text()
SECTION = PAGE.split("## A metric\n")[1].split("\n## ")[0]
TRAIN = "metrics=[ndcg@10,my_metrics.hits@5] select_on=my_metrics.hits@5"
BY_FILE = "metrics=[ndcg@10,hits@5] select_on=hits@5"


@pytest.fixture
def my_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The code of the page where Python finds it, and its file in the folder ``configs``."""
    blocks = re.findall(r"```\{code-block\} \w+\n:caption: (\S+)\n\n(.*?)```", SECTION, re.S)
    files = dict(blocks)
    assert [*files] == ["my_metrics.py", "configs/metric/hits.yaml"]
    folder = write_folder(tmp_path / "own", files)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "my_metrics", raising=False)
    yield folder / "my_metrics.py"
    sys.modules.pop("my_metrics", None)


@pytest.fixture
def as_a_file(my_metrics: Path) -> Path:
    return my_metrics.parent / "configs" / "metric" / "hits.yaml"


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
        ("def hits(scores, labels, mask, *, k): return scores.gone", "fix the function"),
    ],
)
def test_what_is_wrong_with_it_is_said_before_data_are_read(
    my_metrics: Path, code: str, said: str
) -> None:
    my_metrics.write_text(code)
    assert said in refused(lambda: build(compose(*TRAIN.split())), ConfigError)


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
    for text, said in (
        (as_a_file.read_text().replace("wanted", "wantd"), "wanted"),
        ("wanted: 1\n", "_target_"),
    ):
        as_a_file.write_text(text)
        assert said in refused(lambda: named_metrics(["hits@2"]), ConfigError)
    as_a_file.rename(as_a_file.with_name("ndcg.yaml")).write_text("_target_: my_metrics.hits\n")
    assert "another name" in refused(lambda: named_metrics(["ndcg@2"]), ConfigError)
    assert "configs/metric" in refused(lambda: named_metrics(["hits@2"]), ConfigError)


@pytest.mark.slow
@pytest.mark.parametrize("written", [TRAIN, BY_FILE], ids=["name", "file"])
def test_code_and_file_are_part_of_what_a_run_is(
    my_metrics: Path, as_a_file: Path, written: str
) -> None:
    def known(*overrides: str) -> str:
        return identity_without_data(resolved(compose(*overrides)))

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

    def evaluated(*overrides: str) -> str:
        return call_command(
            evaluate_model, compose(f"checkpoint={folder}", *overrides, config="evaluate")
        )

    run(cfg := compose(*tiny, *written.split(), "epochs=1"), folder, {})
    assert how_to_go_on(cfg, folder, is_sweep=False).endswith(
        f"resume={folder} 'trust=[my_metrics]'"
    )
    name = json.loads((folder / "results.json").read_text())["select_on"]
    assert pd.read_csv(folder / "queries.csv")[name].isin([0.0, 1.0]).all()
    monkeypatch.delitem(sys.modules, "my_metrics")
    as_a_file.unlink()  # the checkpoint has what it said
    for use in (
        evaluated,
        lambda: evaluated("trust=[my_losses]"),
        lambda: resumed_config(compose(f"resume={folder}"), []),
    ):
        assert "metric is my_metrics.hits" in (said := refused(use, ConfigError))
        assert "trust=" in said
    assert "ndcg@5" in evaluated("metrics=[ndcg@5]")
    assert "my_metrics" not in sys.modules
    assert "hits@5" in evaluated("trust=[my_metrics]")
    again, _ = resumed_config(compose(f"resume={folder}", "trust=my_metrics"), [])
    assert [str(metric) for metric in build(again).metrics] == ["ndcg@10", name]
    if written == BY_FILE:
        change = load_checkpoint(folder / "last.pt")
        change["config"]["own_metrics"] = {"hits": {"_target_": "os.mkdir", "path": "owned"}}
        (folder / "results.json").unlink()  # it would say that these are other files
        for name in ("best.pt", "last.pt"):
            save_checkpoint(folder / name, change)
        assert "os.mkdir" in refused(lambda: evaluated("trust=[my_metrics]"), ConfigError)


OWN = {
    "loss/squared": "_target_: my_losses.squared\n_partial_: true\npower: 2.0  # of the error\n",
    "loss/listnet": "_target_: my_losses.other\n",
    "metric/hits": "_target_: my_metrics.hits\n",
    "metrics_as/mine": "empty: 0.5\n",
    "search/mlp": "model.dropout: [float, 0, 0.5]\n",
    "search/deep": "model.hidden: [int, 8, 64, log]\n",
    "dataset/nameless": "_target_: my_data.Dice\n",
    "tables/broken": "rows: [\n",
    "tables/items": "- a\n",
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, in the working directory."""
    monkeypatch.chdir(tmp_path)
    return write_folder(tmp_path / "configs", {f"{name}.yaml": text for name, text in OWN.items()})


def test_own_files_stand_among_the_project_s(own: Path) -> None:
    assert {"squared", "neuralndcg"} <= {*files_of("loss")}
    assert {"mine", "paper"} <= {*files_of("metrics_as")}
    assert files_of("loss")["listnet"] == CONFIGS / "loss" / "listnet.yaml"  # as Hydra has it
    assert files_of("space")["mlp"] == own / "search" / "mlp.yaml"
    assert list(read_space("deep")) == ["model.hidden"]
    assert list(read_space("mlp")) == ["model.dropout"]
    # a folder of metrics takes no key
    assert typed("compare", ["outputs/a", "metric=ndcg@5"]).metric == "ndcg@5"
    assert typed("check_loss", ["squared", "metric=map"]).metric == "map"
    assert "name: nameless" in refused(lambda: run_config(["dataset=nameless"]), ConfigError)


def test_a_table_is_a_file_anywhere(own: Path, tmp_path: Path) -> None:
    text = (CONFIGS / "tables" / "ranknet_report.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text)
    (own / "tables" / "ranknet_report.yaml").write_text(text.replace("title: ", "title: My "))
    assert read_table("mine.yaml").title == read_table(f"{tmp_path}/mine.yaml").title
    assert read_table("ranknet_report").title == f"My {read_table('mine.yaml').title}"
    for name in ("broken", "items"):
        said = refused(lambda name=name: read_table(name), ConfigError)
        assert f"{name}.yaml" in said
        assert "letor4_mq2008.yaml" in said
    assert "or a YAML file" in refused(lambda: read_table("gone.yaml"), ConfigError)


@pytest.mark.slow
def test_the_folder_may_be_named(own: Path, tmp_path: Path) -> None:
    (tmp_path / "my_losses.py").write_text("def squared(scores, labels, mask, *, power): ...\n")
    own.rename(tmp_path / "mine")
    done = processes.run("scripts/list_losses.py", "squared", "--config-dir", "mine", cwd=tmp_path)
    assert "power: 2.0  # of the error" in done.stdout, done.stderr
    done = processes.run("scripts/list_losses.py", "squared", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")

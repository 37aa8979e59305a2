"""Parts of the user's own: the metric of the page extend.md, and files of a folder ``configs``.

The metric is named by its dotted name or by its file: in training, evaluation and identities.
"""

import json
import re
import sys
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch

from ltr.cli.cli import call_command
from ltr.cli.compose import run_config, typed
from ltr.cli.configs import CONFIGS, files_of
from ltr.cli.keys import resolved
from ltr.errors import ConfigError
from ltr.experiment.build import build
from ltr.experiment.identity import identity_without_data
from ltr.experiment.job import how_to_go_on
from ltr.experiment.resume import resumed_config
from ltr.inference.evaluate import evaluate_model
from ltr.lab.search.space import read_space
from ltr.lab.tables.spec import read_table
from ltr.metrics import Convention, parse_metric
from ltr.parts.components import named_metrics
from ltr.training.checkpoint import load_checkpoint, save_checkpoint
from tests.helpers import processes
from tests.helpers.folders import refused, write_folder
from tests.helpers.paths import ROOT
from tests.helpers.runs import compose, run

PAGE = (ROOT / "docs" / "how-to" / "extend.md").read_text()
SECTION = PAGE.split("## A metric\n")[1].split("\n## ")[0]
TRAIN = "metrics=[ndcg@10,my_metrics.hits@5] select_on=my_metrics.hits@5"
BY_FILE = "metrics=[ndcg@10,hits@5] select_on=hits@5"


@pytest.fixture
def my_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the code of the page where Python finds it, and its file in ``configs``."""
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
def metric_file(my_metrics: Path) -> Path:
    return my_metrics.parent / "configs" / "metric" / "hits.yaml"


def test_metric_of_extend_page_computes_hits(my_metrics: Path) -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0]]).repeat(2, 1)
    labels = torch.zeros(2, 3)
    labels[0, 2] = 1.0
    assert parse_metric("my_metrics.hits@2")(scores, labels, scores > 0).tolist() == [0.0, 1.0]
    assert parse_metric("my_metrics.hits").parts == ("empty", "relevant")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise OSError('no disk')", "cannot be imported (OSError: no disk)"),
        ("", "cannot be imported (AttributeError"),
        ("hits = 3", "is not a function"),
        ("def hits(scores, labels, mask): return scores[:, 0]", "has no parameter k"),
        ("def hits(scores, labels, mask, *, k): return scores", "one value per list"),
        ("def hits(scores, labels, mask, *, k): return scores.gone", "fix the function"),
    ],
)
def test_build_refuses_a_wrong_metric_before_data_are_read(
    my_metrics: Path, code: str, message: str
) -> None:
    my_metrics.write_text(code)
    assert message in refused(lambda: build(compose(*TRAIN.split())), ConfigError)


def test_metric_file_sets_knobs_that_no_convention_overrides(metric_file: Path) -> None:
    scores = torch.tensor([[3.0, 2.0, 1.0]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    labels = torch.tensor([[1.0, 0.0, 2.0]])
    (metric,) = named_metrics(["hits@2"])
    assert str(metric) == "hits@2"
    assert metric(scores, labels, mask).tolist() == [1.0]
    metric_file.write_text(metric_file.read_text().replace("wanted: 1", "wanted: 2\nrelevant: 2"))
    (metric,) = named_metrics(["hits"])
    assert metric.parts == ("empty",)
    assert metric(scores, labels, mask, Convention(relevant=1)).tolist() == [0.0]
    for text, message in (
        (metric_file.read_text().replace("wanted", "wantd"), "wanted"),
        ("wanted: 1\n", "_target_"),
    ):
        metric_file.write_text(text)
        assert message in refused(lambda: named_metrics(["hits@2"]), ConfigError)
    metric_file.rename(metric_file.with_name("ndcg.yaml")).write_text("_target_: my_metrics.hits\n")
    assert "another name" in refused(lambda: named_metrics(["ndcg@2"]), ConfigError)
    assert "configs/metric" in refused(lambda: named_metrics(["hits@2"]), ConfigError)


@pytest.mark.slow
@pytest.mark.parametrize("written", [TRAIN, BY_FILE], ids=["name", "file"])
def test_identity_depends_on_metric_code_and_file(
    my_metrics: Path, metric_file: Path, written: str
) -> None:
    def identify(*overrides: str) -> str:
        return identity_without_data(resolved(compose(*overrides)), {})

    builtin = identify()
    original = identify(*written.split())
    my_metrics.write_text(my_metrics.read_text().replace(">= wanted", "> wanted"))
    changed_code = identify(*written.split())
    metric_file.write_text(metric_file.read_text().replace("wanted: 1", "wanted: 2"))
    changed_file = identify(*written.split()) if written == BY_FILE else "no file"
    assert len({builtin, original, changed_code, changed_file}) == 4
    assert identify() == builtin


@pytest.mark.slow
@pytest.mark.parametrize("written", [TRAIN, BY_FILE], ids=["name", "file"])
def test_checkpoint_calls_no_metric_without_trust(
    metric_file: Path,
    tiny: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: str,
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()

    def evaluate(*overrides: str) -> str:
        return call_command(
            evaluate_model, compose(f"checkpoint={folder}", *overrides, config="evaluate")
        )

    cfg = compose(*tiny, *written.split(), "epochs=1")
    run(cfg, folder, {})
    remedy = how_to_go_on(resolved(cfg), folder, is_sweep=False)
    assert remedy.endswith(f"resume={folder} 'trust=[my_metrics]'")
    name = json.loads((folder / "results.json").read_text())["select_on"]
    assert pd.read_csv(folder / "queries.csv")[name].isin([0.0, 1.0]).all()
    monkeypatch.delitem(sys.modules, "my_metrics")
    metric_file.unlink()  # the checkpoint has its content
    for read in (
        evaluate,
        lambda: evaluate("trust=[my_losses]"),
        lambda: resumed_config(compose(f"resume={folder}"), []),
    ):
        message = refused(read, ConfigError)
        assert "metric is my_metrics.hits" in message
        assert "trust=" in message
    assert "ndcg@5" in evaluate("metrics=[ndcg@5]")
    assert "my_metrics" not in sys.modules
    assert "hits@5" in evaluate("trust=[my_metrics]")
    resumed, _ = resumed_config(compose(f"resume={folder}", "trust=my_metrics"), [])
    assert [str(metric) for metric in build(resumed).metrics] == ["ndcg@10", name]
    if written == BY_FILE:
        checkpoint = load_checkpoint(folder / "last.pt")
        checkpoint["config"]["own_metrics"] = {"hits": {"_target_": "os.mkdir", "path": "owned"}}
        (folder / "results.json").unlink()  # it would say that these are other files
        for file_name in ("best.pt", "last.pt"):
            save_checkpoint(folder / file_name, checkpoint)
        assert "os.mkdir" in refused(lambda: evaluate("trust=[my_metrics]"), ConfigError)


USER_CONFIGS = {
    "loss/squared": "_target_: my_losses.squared\n_partial_: true\npower: 2.0  # of the error\n",
    "loss/listnet": "_target_: my_losses.other\n",
    "metric/hits": "_target_: my_metrics.hits\n",
    "convention/mine": "empty: 0.5\n",
    "search/mlp": "model.dropout: [float, 0, 0.5]\n",
    "search/deep": "model.hidden: [int, 8, 64, log]\n",
    "dataset/nameless": "_target_: my_data.Dice\n",
    "tables/broken": "rows: [\n",
    "tables/items": "- a\n",
}


@pytest.fixture
def user_configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the folder ``configs`` in the working directory."""
    monkeypatch.chdir(tmp_path)
    return write_folder(
        tmp_path / "configs", {f"{name}.yaml": text for name, text in USER_CONFIGS.items()}
    )


def test_user_configs_are_found_among_the_project_s(user_configs: Path) -> None:
    assert {"squared", "neuralndcg"} <= {*files_of("loss")}
    assert {"mine", "paper"} <= {*files_of("convention")}
    assert files_of("loss")["listnet"] == CONFIGS / "loss" / "listnet.yaml"  # as Hydra has it
    assert files_of("space")["mlp"] == user_configs / "search" / "mlp.yaml"
    assert list(read_space("deep")) == ["model.hidden"]
    assert list(read_space("mlp")) == ["model.dropout"]
    # a folder of metrics takes no key
    assert typed("compare", ["outputs/a", "metric=ndcg@5"]).metric == "ndcg@5"
    assert typed("check_loss", ["squared", "metric=map"]).metric == "map"
    assert "name: nameless" in refused(lambda: run_config(["dataset=nameless"]), ConfigError)


def test_read_table_reads_files_anywhere(user_configs: Path, tmp_path: Path) -> None:
    text = (CONFIGS / "tables" / "ranknet_report.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text)
    (user_configs / "tables" / "ranknet_report.yaml").write_text(
        text.replace("title: ", "title: My ")
    )
    assert read_table("mine.yaml").title == read_table(f"{tmp_path}/mine.yaml").title
    assert read_table("ranknet_report").title == f"My {read_table('mine.yaml').title}"
    for name in ("broken", "items"):
        message = refused(partial(read_table, name), ConfigError)
        assert f"{name}.yaml" in message
        assert "letor4_mq2008.yaml" in message
    assert "or the path of a YAML file" in refused(lambda: read_table("gone.yaml"), ConfigError)


@pytest.mark.slow
def test_config_dir_names_the_folder_of_user_configs(user_configs: Path, tmp_path: Path) -> None:
    (tmp_path / "my_losses.py").write_text("def squared(scores, labels, mask, *, power): ...\n")
    user_configs.rename(tmp_path / "mine")
    command = (processes.LTR, "list_losses", "squared")
    process = processes.run(*command, "--config-dir", "mine", cwd=tmp_path)
    assert "power: 2.0  # of the error" in process.stdout, process.stderr
    process = processes.run(*command, cwd=tmp_path)
    assert (process.returncode, process.stdout) == (2, "")

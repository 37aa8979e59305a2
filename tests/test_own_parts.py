"""Files of a folder ``configs`` of one's own: which commands see them, and what is in the way."""

from pathlib import Path

import processes
import pytest
from folders import refused

from ltr.console.compose import run_config, typed
from ltr.console.configs import CONFIGS, files_of
from ltr.errors import ConfigError
from ltr.search.space import read_space
from ltr.tables.spec import read_table

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
    for name, text in OWN.items():
        path = tmp_path / "configs" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "configs"


def test_own_files_stand_among_the_project_s(own: Path) -> None:
    assert {"squared", "neuralndcg"} <= {*files_of("loss")}
    assert {"mine", "paper"} <= {*files_of("metrics_as")}
    assert files_of("loss")["listnet"] == CONFIGS / "loss" / "listnet.yaml"  # as Hydra has it
    assert files_of("space")["mlp"] == own / "search" / "mlp.yaml"
    assert list(read_space("deep")) == ["model.hidden"]
    assert list(read_space("mlp")) == ["model.dropout"]


def test_a_folder_of_metrics_takes_no_key(own: Path) -> None:
    assert typed("compare", ["outputs/a", "metric=ndcg@5"]).metric == "ndcg@5"
    assert typed("check_loss", ["squared", "metric=map"]).metric == "map"


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


def test_a_data_set_has_a_name(own: Path) -> None:
    assert "name: nameless" in refused(lambda: run_config(["dataset=nameless"]), ConfigError)


@pytest.mark.slow
def test_the_folder_may_be_named(own: Path, tmp_path: Path) -> None:
    (tmp_path / "my_losses.py").write_text("def squared(scores, labels, mask, *, power): ...\n")
    own.rename(tmp_path / "mine")
    done = processes.run("scripts/list_losses.py", "squared", "--config-dir", "mine", cwd=tmp_path)
    assert "power: 2.0  # of the error" in done.stdout, done.stderr
    done = processes.run("scripts/list_losses.py", "squared", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")

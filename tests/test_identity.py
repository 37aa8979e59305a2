"""A run is known by what it computes: its settings, its data and the code of its user."""

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import compose
from omegaconf import OmegaConf
from test_table import SYNTHETIC

from ltr.console.configs import CONFIGS
from ltr.console.keys import Kind, Resumed, keys, resolved
from ltr.experiment import identity as identities
from ltr.experiment.identity import identity_without_data
from ltr.tables.runs import plan
from ltr.tables.spec import Row, read_table


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the user, and a package."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine_alone.py").write_text(
        "import torch, mine_power\nraise ImportError"
    )  # never imported
    (tmp_path / "mine_power.py").write_text("from mine_deep import POWER")
    (tmp_path / "mine_deep.py").write_text("POWER = 2")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "mine_many").mkdir()
    for name in ("__init__", "losses", "helper"):
        (tmp_path / "mine_many" / f"{name}.py").write_text("raise ImportError")
    return tmp_path


def known(*overrides: str) -> str:
    return identity_without_data(resolved(compose(*overrides)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "file", "counts"),
    [
        ("mine_alone.squared", "mine_alone.py", True),
        ("mine_alone.squared", "mine_power.py", True),  # which it imports
        ("mine_alone.squared", "mine_deep.py", True),
        ("mine_alone.squared", "unused.py", False),
        ("mine_many.squared", "mine_many/losses.py", True),  # __init__ may take it from there
        ("mine_many.losses.squared", "mine_many/helper.py", True),
        ("mine_many.losses.squared", "mine_alone.py", False),
        ("nowhere.squared", "mine_alone.py", False),
    ],
)
def test_the_users_own_code_counts(mine: Path, target: str, file: str, counts: bool) -> None:
    before = known(f"loss._target_={target}")
    (mine / file).write_text("raise ValueError")
    assert (known(f"loss._target_={target}") != before) == counts


def test_the_users_own_code_counts_wherever_it_is_named(mine: Path) -> None:
    inner = "+transform.inner._target_=mine_alone.log"
    config = compose(inner, "+loss.a=[{_target_: mine_many.b}]")
    assert set(identities.user_code(resolved(config))) == {"mine_alone.log", "mine_many.b"}
    trees = "import ltr.models.rounds\nclass Mine(ltr.models.rounds.LightGBM): ..."
    (mine / "mine_trees.py").write_text(trees)
    library = identities.tree_library(resolved(compose("model._target_=mine_trees.Mine")))
    assert library == {"lightgbm": version("lightgbm")}


@pytest.mark.slow
def test_the_version_of_a_tree_library_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    trees, network = known("model=xgboost"), known("model=mlp")
    monkeypatch.setattr(identities, "version", lambda distribution: "0.1")
    assert known("model=xgboost") != trees
    assert known("model=mlp") == network


def test_identity_changes_with_the_version_of_the_results(monkeypatch) -> None:
    before = known()
    monkeypatch.setattr(identities, "RESULTS_VERSION", identities.RESULTS_VERSION + 1)
    assert known() != before


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("", "threads=1 device=cpu output_dir=x evaluation_items=99", True),
        *(("", more, False) for more in ("epochs=2", "dataset.queries=12", "loss.k=3")),
        *((f"{key}=0", f"{key}=0.0", True) for key in ("l1", "warmup", "augment.noise")),
        ("l1=0", "l1=1", False),
        ("l1=1", "l1=1.0", True),
        # a table may show columns of history.csv
        ("", "monitor=[vali,vali]", True),
        ("", "monitor=[train,vali]", False),
        ("monitor=train", "monitor=[vali,train]", True),
    ],
)
def test_a_run_is_known_by_what_it_computes(one: str, other: str, same: bool) -> None:
    assert (known(*one.split()) == known(*other.split())) == same


@pytest.mark.slow
def test_rows_that_compute_the_same_share_their_run(tmp_path: Path) -> None:
    spec = read_table("ranknet_report").select_rows(["BCE"])
    rows = {"A": ["loss=bce"], "B": ["loss=bce", "l2=0.0"], "C": ["loss=bce", "l2=0.1"]}
    given = [*SYNTHETIC, f"cache_dir={tmp_path}"]
    spec = replace(spec, rows={label: Row(row) for label, row in rows.items()})
    a, b, c = plan(spec, given, [1], tmp_path)
    assert [run.label for run in (a, b, c)] == ["A", "B", "C"]
    assert a.folder == b.folder != c.folder


def test_every_key_in_the_table_of_keys_is_one_of_a_run() -> None:
    config, letor = compose(), OmegaConf.load(CONFIGS / "dataset" / "letor.yaml")
    known = {*config, "tracking", "own_metrics", "tracking.experiment", "tracking.project"}
    known |= {f"dataset.{key}" for key in (*config.dataset, *letor)}
    assert {*keys(*Kind), *keys(*Resumed)} <= known

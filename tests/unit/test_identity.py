"""A run is identified by what it computes: its settings, its data and the code of its user."""

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ltr.cli.compose import with_choices
from ltr.cli.configs import CONFIGS
from ltr.cli.keys import Kind, Resumed, keys, resolved
from ltr.experiment import identity as identities
from ltr.experiment.identity import identity_without_data
from ltr.lab.tables.runs import plan
from ltr.lab.tables.spec import Row, read_table
from tests.helpers.runs import compose


@pytest.fixture
def user_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write modules and a package of the user; return their folder."""
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


def identify(*overrides: str) -> str:
    config, choices = with_choices("train", overrides)
    return identity_without_data(resolved(config), choices)


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
def test_identity_depends_on_user_code(
    user_modules: Path, target: str, file: str, counts: bool
) -> None:
    identity = identify(f"loss._target_={target}")
    (user_modules / file).write_text("raise ValueError")
    assert (identify(f"loss._target_={target}") != identity) == counts


def test_user_code_finds_targets_anywhere_in_the_config(user_modules: Path) -> None:
    inner = "+transform.inner._target_=mine_alone.log"
    config = compose(inner, "+loss.a=[{_target_: mine_many.b}]")
    assert set(identities.user_code(resolved(config))) == {"mine_alone.log", "mine_many.b"}
    trees = "import ltr.boosting\nclass Mine(ltr.boosting.LightGBM): ..."
    (user_modules / "mine_trees.py").write_text(trees)
    library = identities.tree_library(resolved(compose("model._target_=mine_trees.Mine")))
    assert library == {"lightgbm": version("lightgbm")}


@pytest.mark.slow
def test_identity_depends_on_the_version_of_a_tree_library(monkeypatch: pytest.MonkeyPatch) -> None:
    trees = identify("model=xgboost")
    network = identify("model=mlp")
    monkeypatch.setattr(identities, "version", lambda distribution: "0.1")
    assert identify("model=xgboost") != trees
    assert identify("model=mlp") == network


def test_identity_depends_on_results_version(monkeypatch) -> None:
    identity = identify()
    monkeypatch.setattr(identities, "RESULTS_VERSION", identities.RESULTS_VERSION + 1)
    assert identify() != identity


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("", "threads=1 device=cpu output_dir=x evaluation_items=99", True),
        ("", "+loss.new_setting=null", True),  # of a later version
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
def test_identity_depends_on_what_a_run_computes(first: str, second: str, same: bool) -> None:
    assert (identify(*first.split()) == identify(*second.split())) == same


@pytest.mark.slow
def test_plan_shares_a_run_between_rows_that_compute_the_same(tmp_path: Path) -> None:
    spec = read_table("ranknet_report").select_rows(["BCE"])
    rows = {"A": ["loss=bce"], "B": ["loss=bce", "l2=0.0"], "C": ["loss=bce", "l2=0.1"]}
    overrides = ["dataset=synthetic", "dataset.queries=9", f"cache_dir={tmp_path}"]
    spec = replace(spec, rows={label: Row(row) for label, row in rows.items()})
    a, b, c = plan(spec, overrides, [1], tmp_path)
    assert [run.label for run in (a, b, c)] == ["A", "B", "C"]
    assert a.folder == b.folder != c.folder


def test_keys_are_keys_of_a_run() -> None:
    config = compose()
    letor = OmegaConf.load(CONFIGS / "dataset" / "letor.yaml")
    keys_of_run = {*config, "tracking", "own_metrics", "tracking.experiment", "tracking.project"}
    keys_of_run |= {f"dataset.{key}" for key in (*config.dataset, *letor)}
    assert {*keys(*Kind), *keys(*Resumed)} <= keys_of_run

"""A run is known by what it computes: its config, its data and every piece of code behind it."""

from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import compose
from omegaconf import OmegaConf
from test_table import SYNTHETIC

from ltr.console.configs import CONFIGS
from ltr.console.keys import Kind, Resumed, keys
from ltr.experiment import identity as identities
from ltr.experiment.identity import code_hash, identity_without_data
from ltr.tables.runs import plan
from ltr.tables.spec import Row, read_table

# Rooms that report on runs and compute none of them.
REPORT = {"analysis", "checks", "console", "inference", "search", "tables"}
DCG = '''
"""DCG."""
import logging
log = logging.getLogger(__name__)
BASE = 2  # of the logarithm

def dcg(scores, labels, k=None):
    """The sum of the gains."""
    if k == 0:
        raise ConfigError(f"k={k}: give 1 or more")
    log.info("computing %s", k)
    return gains(labels, base=BASE) / lb(scores)
'''


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("The sum of the gains.", "Sum of the gains, discounted.", True),
        ('    """The sum of the gains."""\n', "", True),
        ("# of the logarithm", "", True),
        ("gains(labels, base=BASE)", "gains(\n        labels, base=BASE,\n    )", True),
        ("give 1 or more", "write 1 or more", True),
        ("computing %s", "now %s", True),
        ("BASE = 2", "BASE = 3", False),
        ("gains(labels, base=BASE) /", "gains(labels, base=BASE) *", False),
        ("k == 0", "k == 1", False),
        ("import logging", "import logging)", False),
    ],
)
def test_code_is_another_where_it_computes_something_else(old, new, same, tmp_path: Path) -> None:
    assert DCG.count(old) == 1
    (path := tmp_path / "dcg.py").write_text(DCG)
    before = code_hash([path])
    path.write_text(DCG.replace(old, new))
    assert (code_hash([path]) == before) == same


def test_a_run_is_known_by_the_code_of_every_room_that_computes_it() -> None:
    folders = {file.relative_to(identities._LTR).parent for file in identities._LTR.rglob("*.py")}
    rooms = {str(folder) for folder in folders if str(folder).partition("/")[0] not in REPORT}
    assert {*identities._ROOMS, identities._OF_ROUNDS} == rooms - {"."}


def test_a_file_counts_in_its_room_but_where_it_prepares_data(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(identities, "_LTR", tmp_path)
    (tmp_path / "room" / "rounds").mkdir(parents=True)
    found = []
    for name in ("one.py", "two.py", "rounds/three.py", "prepare_data.py"):
        (tmp_path / "room" / name).write_text("")
        found.append(identities.room_digest.__wrapped__("room"))  # not kept
    assert len({*found}) == 2
    assert found[1] == found[3]


def test_the_code_of_trees_counts_where_they_score(monkeypatch) -> None:
    """Also in the students of a teacher, which may be trees."""
    digests: dict[str, str] = {}
    monkeypatch.setattr(identities, "room_digest", lambda room: digests.get(room, room))
    monkeypatch.setattr(identities, "run_digest", lambda path: path)
    student = ("model=linear", "loss=distil", "teacher=outputs/x")
    runs = (("model=mlp",), ("model=lightgbm",), student)
    before = [known(*run) for run in runs]
    digests["models/rounds"] = "changed"
    after = [known(*run) for run in runs]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, False]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module of the user, and a package."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine_alone.py").write_text("raise ImportError")  # never imported
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "mine_many").mkdir()
    for name in ("__init__", "losses", "helper"):
        (tmp_path / "mine_many" / f"{name}.py").write_text("raise ImportError")
    return tmp_path


def known(*overrides: str) -> str:
    return identity_without_data(compose(*overrides))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "file", "counts"),
    [
        ("mine_alone.squared", "mine_alone.py", True),
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
    assert set(identities.own_code(config)) == {"mine_alone.log", "mine_many.b"}
    trees = "import ltr.models.rounds\nclass Mine(ltr.models.rounds.LightGBM): ..."
    (mine / "mine_trees.py").write_text(trees)
    library = identities.tree_library(compose("model._target_=mine_trees.Mine"))
    assert library == {"lightgbm": version("lightgbm")}


@pytest.mark.slow
def test_the_version_of_a_tree_library_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    trees, network = known("model=xgboost"), known("model=mlp")
    monkeypatch.setattr(identities, "version", lambda distribution: "0.1")
    assert known("model=xgboost") != trees
    assert known("model=mlp") == network


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
    spec = read_table("ranknet_report").only(["BCE"])
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

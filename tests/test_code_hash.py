"""A run's code is known by what it computes: tidied up it is the same, changed it is another."""

import re
from pathlib import Path

import pytest

import ltr
from ltr.experiment.identity import _code_files, code_hash

DCG = '''
"""DCG."""
import logging
from ltr.metrics.cumulative_gain import gains, log2 as lb
from ltr.errors import ConfigError

log = logging.getLogger(__name__)
BASE = 2  # of the logarithm

def dcg(scores, labels, k=None):
    """The sum of the gains."""
    if k == 0:
        raise ConfigError(f"k={k}: give 1 or more")
    log.info("computing %s", k)
    return gains(labels, base=BASE) / lb(scores)
'''
SAME = {
    "docstring": ("The sum of the gains.", "Sum of the gains, discounted."),
    "module docstring": ('"""DCG."""', '"""DCG of a list."""'),
    "comment": ("# of the logarithm", ""),
    "layout": ("gains(labels, base=BASE)", "gains(\n        labels,\n        base=BASE,\n    )"),
    "error": ("give 1 or more", "write 1 or more"),
    "log": ("computing %s", "now %s"),
    "moved import": (
        "from ltr.metrics.cumulative_gain import",
        "from ltr.metrics.all_gains import",
    ),
    "order": ("BASE = 2  # of the logarithm\n", ""),
}
OTHER = {
    "constant": ("BASE = 2", "BASE = 3"),
    "default": ("k=None", "k=10"),
    "operator": ("gains(labels, base=BASE) /", "gains(labels, base=BASE) *"),
    "condition": ("k == 0", "k == 1"),
    "alias": ("log2 as lb", "log10 as lb"),
    "outside import": ("import logging", "import warnings as logging"),
}


@pytest.mark.parametrize("change", SAME)
def test_a_tidy_up_changes_nothing(change: str) -> None:
    old, new = SAME[change]
    assert DCG.count(old) == 1
    end = "\nBASE = 2\n" if change == "order" else ""
    assert code_hash([DCG.replace(old, new) + end]) == code_hash([DCG])


@pytest.mark.parametrize("change", OTHER)
def test_what_computes_something_else_is_another(change: str) -> None:
    old, new = OTHER[change]
    assert DCG.count(old) == 1
    assert code_hash([DCG.replace(old, new)]) != code_hash([DCG])


def test_definitions_may_move_to_another_module() -> None:
    one = ["def f(x):\n    return g(x)", "from ltr.a import f\ndef g(x):\n    return 2 * x"]
    assert code_hash(one) == code_hash(reversed(one))
    assert code_hash(one) == code_hash(["def g(x):\n    return 2 * x\ndef f(x):\n    return g(x)"])


def test_an_import_counts_where_the_name_alone_does_not_say_what_is_meant() -> None:
    two = ["def mean(x):\n    return sum(x)", "def mean(x):\n    return max(x)"]
    first, second = ([*two, f"from ltr.{module} import mean"] for module in ("sums", "largest"))
    assert code_hash(first) != code_hash(second)


def test_a_text_that_is_no_python_counts() -> None:
    assert code_hash(["def"]) != code_hash(["def "])


@pytest.mark.slow
def test_every_number_in_the_code_of_runs_counts() -> None:
    """The whole code, reworded and one file merged into another; then with one constant changed."""
    texts = {path: path.read_text() for path in _code_files(rounds=True)}
    before = code_hash(texts.values())
    gains = Path(ltr.__path__[0], "metrics", "cumulative_gain.py")
    moved = {path: text for path, text in texts.items() if path != gains}
    first = next(iter(moved))
    moved[first] += "\n" + texts[gains]
    assert code_hash(f"# reworded\n{text}" for text in moved.values()) == before
    changed, times = re.subn(r"arange\(1,", "arange(2,", texts[gains], count=1)
    assert times == 1
    assert code_hash((texts | {gains: changed}).values()) != before

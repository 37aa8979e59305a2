"""``scripts/check_loss.py`` on our losses, on a stranger's, and on mistakes of the command."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from ltr.battery import LOSS_PROPERTIES

SCRIPT = Path(__file__).parents[1] / "scripts" / "check_loss.py"
GOOD = '''
"""A stranger's losses."""

def squared(scores, labels, mask, *, power=2.0):
    error = (scores - labels).masked_fill(~mask, 0)
    return error.abs().pow(power).sum(-1) / mask.sum(-1).clamp(min=1)

def coupled(scores, labels, mask):
    scale = scores.masked_fill(~mask, 0).abs().amax().clamp(min=1e-6)
    return squared(scores / scale, labels, mask)

def crashing(scores, labels, mask):
    raise KeyError("no\\nsuch thing")

def binary(scores, labels, mask):
    from torch.nn.functional import binary_cross_entropy_with_logits as cost
    assert ((labels[mask] >= 0) & (labels[mask] <= 1)).all(), "labels are 0 or 1"
    labels = labels.to(scores.dtype).masked_fill(~mask, 0)
    each = cost(scores.masked_fill(~mask, 0), labels, reduction="none")
    return each.masked_fill(~mask, 0).sum(-1).to(torch.promote_types(scores.dtype, torch.float32))

def soft(scores, labels, mask, *, k=None, temperature=1.0):
    return neural_ndcg_loss(scores, labels, mask, k=k, temperature=temperature)

def needy(scores, labels, mask, depth):
    return squared(scores, labels, mask)

def two(prediction, target):
    return (prediction - target) ** 2

number = 3

import torch
from ltr.losses import neural_ndcg_loss
'''


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A folder of a stranger's, in which commands run."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "losses.py").write_text(GOOD)
    (tmp_path / "mine" / "broken.py").write_text("def f(:\n")
    (tmp_path / "mine" / "hungry.py").write_text("import not_installed_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] == "mine"]:
        sys.modules.pop(name)


def run(capsys, monkeypatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["check_loss.py", *arguments])
    # it would be this process that a stop ends
    monkeypatch.setattr("ltr.__main__.end_when_stopped", lambda: None)
    code: object = 0
    try:
        runpy.run_path(str(SCRIPT), run_name="__main__")
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert isinstance(code, int)
    return code, out, err


@pytest.mark.slow
def test_a_loss_of_ours_holds(capsys, monkeypatch) -> None:
    code, out, err = run(capsys, monkeypatch, "neuralndcg", "k=3", "tol=1e-3")
    assert (code, err) == (0, "")
    count = len(LOSS_PROPERTIES)
    assert out.rstrip().endswith(f"{count} properties: {count - 2} hold, 0 fail, 2 do not apply")
    assert "holds           padding is never read\n" in out
    assert "it draws nothing" in out


def test_a_stranger_s_good_loss_holds(stranger, capsys, monkeypatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "mine.losses.squared", "power=1.5")
    assert code == 0
    assert " 0 fail," in out
    assert "it has no knob k" in out
    assert "no metric is named that it goes to" in out


def test_a_stranger_s_bad_loss_fails_with_what_was_seen(stranger, capsys, monkeypatch) -> None:
    code, out, err = run(capsys, monkeypatch, "mine.losses.coupled")
    assert (code, err) == (1, "")
    (line,) = [line for line in out.splitlines() if "lists do not see each other" in line]
    assert line.startswith("FAILS ")
    assert "value of list 1 changed from" in line


def test_a_loss_that_crashes_is_a_finding(stranger, capsys, monkeypatch) -> None:
    code, out, err = run(capsys, monkeypatch, "mine.losses.crashing")
    assert (code, err) == (1, "")
    assert "crashed on 3 lists of 8 places: KeyError: 'no\\nsuch thing'" in out
    assert "Traceback" not in out


def test_labels_are_below_the_grades(stranger, capsys, monkeypatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "mine.losses.binary", "grades=2")
    assert code == 0, out
    code, out, _ = run(capsys, monkeypatch, "mine.losses.binary")
    assert code == 1
    assert "labels are 0 or 1" in out


@pytest.mark.slow
def test_the_metric_is_compared(stranger, capsys, monkeypatch) -> None:
    code, out, _ = run(capsys, monkeypatch, "metric=map", "mine.losses.soft", "k=5")
    assert code == 1
    assert "from minus map at k=None" in " ".join(out.split())
    assert " 1 fail," in out  # for it is NDCG


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("neuralndgc", "neuralndgc: no such loss; write module.function, or one of approxndcg,"),
        ("nowhere.to.loss", "nowhere.to.loss: there is no module nowhere; start in the folder"),
        ("mine.no_losses.f", "mine.no_losses.f: there is no module mine.no_losses; start in"),
        (".f", ".f: write module.function, such as my.module.my_loss"),
        ("mine.losses.", "mine.losses.: write module.function, such as my.module.my_loss"),
        ("mine.losses.sqared", "mine.losses has no sqared; it has squared"),
        ("mine.losses.number", "mine.losses.number is no function: a loss is (scores, labels,"),
        ("mine.losses.two", "mine.losses.two(prediction, target): a loss takes (scores, labels,"),
        ("mine.losses.needy", "mine.losses.needy needs a value of depth: add depth=VALUE"),
        ("mine.broken.f", "mine.broken cannot be imported, mend it first: SyntaxError: "),
        ("mine.hungry.f", "mine.hungry needs not_installed_at_all, which is not installed"),
        (
            "mine.losses.squared pover=1",
            "pover: mine.losses.squared has no such knob; it has power (did you mean power?)",
        ),
        ("neuralndcg k=0", "k=0 is not a cutoff: write an integer k >= 1, or null for all ranks"),
        ("neuralndcg k", "k: write KEY=VALUE"),
        ("neuralndcg k=[", "k=[: [ is not a value in YAML"),
        ("neuralndcg metric=ndgc", "metric=ndgc: choose one of dcg, ndcg, "),
        ("neuralndcg grades=1", "grades=1: give a whole number >= 2"),
    ],
)
def test_a_mistake_is_one_line(stranger, capsys, monkeypatch, arguments, message) -> None:
    code, out, err = run(capsys, monkeypatch, *arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("script", ["check_loss.py", "list_losses.py"])
def test_help_imports_no_torch(script, tmp_path) -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = ['x', '--help']\n"
        f"try: runpy.run_path({str(SCRIPT.parent / script)!r}, run_name='__main__')\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "configs/loss/" in done.stdout

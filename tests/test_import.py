"""What a user of the losses alone needs: torch, NumPy and jaxtyping, nothing else is imported."""

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import ltr

ALONE = """
import sys
for name in (
    "hydra", "omegaconf", "numba", "pandas", "scipy", "sklearn", "statsmodels",
    "matplotlib", "jinja2", "tabulate", "tqdm", "filelock", "tensorboard",
):
    sys.modules[name] = None
import ltr
assert "torch" not in sys.modules and ltr.__version__
import ltr.losses, ltr.metrics, ltr.relaxations, torch
scores = torch.tensor([[0.1, 0.9, 0.5]], requires_grad=True)
labels, mask = torch.tensor([[2.0, 1.0, 0.0]]), torch.ones(1, 3, dtype=torch.bool)
values = ltr.losses.neural_ndcg_loss(scores, labels, mask, k=1, temperature=0.01)
values.mean().backward()
ltr.losses.lambdarank_loss(scores, labels, mask, k=1).mean().backward()
print(round(values.item(), 6), scores.grad.isfinite().all().item())
print(round(ltr.metrics.ndcg(scores, labels, mask, k=1).item(), 6))
"""


@pytest.mark.slow
def test_losses_and_metrics_need_little_more_than_torch() -> None:
    how = {"capture_output": True, "text": True, "cwd": Path(__file__).parents[1]}
    done = subprocess.run([sys.executable, "-c", ALONE], check=False, **how)
    third = round((2**1 - 1) / (2**2 - 1), 6)
    assert done.stdout.split() == [str(-third), "True", str(third)], done.stderr
    assert "plain path" in done.stderr  # said once
    assert done.stderr.count("\n") == 1


def test_the_public_packages_are_attributes_and_no_other_name_is() -> None:
    for name in ltr.__all__:
        package = import_module("ltr.ranker" if name == "Ranker" else f"ltr.{name}")
        assert getattr(ltr, name) is (package.Ranker if name == "Ranker" else package)
        assert name in dir(ltr)
    with pytest.raises(AttributeError, match="no attribute 'lossess'"):
        ltr.lossess  # noqa: B018


def test_no_file_imports_the_room_that_it_is_in() -> None:
    """Such a circle is no circle of siblings, of which ``lint-imports`` knows."""
    wrong = []
    for path in Path(ltr.__file__).parent.rglob("*/[!_]*.py"):
        room, text = path.parent.name, path.read_text()
        names = re.findall(rf"^ *from ltr\.{room} import (\w+)", text, re.MULTILINE)
        names += re.findall(rf"^ *import ltr\.{room}\b(?!\.)", text, re.MULTILINE)
        wrong += [path.name for name in names if not path.with_name(f"{name}.py").exists()]
    assert not wrong

"""What the README says is so."""

import re
import tomllib
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def test_the_loss_of_your_own_is_that_of_contributing_which_is_trained_there() -> None:
    (code,) = [block for block in blocks("python") if "def squared_loss" in block]
    (config,) = blocks("yaml")
    whole = (ROOT / "CONTRIBUTING.md").read_text()
    assert code in whole
    assert config in whole


def test_a_loss_in_a_strangers_loop_works_word_for_word() -> None:
    (code,) = [block for block in blocks("python") if "neural_ndcg_loss" in block]
    scores = torch.randn(2, 5, requires_grad=True)
    names = {"scores": scores, "labels": torch.ones(2, 5), "mask": torch.ones(2, 5).bool()}
    exec(code, names)
    assert names["values"].shape == (2,)
    assert scores.grad is not None


def test_the_source_package_has_what_the_tests_read() -> None:
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    place = r"(?:parents\[1\]|ROOT)\)? / \"(\w[\w.]*)"
    named = {n for f in (ROOT / "tests").glob("*.py") for n in re.findall(place, f.read_text())}
    missing = {f"/{name}" for name in named} - {*own["sdist"]["include"]}
    assert missing <= {"/README.md", "/pyproject.toml"}, "these are in it anyhow"


def test_every_choice_it_names_exists() -> None:
    for group, choice in re.findall(
        r"\b(dataset|loss|model|experiment|transform)=([a-z0-9_]+)", README
    ):
        path = ROOT / "configs" / group / f"{choice}.yaml"
        assert path.is_file() or choice == "squared", f"{group}={choice}"

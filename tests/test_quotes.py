"""Paths reach Hydra as they are, whatever signs are in them."""

import re

from conftest import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from processes import ROOT

from ltr.console.arguments import as_hydra, quoted, with_quotes


def parsed(override: str) -> object:
    return OverridesParser.create().parse_override(override).value()


def test_signs_in_a_path() -> None:
    for name in ("/home/müller/x", "~x", "a b", "a=b", "a (b)", "a&b", "a#b"):
        assert parsed(with_quotes(f"resume={name}")) == name
    assert compose(with_quotes("data_dir=a (b)")).data_dir == "a (b)"
    assert with_quotes("~tracking") == "~tracking"
    plain = ("resume=null", "resume=outputs/a-b_c.1", "resume='a b'", "scores=[a,b]", "seed=1,2")
    assert [with_quotes(text) for text in plain] == [*plain]


@given(st.text(st.sampled_from("ab'\\\"=,# ~ü&;!/[1]{}():|^<>"), min_size=1))
def test_any_text_survives_quotes(text: str) -> None:
    assert parsed(f"resume={quoted(text)}") == text


def test_lists_of_commands_that_do_not_sweep_need_no_brackets() -> None:
    assert as_hydra("evaluate", ["metrics=ndcg@5,map"]) == ["metrics=['ndcg@5','map']"]
    assert as_hydra("predict", ["features=1,2", "id=null"]) == ["features=['1','2']", "id=null"]
    assert as_hydra("evaluate", ["metrics=[ndcg@5]"]) == ["metrics=[ndcg@5]"]
    assert as_hydra("check_loss", ["a.b", "power=2"]) == ["name='a.b'", "knobs=['power=2']"]
    hydras = ["--cfg", "job", "--config-dir=x"]
    assert as_hydra("train", hydras) == hydras


def test_every_override_with_brackets_is_shown_in_quotes() -> None:
    """In remedies, and in the comments of configs, which are the help."""
    unquoted = r"[\w.]+=(\[|\{\{?[a-z]+:)"
    comments = re.compile(rf"#.* {unquoted}")
    remedies = re.compile(rf"(give|write|such as|name them,|name it in|with|set) {unquoted}")
    files = [path for path in (ROOT / "configs").rglob("*.yaml") if path.parent.name != "tables"]
    shown = [line for path in files for line in path.read_text().splitlines()]
    assert not [line for line in shown if comments.search(line)]
    code = [line for path in (ROOT / "ltr").rglob("*.py") for line in path.read_text().splitlines()]
    assert not [line for line in code if remedies.search(line)]

"""Paths reach Hydra as they are, whatever signs are in them."""

import pytest
from conftest import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from ltr.console.arguments import quoted, with_quotes

NAMES = [
    "/home/müller/x", "/home/o'neil/x", "/tmp/a#b", "a&b", "a;b", "a b", "a,b", "a=b", "~x", "a!b",
    "a\\b", "a\\", "a\\'b", "a\\\\'b", "a\\\\b", 'a"b', "a[1]", "{a}", "a(b)", "a:b", "a|b",
    "a^b", "a<b>",
]  # fmt: skip


def parsed(override: str) -> object:
    return OverridesParser.create().parse_override(override).value()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_signs_in_a_path(name: str) -> None:
    assert parsed(f"resume={quoted(name)}") == name
    assert parsed(with_quotes(f"resume={name}")) == name
    assert compose(with_quotes(f"data_dir={name}")).data_dir == name


@given(st.text(st.sampled_from("ab'\\\"=,# ~ü"), min_size=1))
def test_any_text_survives_quotes(text: str) -> None:
    assert parsed(f"resume={quoted(text)}") == text


@pytest.mark.parametrize(
    "argument",
    [
        "resume=null", "resume=outputs/a-b_c.1", "resume='outputs/a b'", "scores=[a,b]", "seed=1,2",
        "loss._target_=a#b", "-m",
    ],
)  # fmt: skip
def test_what_needs_no_quotes_stays(argument: str) -> None:
    assert with_quotes(argument) == argument

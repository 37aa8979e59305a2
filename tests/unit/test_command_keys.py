"""The keys of a command come from its dataclass alone: help, types, refusals and completion."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from ltr.cli import command_keys as module
from ltr.cli.arguments import quoted
from ltr.cli.command_keys import CommandKey, command_description, command_keys
from ltr.cli.commands import COMMANDS
from ltr.cli.completion import shell_completion
from ltr.cli.compose import composed, typed
from ltr.cli.help import help_of
from ltr.cli.options import option, parse_options
from ltr.cli.typed_values import read_value
from ltr.errors import ConfigError
from tests.helpers.paths import ROOT

WITH_CLASS = sorted({*COMMANDS} - {"train"})


def options_class(command: str) -> Any:
    """The class that annotates the parameter of the command's function, imported."""
    module_name, _, function_name = COMMANDS[command][0].partition(":")
    function = getattr(import_module(module_name), function_name)
    (found,) = (hint for name, hint in get_type_hints(function).items() if name != "return")
    return found


@pytest.mark.parametrize("command", WITH_CLASS)
def test_command_keys_are_those_of_the_dataclass(command: str) -> None:
    keys = command_keys(command)
    declared = {field.name: field for field in fields(options_class(command))}
    assert keys.keys() <= declared.keys()
    for name, key in keys.items():
        field = declared[name]
        default = field.default
        if default is MISSING:
            default = (
                module.MISSING if field.default_factory is MISSING else field.default_factory()
            )
        assert (key.default, type(key.default)) == (default, type(default)), name
        assert key.help == field.metadata.get("help", ""), name
        assert key.help or key.declared_by == "collected", name
    unset = declared.keys() - keys.keys()  # by Python alone
    assert all(
        declared[name].default is not MISSING or declared[name].default_factory is not MISSING
        for name in unset
    )


@pytest.mark.parametrize("command", WITH_CLASS)
def test_help_has_a_line_for_each_key_in_order(command: str) -> None:
    lines = help_of(command).partition("Keys and their defaults")[2].splitlines()
    names = [line.partition(":")[0] for line in lines[2:] if line[:1].strip()]
    keys = command_keys(command).values()
    assert names == [key.name for key in keys if key.declared_by != "collected"]


@pytest.mark.parametrize("command", WITH_CLASS)
def test_examples_in_help_are_accepted(command: str) -> None:
    examples = re.findall(rf"^ +ltr {command}\b(.*)", command_description(command), re.M)
    assert examples
    for example in examples:
        words = shlex.split(re.sub(r"  +\w.*", "", example))  # without what it says of the words
        config = typed(command, words)
        if command in ("table", "search", "auto"):
            overrides = [word for word in config.train if not word.startswith("space.")]
            composed("train", *overrides)


def test_help_comes_from_source_and_wraps_long_text() -> None:
    text = help_of("predict")
    assert text.startswith("Score and rank the items of a file with a trained model.\n\n  ")
    assert "\ninput: ??? # a table (.parquet" in text
    assert "\n  # LETOR text has a line for each item" in text
    assert "\norder: input # input: the rows are in the order of the input | ranked" in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("command", ["train", "evaluate", "prepare_data", "compare"])
def test_help_lists_only_choices_that_can_be_typed(command: str) -> None:
    choices = help_of(command).partition("Choices (GROUP=CHOICE)\n\n")[2].partition("\n\n")[0]
    groups = {name: set(files.split(", ")) for name, files in re.findall(r"(\w+): (.*)", choices)}
    assert "conventions" not in groups
    assert command == "prepare_data" or "letor4" in groups["convention"]
    assert command == "compare" or "mq2008" in groups["dataset"]
    assert "memory" not in groups.get("dataset", ())


def test_declaration_that_is_no_literal_names_its_line(tmp_path: Path, monkeypatch) -> None:
    source = (
        "class Mine:\n"
        '    seeds: int = option(1, help="how many")\n'
        '    limit: int = option(LIMIT, help="how far")\n'
        "def mine(options: Mine): ...\n"
    )
    (tmp_path / "my_command.py").write_text(source)
    monkeypatch.setattr(module, "_ROOT", tmp_path)
    monkeypatch.setitem(COMMANDS, "mine", ("my_command:mine", "for this test"))
    with pytest.raises(TypeError, match=r"my_command.py:3: limit: expected literals"):
        command_keys("mine")
    (tmp_path / "my_command.py").write_text(source.replace("LIMIT", "-2"))
    module._parse.cache_clear()
    assert {name: key.default for name, key in command_keys("mine").items()} == {
        "seeds": 1,
        "limit": -2,
    }


def test_option_gives_python_its_default() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Example:
        name: str = option(help="a name")
        settings: Any = option({"empty": None}, help="settings")
        count: int = option(2, at_least=1, help="a count")

    first = Example(name="a")
    assert (first.settings, first.count) == ({"empty": None}, 2)
    assert first.settings is not Example(name="b").settings
    with pytest.raises(TypeError, match="name"):
        Example()
    with pytest.raises(ConfigError, match="count=0: give a whole number >= 1"):
        parse_options(Example, OmegaConf.create({"name": "a", "count": 0}))
    with pytest.raises(ConfigError, match=r"set name=\.\.\.; see --help"):
        parse_options(Example, OmegaConf.create({"name": "???", "count": 1}))


@given(st.text(st.sampled_from("ab'\\\"=,# ~ü&;!/[1]{}():|^<>"), min_size=1))
def test_read_value_keeps_any_quoted_text(text: str) -> None:
    assert read_value(command_keys("predict")["output"], quoted(text)) == text
    assert read_value(command_keys("predict")["features"], f"[{quoted(text)},b]") == [text, "b"]


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        ("str", "1.10", "1.10"),
        ("str", "a,b", "a,b"),
        ("str | None", "null", None),
        ("tuple[str, ...]", "1_0, b", ["1_0", "b"]),
        ("tuple[str, ...] | None", "null", None),
        ("tuple[str, ...]", "[null]", ["null"]),
        ("tuple[str, ...]", "[]", []),
        ("int", "1e3", 1000.0),
        ("int | None", "7", 7),
        ("bool", "True", True),
        ("float", "x", "x"),
        ("Any", "{a:[x,y],b:z}", {"a": ["x", "y"], "b": "z"}),
        ("Any", "'a, b'", "a, b"),
    ],
)
def test_read_value_follows_the_type(annotation: str, text: str, value: object) -> None:
    found = read_value(CommandKey("name", annotation, "Options", "option"), text)
    assert (found, type(found)) == (value, type(value))


def test_typed_refuses_what_is_no_key_of_the_command() -> None:
    for command, words, line in (
        ("predict", ["tp=1"], "tp: no such key"),
        ("export", ["device=cpu"], "device: no such key"),  # always on the CPU
        ("compare", ["sampels=5"], r"sampels: no such key; did you mean samples\?"),
        ("table", ["hydra.verbose=true"], "hydra.verbose: no such key"),
        (
            "predict",
            ["outputs/a", "outputs/b"],
            "outputs/b: expected KEY=VALUE, got a second value for checkpoint",
        ),
        ("evaluate", ["convention.emty=1"], r"did you mean convention.empty"),
    ):
        with pytest.raises(ConfigError, match=line):
            typed(command, words)


def test_shell_completion_knows_commands_keys_and_choices() -> None:
    def completed(line: str) -> list[str]:
        return shell_completion(["query=bash", line]).split()

    assert completed("ltr prep") == ["prepare_data"]
    assert completed("ltr predict inp") == ["input="]
    assert {"checkpoint=", "trust="} <= {*completed("ltr predict ")}
    assert completed("ltr train loss=neuralnd") == ["neuralndcg", "neuralndcg_t"]
    assert completed("ltr train model.drop") == ["model.dropout="]
    assert completed("ltr evaluate dataset=mq2008 convention=le") == ["letor4"]
    assert completed("ltr compare convention=tr") == ["trec"]
    assert completed("ltr train dataset=mem") == []  # only a program can use dataset=memory
    assert completed("ltr nothing x") == []
    assert "complete -o nospace" in shell_completion(["install=bash"])


@pytest.mark.slow
def test_help_config_and_refusals_import_no_torch() -> None:
    code = (
        "import sys\nfrom ltr.__main__ import main\n"
        "for words in (['--help'], ['--cfg', 'job', '-p', 'split'], ['tpo=3']):\n"
        "  sys.argv = ['ltr', 'export', *words]\n"
        "  try: main()\n"
        "  except SystemExit as stop: print('status', stop.code)\n"
        "print('heavy:', sorted({'torch', 'pandas', 'numpy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        done.stderr
        == "error: tpo: no such key; did you mean to? --cfg job lists all keys; see --help\n"
    )
    assert "\nvali\nstatus 2\nheavy: []\n" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--help"], ["predict", "--help"], ["train", "--help"], ["predict", "--cfg", "job"]]
)
def test_closed_pipe_ends_a_command_silently(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as head does when it has read enough
    command = [sys.executable, "-m", "ltr", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")

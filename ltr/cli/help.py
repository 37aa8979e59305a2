"""The ``--help`` of the commands."""

import re
from textwrap import wrap
from typing import Any

from ltr.cli.arguments import as_text
from ltr.cli.command_keys import MISSING, CommandKey, command_description, command_keys
from ltr.cli.commands import COMMANDS
from ltr.cli.configs import CONFIGS, FOLDERS, groups_of, train_keys, typed_choices
from ltr.errors import as_started

_WIDTH = 120


def help_of(command: str) -> str:
    """Return the ``--help`` text of a command: its description, choices and keys."""
    if command == "train":
        description, keys = _train_texts()
        names = [*train_keys()]
    else:
        description = command_description(command)
        names = [*command_keys(command)]
        keys = _describe_keys(command)
    # ``key_name``: convention=NAME,NAME sets the key conventions, whose own name nobody types.
    folders = {"convention" if name == "conventions" else name for name in FOLDERS.keys() & names}
    groups = [*groups_of(command), *sorted(folders)]
    choices = [
        f"{group}: {', '.join(files)}" for group in groups if (files := typed_choices(group))
    ]
    parts = [description]
    if choices:
        parts += ["Choices (GROUP=CHOICE)", "\n".join(choices)]
    parts += ["Keys and their defaults (KEY=VALUE; a key with the value ??? must be set)", keys]
    return _with_commands_as_started("\n\n".join(parts)) + "\n"


def _train_texts() -> tuple[str, str]:
    """Return the description and the keys of ``train``, from the comments in its config file."""
    text = (CONFIGS / "train.yaml").read_text()
    head = text.split("\ndefaults:\n")[0]
    keys = text.split("\n\n", 1)[1].split("\nhydra:\n")[0].split("\nsuggested:")[0]
    return re.sub(r"^# ?", "", head, flags=re.M), keys.rstrip()


def _describe_keys(command: str) -> str:
    """Return a line ``KEY: DEFAULT # HELP`` for each key, and an empty line between classes."""
    lines = list[str]()
    section = None
    for key in command_keys(command).values():
        if key.declared_by == "collected":
            continue
        if section not in (None, key.section):
            lines.append("")
        section = key.section
        lines += _describe_key(key)
    return "\n".join(lines)


def _describe_key(key: CommandKey) -> list[str]:
    """Return the lines in ``--help`` about a key and about the keys inside it.

    >>> key = CommandKey("top", "int", "Options", "option", default=20, help="how many are printed")
    >>> _describe_key(key)
    ['top: 20 # how many are printed']
    """
    inner_keys = key.default if isinstance(key.default, dict) else {}
    shown_default = "" if inner_keys else f" {_default_text(key.default)}"
    comment = wrap(
        key.help,
        _WIDTH,
        initial_indent=f"{key.name}:{shown_default} # ",
        subsequent_indent="  # ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return comment + [f"  {name}: {_default_text(value)}" for name, value in inner_keys.items()]


def _default_text(default: Any) -> str:
    return default if default == MISSING else as_text(default)


def _with_commands_as_started(text: str) -> str:
    """Return ``text`` with each command in the form in which the user started ``ltr``."""
    names = "|".join(COMMANDS)
    text = re.sub(
        r"(?:python )?(?:scripts/(\w+)|(train))\.py", lambda m: f"ltr {m[1] or m[2]}", text
    )
    return re.sub(rf"\bltr ({names})\b", lambda match: as_started(match[1]), text)

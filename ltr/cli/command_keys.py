"""Read the keys of a command from the source code of its dataclass of options.

The module of a command imports torch, which takes seconds. Reading its source without importing it
keeps ``--help``, completion and errors about mistyped keys fast.
"""

import ast
from collections.abc import Container
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ltr.cli.commands import COMMANDS

MISSING = "???"  # the default of a key that must be set, in the notation of OmegaConf
_ROOT = Path(__file__).resolve().parents[2]  # the folder that contains the package
_DECLARATIONS = ("option", "group", "collected")  # functions of ``ltr.cli.options``


@dataclass(frozen=True)
class CommandKey:
    """A field of the options of a command."""

    name: str
    annotation: str  # its type in the source code, such as "str | None"
    section: str  # the class that declares it
    declared_by: str  # the function that declares it, one of _DECLARATIONS
    default: Any = MISSING
    help: str = ""
    null_is_text: bool = False
    collects: str = ""  # the kind of arguments that it collects, see ``options.collected``

    @property
    def holds_text(self) -> bool:
        """Whether the value is a single string."""
        return self.annotation in ("str", "str | None")

    @property
    def holds_texts(self) -> bool:
        """Whether the value is a list of strings or, with the annotation ``Any``, may be one."""
        return self.annotation.startswith("tuple[str, ...]") or self.annotation == "Any"


class _Class(NamedTuple):
    """A class, and the file that defines it."""

    node: ast.ClassDef
    path: Path


@cache
def command_keys(command: str) -> dict[str, CommandKey]:
    """Return the keys of a command by name, in the order of its ``--help``.

    The keys that its own class declares come first, then those of each base class.

    >>> [*command_keys("importances")]
    ['run', 'top', 'write']
    >>> command_keys("importances")["top"].default
    20
    """
    keys = dict[str, CommandKey]()
    declared_names = set[str]()
    for options_class in _with_bases(_options_class(command)):
        for name, statement in _fields(options_class).items():
            declared = _read_declaration(name, statement, options_class)
            if declared is not None and name not in declared_names:
                keys[name] = declared
            declared_names.add(name)  # a base class may declare it differently
    return keys


def key_name(typed_name: str, keys: Container[str]) -> str:
    """Return the name of the key that a user sets with ``typed_name=VALUE``.

    If the command has a key ``conventions``, ``convention=NAME,NAME`` sets that key.
    """
    takes_several = typed_name == "convention" and "conventions" in keys
    return "conventions" if takes_several else typed_name


def command_description(command: str) -> str:
    """Return the docstring of a command's options, which is the beginning of its ``--help``."""
    docstring = ast.get_docstring(_options_class(command).node, clean=False) or ""
    return docstring.replace("\n    ", "\n").rstrip()


def default_values(command: str) -> dict[str, Any]:
    """Return the defaults of the keys of a command, by name."""
    return {name: declared.default for name, declared in command_keys(command).items()}


def _fields(options_class: _Class) -> dict[str, ast.AnnAssign]:
    """Return the statements of the fields that the class itself declares, by name."""
    return {
        ast.unparse(statement.target): statement
        for statement in options_class.node.body
        if isinstance(statement, ast.AnnAssign)
    }


def _read_declaration(
    name: str, statement: ast.AnnAssign, options_class: _Class
) -> CommandKey | None:
    """Return the key that a field declares; None if only Python code can set the field."""
    call = statement.value
    declared_by = ast.unparse(call.func) if isinstance(call, ast.Call) else ""
    if not isinstance(call, ast.Call) or declared_by not in _DECLARATIONS:
        return None
    try:
        arguments = [ast.literal_eval(argument) for argument in call.args]
        keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except ValueError as error:
        raise TypeError(
            f"{options_class.path}:{statement.lineno}: {name}: expected literals in "
            f"{declared_by}(...), because --help reads them without importing the module"
        ) from error
    collects = arguments.pop() if declared_by == "collected" else ""
    default = () if collects else MISSING
    return CommandKey(
        name,
        annotation=ast.unparse(statement.annotation),
        section=options_class.node.name,
        declared_by=declared_by,
        default=arguments[0] if arguments else default,
        help=keywords.get("help", ""),
        null_is_text=keywords.get("null_is_text", False),
        collects=collects,
    )


def _options_class(command: str) -> _Class:
    """Return the class that annotates the parameter of the command's function."""
    module_name, _, function = COMMANDS[command][0].partition(":")
    path = _file_of(module_name)
    module = _parse(path)
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            annotation = node.args.args[0].annotation
            return _find_class("" if annotation is None else ast.unparse(annotation), path)
    raise LookupError(f"{path}: expected the function {function}, found none")


def _find_class(name: str, path: Path) -> _Class:
    """Return the class ``name`` that the file ``path`` defines, or imports from this package."""
    module = _parse(path)
    for node in module.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _Class(node, path)
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return _find_class(name, _file_of(str(node.module)))
    raise LookupError(f"{path}: expected the class {name}, found none")


def _with_bases(options_class: _Class) -> list[_Class]:
    """Return the class and all its base classes; each class comes before its own bases."""
    classes = [options_class]
    for base in options_class.node.bases:
        classes += _with_bases(_find_class(ast.unparse(base), options_class.path))
    return classes


def _file_of(module_name: str) -> Path:
    return _ROOT.joinpath(*module_name.split(".")).with_suffix(".py")


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))

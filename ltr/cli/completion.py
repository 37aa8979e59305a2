"""Complete a command line in the shell: commands, keys, and choices of config groups."""

from ltr.cli.command_keys import command_keys, key_name
from ltr.cli.commands import COMMANDS
from ltr.cli.configs import groups_of, keys_of_train, typed_choices

# The script that bash evaluates. Bash splits words at "=", and completes file names itself.
BASH = """_ltr_complete() {
    COMPREPLY=($(ltr -sc query=bash "${COMP_LINE:0:COMP_POINT}" 2> /dev/null))
}
complete -o nospace -o default -F _ltr_complete ltr"""


def shell_completion(arguments: list[str]) -> str:
    """Return the output of ``ltr -sc ARGUMENTS``.

    For ``install=bash``, this is the script that the shell evaluates. For ``query=bash LINE``, it
    is the possible completions of the last word of ``LINE``.

    >>> shell_completion(["query=bash", "ltr importances t"])
    'top='
    >>> shell_completion(["query=bash", "ltr evaluate dataset=mq2008 convention=le"])
    'letor4'
    """
    if arguments[:1] == ["query=bash"]:
        return "\n".join(_completions(" ".join(arguments[1:])))
    return BASH


def _completions(line: str) -> list[str]:
    """Return the possible completions of the last word of ``line``."""
    *previous, current = line.split(" ")
    typed_before = list(filter(None, previous))
    if len(typed_before) < 2:
        return [command for command in COMMANDS if command.startswith(current)]
    command = typed_before[1]
    if command not in COMMANDS:
        return []
    name, equals, value = current.partition("=")
    keys = {*(keys_of_train() if command == "train" else command_keys(command))}
    if equals:
        is_key = key_name(name, keys) in keys or name in groups_of(command)
        return [choice for choice in typed_choices(name) if is_key and choice.startswith(value)]
    same_depth = (key for key in keys if "." in current or "." not in key)
    return sorted(f"{key}=" for key in same_depth if key.startswith(current))

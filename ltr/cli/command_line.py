"""Read the arguments of all commands except ``train``, without Hydra."""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from omegaconf import DictConfig, OmegaConf

from ltr.cli.arguments import as_text
from ltr.cli.command_keys import MISSING
from ltr.cli.compose import typed
from ltr.cli.configs import set_config_dir
from ltr.cli.folders import register_resolvers
from ltr.cli.help import help_of
from ltr.cli.process import log_to_stderr
from ltr.errors import ConfigError


def config_of_command(command: str, arguments: Sequence[str]) -> DictConfig | None:
    """Return the config of the typed ``arguments`` of a command.

    If they contain an option such as ``--help``, print the answer, and return None.

    Raises:
        ConfigError: an argument is invalid.
    """
    options = _parser().parse_intermixed_args(list(arguments))
    set_config_dir(options.config_dir)
    if options.help:
        print(help_of(command), end="")
        return None
    if options.cfg:
        print(_config_text(command, options.typed, options.package))
        return None
    config = typed(command, options.typed)
    log_to_stderr()
    register_resolvers()  # for the configs in run folders
    return config


class _Parser(argparse.ArgumentParser):
    """A parser that raises errors of this project."""

    def error(self, message: str) -> NoReturn:
        """Raise ``ConfigError``."""
        raise ConfigError(f"{message}; see --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("typed", nargs="*")
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--cfg", "-c", choices=["job"])
    parser.add_argument("--package", "-p")
    parser.add_argument("--config-dir", "-cd")
    return parser


def _config_text(command: str, arguments: Sequence[str], key: str | None) -> str:
    """Return the config of a command with ``arguments`` as YAML, or only the value of ``key``."""
    config = typed(command, arguments)
    if key is None:
        return OmegaConf.to_yaml(config).rstrip()
    value = OmegaConf.select(config, key, default=MISSING)
    if value == MISSING and key not in [*config]:
        raise ConfigError(f"--package {key}: no such key; --cfg job lists all keys")
    return OmegaConf.to_yaml(value).rstrip() if OmegaConf.is_config(value) else as_text(value)

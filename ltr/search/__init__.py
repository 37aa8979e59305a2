"""Search for the settings that are best on vali: its space, its trials, what it found."""

from importlib.util import find_spec

from ltr.errors import ConfigError, install

if find_spec("optuna") is None:
    raise ConfigError(f"a search needs Optuna: {install('search')}")

"""The command ``ltr search``, in the process of the tests."""

from pathlib import Path

import pandas as pd

from ltr.errors import LTRError
from ltr.lab.search import command
from tests.helpers.folders import refused
from tests.helpers.orders import search_options


def print_search(*arguments: str) -> str:
    """What the command prints."""
    return command.run_search(search_options(arguments))


def read_trials(tmp_path: Path) -> pd.DataFrame:
    """The trials of the search ``mine``."""
    return pd.read_csv(tmp_path / "out/search/mine/trials.csv", keep_default_na=False)


def refuse_search(*arguments: str) -> str:
    """The message with which the command refuses."""
    return refused(lambda: print_search(*arguments), LTRError)

"""What a search has found, as plain values that a file holds.

Importing this must stay possible without Optuna.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ltr.console.keys import stated
from ltr.data.lists import Lists
from ltr.errors import DataError
from ltr.search.definition import Search


@dataclass(frozen=True)
class Found:
    """The best trial of a search.

    Attributes:
        settings: its overrides of ``train.py``; none where the config's own values were best.
        worth: what a trial is judged by, such as ``crossfit ndcg@5``.
        value: of the best trial, on vali.
        best_epoch: its best epoch's value on vali, which is too high.
        own: the value of the config's own settings; None where that trial failed.
        trials, pruned, failed: how many there were, and of these.
        search: the identity of the search, ``search_identity``.
        code: of the training.
    """

    settings: tuple[str, ...]
    worth: str
    value: float
    best_epoch: float
    own: float | None
    trials: int
    pruned: int
    failed: int
    search: str
    code: str

    def plain(self) -> dict[str, Any]:
        """Itself for a file."""
        return {**asdict(self), "settings": list(self.settings)}


def search_identity(search: Search, data: Mapping[str, str]) -> str:
    """SHA-256 of what is searched, and of the lists of train and vali; code does not count.

    Args:
        search: with its ``select_value``.
        data: as ``digests`` has it.
    """
    parts = {
        "settings": stated(search.settings()),
        "data": dict(data),
        "pruner": search.pruner,
        "sampler": [search.sampler_seed, search.n_startup_trials],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def digests(fold: int | None, lists: Mapping[str, Lists]) -> dict[str, str]:
    """What identifies the ``lists`` of a fold."""
    place = "" if fold is None else f"fold {fold} "
    return {f"{place}{split}": part.digest for split, part in lists.items()}


def found_path(search: Search) -> Path:
    """Where ``search`` leaves what it has found: more trials, another file."""
    return search.folder / f"found-{search.trials}.yaml"


def parse_found(where: str, raw: Any) -> Found:
    """What ``Found.plain`` gave.

    Raises:
        DataError: it is something else; ``where`` names it.
    """
    try:
        found = Found(**{**raw, "settings": tuple(raw["settings"])})
        numbers = [found.value, found.best_epoch, *([] if found.own is None else [found.own])]
        counts = [found.trials, found.pruned, found.failed]
        right = all(map(math.isfinite, numbers)) and all(isinstance(one, int) for one in counts)
        right &= all(isinstance(one, str) for one in (found.worth, found.search, found.code))
        right &= all(isinstance(one, str) for one in found.settings)
    except (TypeError, KeyError, OverflowError):
        right = False
    if not right:
        raise DataError(
            f"{where} is not what a search has found: remove it, and it is searched again"
        )
    return found

"""A row of a table that is an ensemble of other rows, as its file has it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ltr.errors import ConfigError

_KEYS, _SEEDS = ("ensemble", "weights", "seeds"), ("all", "each")


@dataclass(frozen=True)
class EnsembleRow:
    """The rows whose runs are the members.

    Attributes:
        rows: labels of trained rows.
        weights: ``equal``, ``vali``, or one for each row.
        seeds: ``all``: one ensemble in each fold, of the runs of all seeds; ``each``: one of each
            seed's runs.
    """

    rows: tuple[str, ...]
    weights: str | tuple[float, ...] = "equal"
    seeds: str = "all"

    def weights_of(self, seeds: int) -> str | tuple[float, ...]:
        """The weights of the members, row by row, ``seeds`` of each.

        >>> EnsembleRow(("A", "B"), (0.5, 0.5)).weights_of(2)
        (0.25, 0.25, 0.25, 0.25)
        """
        if isinstance(self.weights, str):
            return self.weights
        return tuple(weight / seeds for weight in self.weights for _ in range(seeds))

    def describe(self) -> str:
        """The row in words."""
        weights = (
            self.weights
            if isinstance(self.weights, str)
            else ", ".join(f"{weight:g}" for weight in self.weights)
        )
        return f"ensemble of {', '.join(self.rows)} (weights {weights}, seeds {self.seeds})"


def parse_ensemble(
    path: Path, label: str, raw: Mapping[str, Any], trained: list[str]
) -> EnsembleRow:
    """The row ``label`` of the table in ``path``.

    Args:
        raw: ``ensemble``, and perhaps ``weights`` and ``seeds``.
        trained: the labels of the rows that may be members.

    Raises:
        ConfigError: a key or a value is wrong.
    """
    from ltr.ensembles.weights import parse_weights  # numpy, which --help does without

    example = "write {ensemble: [ROW, ROW], weights: equal, seeds: all}"
    if unknown := sorted(set(raw) - set(_KEYS)):
        raise ConfigError(f"{path}: {label}: {unknown[0]} is unknown; {example}")
    rows = raw.get("ensemble")
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{path}: {label}: ensemble names no rows; {example}")
    if wrong := [row for row in rows if row not in trained]:
        raise ConfigError(
            f"{path}: {label}: {wrong[0]} is not a trained row; choose of {', '.join(trained)}"
        )
    seeds = raw.get("seeds", "all")
    if seeds not in _SEEDS:
        raise ConfigError(f"{path}: {label}: seeds={seeds}: write {' or '.join(_SEEDS)}")
    if len(rows) == 1 and seeds == "each":
        raise ConfigError(
            f"{path}: {label}: one row and one seed are no ensemble; name two rows, or write "
            "seeds: all"
        )
    weights = raw.get("weights", "equal")
    texts = [str(one) for one in (weights if isinstance(weights, list) else [weights])]
    try:
        return EnsembleRow(tuple(rows), parse_weights(texts, len(rows)), seeds)
    except ConfigError as error:
        raise ConfigError(f"{path}: {label}: {error}") from None

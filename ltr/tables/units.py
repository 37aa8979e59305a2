"""Metrics as text, of 1 or in percent."""

from dataclasses import dataclass

import pandas as pd


@dataclass(frozen=True)
class Units:
    """Metrics as text: with four digits, or times 100 with two; empty where there is no value."""

    percent: bool = False

    def number(self, value: float | None, sign: str = "") -> str:
        """One value."""
        if value is None or pd.isna(value):
            return ""
        return f"{100 * value:{sign}.2f}" if self.percent else f"{value:{sign}.4f}"

    def signed(self, value: float) -> str:
        """A difference."""
        return self.number(value, "+")

    def with_deviation(self, mean: float, deviation: float) -> str:
        """A mean and its standard deviation."""
        return " ± ".join(filter(None, [self.number(mean), self.number(deviation)]))

    def between(self, low: float, high: float) -> str:
        """An interval."""
        ends = [self.number(low), self.number(high)]
        return " to ".join(ends) if all(ends) else ""

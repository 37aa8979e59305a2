"""Search for the settings that are best on vali: its space, its trials, what it found."""

from ltr.errors import need

need("optuna", "search")

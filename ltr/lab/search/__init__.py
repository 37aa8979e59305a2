"""Search for the settings that are best on vali: definition, space, trials and results."""

from ltr.errors import need

need("optuna", "search")

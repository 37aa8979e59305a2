"""Try several kinds of rankers on a data set and keep the best: ``ltr auto`` and ``ltr.auto``."""

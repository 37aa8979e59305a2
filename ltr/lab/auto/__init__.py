"""Try several kinds of rankers on one data set, and keep the best: ``ltr auto``, ``ltr.auto``."""

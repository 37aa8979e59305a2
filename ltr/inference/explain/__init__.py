"""Explain a model: the effects of features and other items on scores, and feature importances."""

"""Explain a model: effects of features and other items on a list, and feature importances."""

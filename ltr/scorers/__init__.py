"""Trained models that score: parts built from configs, loading without running a file's code."""

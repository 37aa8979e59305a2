"""Trained models as scorers: build their parts from configs, load them without running code."""

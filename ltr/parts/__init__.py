"""Trained models as scorers: build their parts from configs, and load checkpoints safely.

Loading a checkpoint runs no code from the file. The modules that its config names must be this
project's, or named by ``trust``.
"""

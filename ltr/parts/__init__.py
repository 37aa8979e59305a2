"""Trained models as scorers: build the parts of a run from its config; load checkpoints safely.

Loading a checkpoint runs no code from the file. The modules that its config names must belong to
this project, or be named by ``trust``.
"""

"""Build the parts of a run, such as its model, from its config; load trained models as scorers.

Loading a checkpoint runs no code from the file. The modules that its config names must belong to
this project, or be named by ``trust``.
"""

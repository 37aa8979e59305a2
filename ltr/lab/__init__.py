"""Work with many runs: comparisons and verdicts, tables, searches, ensembles.

The rest of the package does not import this room.
"""

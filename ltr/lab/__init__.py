"""Work with many runs: comparisons and verdicts, tables, searches, ensembles.

No other subpackage imports this one; ``ltr.auto`` imports it when it is first used.
"""

"""This project timed beside its peers: ``scripts/benchmark.py``.

``losses``, ``reader``, ``training``, ``evaluation``: the cases, and the work of each side in them.
``worker``: a side's own process. ``comparison``: asks the sides in turns. ``sections``: the tables.
"""

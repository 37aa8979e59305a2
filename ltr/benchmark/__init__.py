"""Time this project beside its peers: ``scripts/benchmark.py``.

``losses``, ``reader``, ``training``, ``evaluation``: the cases, and the work of each side in them.
``worker``: the process of a side. ``comparison``: has the sides take turns. ``sections``: tables.
"""

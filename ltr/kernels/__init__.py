"""Compiled loops over the items of a list, for the CPU: NumPy arrays in, NumPy arrays out.

Arguments of all kernels: ``lists``, the rows of the batch to compute, ``[lists]``; ``scores``,
``labels`` and ``mask`` (True where an item exists), ``[batch, list]``; ``wanted``, whether the
slopes are read (a kernel to which they cost next to nothing always writes them). Results:
``value``, ``[batch]``, and ``slope`` by the scores, ``[batch, list]``, both written in place, the
latter at real items.

Numba compiles a kernel at its first call, for a few seconds, and keeps it on the disk for the next
process. So import the module of a kernel where it is called, not at the top. Kernels release
Python's lock: threads run them side by side, see ``ltr.kernels.dispatch``.
"""

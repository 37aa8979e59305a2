"""Compiled loops over the items of a list, for the CPU. They read and write NumPy arrays.

All kernels have these arguments in common:

- ``lists``: the indices in the batch of the lists to compute, ``[lists]``.
- ``scores``, ``labels``, ``mask`` (True where an item exists): ``[batch, list]``.
- ``need_grad``: whether the caller needs the gradient. If the gradient costs almost nothing, a
  kernel always writes it.
- ``value``, ``[batch]``, and ``grad``, ``[batch, list]``: the results, written in place. ``grad``
  is the gradient of ``value`` with respect to the scores, written at real items only.

Numba compiles a kernel at its first call, which takes a few seconds, and saves it on disk for later
processes. Importing the module of a kernel imports Numba, which takes half a second and may fail.
Therefore import the module where the kernel is called, not at the top of a file. Kernels release
Python's global interpreter lock, so threads can run them in parallel (``ltr.kernels.dispatch``).

In this package, ``grad_x`` is the gradient of the value with respect to x, and has the shape of x.
"""

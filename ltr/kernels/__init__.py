"""Compiled loops over the items of a list, for the CPU: NumPy arrays in, NumPy arrays out.

Numba compiles a kernel at its first call, for a few seconds, and keeps it on the disk for the next
process. So whoever needs a kernel imports its module where it is called, not at the top. Kernels
hold no lock of Python: threads run them side by side, see ``ltr.losses.fused``.
"""

"""Data sets: ragged ``Lists``, read from LETOR text or tables or generated, padded into batches.

``letor`` reads LETOR text, ``tables`` reads tables, and ``assemble`` makes lists of what they read.
The data sets are in ``files``, ``table_files``, ``synthetic`` and ``memory``; ``cache`` keeps their
arrays on disk. ``transforms`` fits and applies feature transforms, and ``batches`` pads lists.
``public_sets`` says where to get the public data sets.
"""

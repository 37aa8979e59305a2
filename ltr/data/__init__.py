"""Data sets: ragged ``Lists`` that are read or generated, and the padded batches made of them.

``letor`` reads LETOR text, ``tables`` reads tables, and ``assemble`` groups their rows into lists.
The data sets are in ``files``, ``table_files``, ``synthetic`` and ``memory``; ``cache`` keeps their
arrays on disk. ``transforms`` fits and applies feature transforms, and ``batches`` pads lists.
``public_sets`` says where to download the public data sets.
"""

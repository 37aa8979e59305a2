"""Data sets: ragged ``Lists``, read from LETOR text or tables or made, padded into batches.

``letor`` reads text, ``tables`` tables, ``assemble`` makes lists of either; ``files``,
``table_files`` and ``synthetic`` are the data sets, ``cache`` keeps their arrays, ``transforms``
fits features, ``batches`` pads; ``public_sets`` says where to get them.
"""

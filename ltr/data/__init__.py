"""Data sets: ragged ``Lists``, read from LETOR text or tables or made, padded into batches.

``letor`` reads text, ``rows`` tables (``roles`` says what their columns are, ``cells`` what values
become); ``files``, ``table_files`` and ``synthetic`` are the data sets, ``cache`` keeps their
arrays, ``transforms`` fits features, ``batches`` pads; ``public_sets`` says where to get them.
pyarrow is imported where a table is read alone.
"""

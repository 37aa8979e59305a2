"""Data sets: ragged ``Lists``, read from LETOR text or made, kept on disk, padded into batches.

``letor`` reads text, ``files`` and ``synthetic`` are the data sets, ``cache`` keeps their arrays,
``transforms`` fits features, ``batches`` pads, ``archives`` knows where the public sets are.
"""

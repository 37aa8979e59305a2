"""Tables (Parquet, CSV, TSV, Arrow IPC, or in memory) as lists, by pyarrow.

``roles`` says what the columns are, ``cells`` what their values become, ``rows`` makes lists of
them, ``sources`` reads files block by block, ``cut`` splits a table by query, ``files`` is the data
set. pyarrow is imported here alone, so only where a table is used.
"""

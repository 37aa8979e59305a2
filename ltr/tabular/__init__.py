"""Tables (Parquet, CSV, TSV, Arrow IPC, or in memory) as lists, by pyarrow.

``roles`` says what the columns are, ``cells`` what their values become, ``columns`` finds the
features and ``queries`` the lists, ``rows`` makes lists of it all (``lists_of``). ``sources`` reads
files in ``blocks``, ``cut`` splits a table by query, ``files`` is the data set. pyarrow is imported
here and by ``ltr.estimator`` alone, so only where a table or a ``Ranker`` is used.
"""

"""Which files are tables, by the endings of their names."""

from pathlib import Path

ENDINGS = ".parquet, .csv, .tsv, .csv.gz, .tsv.gz, .feather, .arrow"
_SAME = {".pq": ".parquet", ".feather": ".arrow", ".ipc": ".arrow", ".arrows": ".arrow"}


def ending(path: Path) -> str | None:
    """``.parquet``, ``.csv``, ``.tsv`` or ``.arrow``; None: not a table.

    >>> [ending(Path(name)) for name in ("a.pq", "a.TSV.gz", "a.parquet.gz", "train.txt")]
    ['.parquet', '.tsv', None, None]
    """
    name = path.name.lower()
    packed = name.endswith(".gz")
    last = Path(name.removesuffix(".gz")).suffix
    found = _SAME.get(last, last)
    known = (".csv", ".tsv") if packed else (".csv", ".tsv", ".parquet", ".arrow")
    return found if found in known else None

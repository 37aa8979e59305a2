"""A table of many runs beside the published numbers: ``python scripts/table.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("table")

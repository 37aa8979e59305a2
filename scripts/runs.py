"""The runs in a folder, and how far they are: ``python scripts/runs.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("runs")

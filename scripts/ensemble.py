"""One ranker of several finished runs: ``python scripts/ensemble.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("ensemble")

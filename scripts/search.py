"""Search for good settings of a ranker on vali: ``python scripts/search.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("search")

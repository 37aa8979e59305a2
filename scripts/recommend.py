"""A good ranker for your lists in one command: ``python scripts/recommend.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("recommend")

"""Teach the network of loss=sodeep to sort: ``python scripts/train_sorter.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("train_sorter")

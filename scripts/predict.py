"""Scores of a kept model for new lists: ``python scripts/predict.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("predict")

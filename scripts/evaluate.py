"""Metrics of a kept model, or of any tool's scores: ``python scripts/evaluate.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("evaluate")

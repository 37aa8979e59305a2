"""Draw the figures and tables of the papers: ``python scripts/figures.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("figures")

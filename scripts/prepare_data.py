"""Make a data set ready: ``python scripts/prepare_data.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("prepare_data")

"""Which runs are better, and how sure that is: ``python scripts/compare.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("compare")

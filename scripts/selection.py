"""Which value on vali says what test does: ``python scripts/selection.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("selection")

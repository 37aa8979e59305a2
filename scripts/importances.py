"""Features that trees use most: ``python scripts/importances.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("importances")

"""Why a model ranks a list so: ``python scripts/explain.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("explain")

"""Time this project beside its peers: ``python scripts/benchmark.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("benchmark")

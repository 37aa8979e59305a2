"""Which properties hold for a metric, yours too: ``python scripts/check_metric.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("check_metric")

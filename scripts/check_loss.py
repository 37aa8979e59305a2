"""Which properties hold for a loss, yours too: ``python scripts/check_loss.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("check_loss")

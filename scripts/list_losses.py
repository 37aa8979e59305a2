"""Every loss with its paper and its knobs: ``python scripts/list_losses.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("list_losses")

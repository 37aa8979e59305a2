"""Which properties hold for a model, yours too: ``python scripts/check_model.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("check_model")

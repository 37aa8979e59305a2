"""A kept model for ONNX Runtime or a search engine: ``python scripts/export.py --help``."""

from ltr.__main__ import main

if __name__ == "__main__":
    main("export")

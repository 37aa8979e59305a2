"""The content of a small checkpoint."""

from typing import Any

import torch


def make_content(**entries: Any) -> dict[str, Any]:
    """Return the content of a small checkpoint, with ``entries`` of it replaced."""
    return {
        "model": {"weight": torch.zeros(50)}, "config": {"seed": 1}, "choices": {}, "width": 2,
        "progress": {"epoch": 0, "step": 0},
    } | entries  # fmt: skip

"""SHA-256 digests of the two files that a run may read in addition to its lists.

These are the checkpoint of its teacher, and the learned sorter of its loss.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ltr.parts.trust import iter_nested
from ltr.relaxations.learned_sorter import SHIPPED
from ltr.training.checkpoint import selected_checkpoint


def digest_origins(config: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the SHA-256 of the files that a run reads in addition to its lists.

    ``config`` is resolved. The entry ``teacher`` is the digest of the teacher's selected
    checkpoint, or None if there is no teacher. The entry ``loss.sorter`` is the digest of the
    learned sorter, by default the one in this package, or None if there is no such file.
    """
    nodes = (node for node in iter_nested(config) if isinstance(node, Mapping))
    sorters = [node["sorter"] for node in nodes if node.get("sorter")]
    sorter = Path(sorters[0] if sorters else SHIPPED)
    return {
        "loss.sorter": _sha256(sorter) if sorter.is_file() else None,
        "teacher": run_digest(config.get("teacher")),
    }


def run_digest(path: str | None) -> str | None:
    """Return the SHA-256 of the selected checkpoint of the run ``path``, or None without a path."""
    return None if path is None else _sha256(selected_checkpoint(Path(path))[0])


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()

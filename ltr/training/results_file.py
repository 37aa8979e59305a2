"""The file ``results.json`` of a finished run, which has a digest of its own content.

This module is cheap to import.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

RESULTS = "results.json"
BEFORE = "before-"  # prefix of the subfolders of a run folder with results of other code or data
CHECKPOINTS = "checkpoints_sha256"  # the entry with the digest of each checkpoint of the run
_DIGEST = "sha256"  # the entry with the digest of all other entries


def sealed_results(results: Mapping[str, Any]) -> str:
    """Return the text of the file for ``results``, which must contain only plain JSON values."""
    return json.dumps({**results, _DIGEST: _digest_of(results)}, indent=2) + "\n"


def read_results(text: bytes) -> dict[str, Any]:
    """Return the results in ``text``, the text of the file.

    Raises ``ValueError`` if they are damaged.
    """
    try:
        results: dict[str, Any] = json.loads(text)
        sound = results.pop(_DIGEST) == _digest_of(results)
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError) as error:
        raise ValueError("expected the results of a run, got different content") from error
    if not sound:
        raise ValueError("the digest in the file does not match the results")
    return results


def sha256(content: bytes) -> str:
    """Return the SHA-256 of ``content`` in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _digest_of(results: Mapping[str, Any]) -> str:
    plain = json.dumps(results, sort_keys=True, separators=(",", ":"))
    return sha256(plain.encode())

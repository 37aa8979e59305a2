"""The file ``results.json`` of a finished run, which holds a digest of its own content. Importing
this module is cheap.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

RESULTS = "results.json"
BEFORE = "before-"  # begins the name of a folder in a run folder with results of other code or data
CHECKPOINTS = "checkpoints_sha256"  # its entry with the digest of each checkpoint of the run
_DIGEST = "sha256"  # its entry with the digest of all others


def sealed_results(results: Mapping[str, Any]) -> str:
    """Return ``results``, plain values of JSON, as the text of the file."""
    return json.dumps({**results, _DIGEST: _digest_of(results)}, indent=2) + "\n"


def read_results(text: bytes) -> dict[str, Any]:
    """Return the results in the text of the file; ``ValueError`` if they are damaged."""
    try:
        results: dict[str, Any] = json.loads(text)
        sound = results.pop(_DIGEST) == _digest_of(results)
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError) as error:
        raise ValueError("not the results of a run") from error
    if not sound:
        raise ValueError("the digest is not that of the results")
    return results


def sha256(content: bytes) -> str:
    """Return the SHA-256 of ``content``, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _digest_of(results: Mapping[str, Any]) -> str:
    plain = json.dumps(results, sort_keys=True, separators=(",", ":"))
    return sha256(plain.encode())

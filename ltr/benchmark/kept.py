"""What a benchmark has measured: a file for each piece, so that a stopped command goes on."""

import functools
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from ltr.experiment.identity import code_digest, code_hash
from ltr.whole import write_whole


class Kept:
    """JSON files of one folder, named by what they hold and a digest of what that depends on."""

    def __init__(self, folder: Path, common: Any = None) -> None:
        """``common``: what every piece depends on, JSON."""
        self.folder, self.common = folder, common
        self._used: set[Path] = set()
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, depends_on: Any) -> Any:
        """The content of a piece; None where there is none of these dependencies."""
        path = self._path(name, depends_on)
        if not path.is_file():
            return None
        self._used.add(path)
        return json.loads(path.read_text())

    def put(self, name: str, depends_on: Any, content: Any) -> None:
        """Keep a piece."""
        path = self._path(name, depends_on)
        write_whole(path, json.dumps(content))
        self._used.add(path)

    def forget(self) -> None:
        """Remove the pieces that this command kept or took up: the next measures anew."""
        while self._used:
            self._used.pop().unlink(missing_ok=True)

    def _path(self, name: str, depends_on: Any) -> Path:
        whole = json.dumps([self.common, depends_on], sort_keys=True)
        digest = hashlib.sha256(whole.encode()).hexdigest()[:12]
        return self.folder / f"{re.sub(r'[^A-Za-z0-9@.]+', '-', name).strip('-')}-{digest}.json"


@functools.cache
def code_of_benchmark() -> str:
    """A hash of the code that is measured and of the code that measures it."""
    own = code_hash(file.read_text() for file in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(f"{code_digest()} {own}".encode()).hexdigest()

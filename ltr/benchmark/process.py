"""The parent's end of the pipe to the process of a side."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Side:
    """A process that works for one side; started again where it died.

    Each side has its own process, so that the memory of one is not that of another; only one of
    them works at a time, so that they do not take the cores from each other.
    """

    def __init__(self, subject: str, name: str, options: Mapping[str, Any]) -> None:
        """Start nothing yet.

        Args:
            subject: the module whose ``make`` makes the work, such as ``losses``.
            name: of the side.
            options: what ``worker.Worker`` takes, and time_limit, in seconds a request.
        """
        self.subject, self.name, self.options = subject, name, options
        self._process: subprocess.Popen[str] | None = None
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in close)

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """The reply; ``{"failed": why}`` where the process took too long or died."""
        process = self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._died()
        limit = float(self.options["time_limit"])
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            if not ready.select(timeout=limit):
                self.end(kill=True)
                return {"failed": f"takes over {limit:,.0f} s"}
        line = process.stdout.readline()
        return json.loads(line) if line else self._died()

    def close(self) -> None:
        """End the process; nothing can be asked any more."""
        self.end()
        self._log.close()

    def end(self, *, kill: bool = False) -> None:
        """Close the pipes and wait; ``kill``: do not let it finish what it does."""
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
        process.stdout.close()

    def start(self) -> subprocess.Popen[str]:
        """The process, started if it does not run; it waits for what it is asked."""
        if self._process is not None:
            return self._process
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(ROOT), environment.get("PYTHONPATH")])
        )
        if self.options["device"] == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""  # allRank takes a GPU wherever it sees one
        if self.options["threads"] is not None:
            for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
                environment[name] = str(self.options["threads"])
        options = json.dumps(dict(self.options))
        module = "ltr.benchmark.worker"
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, self.subject, self.name, options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
        )
        return self._process

    def _died(self) -> dict[str, Any]:
        status = self._process.wait() if self._process else 0
        self.end()
        self._log.seek(0)
        said = [line for line in self._log.read().splitlines() if line.strip()][-1:]
        if status in (-9, 137) or "bad_alloc" in "".join(said):
            return {"failed": "does not fit into memory"}
        return {"failed": f"its process ended with status {status}: {' '.join(said)[:160]}"}

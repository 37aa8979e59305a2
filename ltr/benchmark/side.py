"""The process of one side: it is asked for work, and started again after it died."""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DIED = "its process ended with status"
_ROOT = Path(__file__).resolve().parents[2]


class Side:
    """The process of one side; it is started again after it died.

    Each side has a process of its own, so that their memory is apart; only one of them works at a
    time, so that they do not compete for the cores.
    """

    def __init__(self, subject: str, name: str, options: Mapping[str, Any]) -> None:
        """Arguments as of ``Worker``; ``options`` also has time_limit, seconds."""
        self.subject, self.name, self.options = subject, name, options
        self._process: subprocess.Popen[str] | None = None
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed in close)

    def ask(self, do: str, *, spent: float = 0, **request: Any) -> dict[str, Any]:
        """The reply; ``{"failed": why}`` where the process takes too long or dies.

        ``spent``: seconds of the time limit that earlier requests took.
        """
        process = self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._died()
        limit = float(self.options["time_limit"])
        if not select.select([process.stdout], [], [], max(0.0, limit - spent))[0]:
            process.kill()
            self._end()
            return {"failed": f"takes over {limit:,.0f} s"}
        line = process.stdout.readline()
        return json.loads(line) if line else self._died()

    def close(self) -> None:
        """End the process for good."""
        self._end()
        self._log.close()

    def start(self) -> subprocess.Popen[str]:
        """The process, which waits for requests; start it if it does not run."""
        if self._process is not None:
            return self._process
        places = filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])
        more = {"PYTHONPATH": os.pathsep.join(places)}
        if self.options["device"] == "cpu":
            more["CUDA_VISIBLE_DEVICES"] = ""  # allRank takes any GPU it sees
        if self.options["threads"] is not None:
            names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
            more |= dict.fromkeys(names, str(self.options["threads"]))
        code = "from ltr.benchmark.worker import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, self.subject, self.name, json.dumps(dict(self.options))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env=os.environ | more,
        )  # fmt: skip
        return self._process

    def _end(self) -> int:
        """Close the pipes and wait; return the status of the process."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with contextlib.suppress(BrokenPipeError), process:
            pass  # leaving closes the pipes and waits
        return int(process.returncode)

    def _died(self) -> dict[str, Any]:
        status = self._end()
        self._log.seek(0)
        said = [line for line in self._log.read().splitlines() if line.strip()][-1:]
        if status in (-9, 137) or "bad_alloc" in "".join(said):
            return {"failed": "does not fit into memory"}
        return {"failed": f"{DIED} {status}: {' '.join(said)[:160]}"}

"""The process of one side: prepares, checks and times what its parent asks for, line by line.

One JSON object a line on stdin and stdout; whatever else prints goes to stderr.
"""

import importlib
import json
import os
import resource
import sys
import traceback
import warnings
from collections.abc import Mapping
from typing import Any, TextIO

from ltr.benchmark.measuring import peak_of, seconds_of
from ltr.benchmark.work import Work


class Worker:
    """Obeys one request after the other; holds the work of one case at a time."""

    def __init__(self, subject: str, side: str, options: Mapping[str, Any]) -> None:
        """Limit itself to ``options``: device, threads, memory_limit in bytes, cache_dir.

        ``subject``: a module with ``make``, such as ``losses``.
        """
        # Of the subjects this one alone is imported: reading needs no torch.
        self.make = importlib.import_module(subject).make
        self.side, self.options = side, options
        self.device = str(options["device"])
        self.work: Work | None = None
        if "torch" in sys.modules and options["threads"] is not None:
            sys.modules["torch"].set_num_threads(int(options["threads"]))
        if self.device == "cpu" and options["memory_limit"] is not None:
            limit = int(options["memory_limit"])
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    def obey(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to a request ``{"do": ..., ...}``."""
        if request["do"] == "prepare":
            self.finish()  # free the last case's memory first
            work: Work = self.make(
                self.side, request["settings"], self.device, str(self.options["cache_dir"])
            )
            self.work = work
            return {
                "amount": work.amount,
                "unit": work.unit,
                "note": work.note,
                "bytes_needed": work.bytes_needed,
                "flops": work.flops,
                "threads": self._threads(),
            }
        assert self.work is not None
        if request["do"] == "answer":
            return {"answer": dict(self.work.answer())}
        if request["do"] == "peak":
            seconds, peak = peak_of(self.work.call, self.device)
            return {"seconds": seconds, "bytes": peak}
        if request["do"] == "time":
            return {"seconds": seconds_of(self.work.call, self.device, request["times"])}
        from ltr.benchmark.profiling import profiled

        return {"table": profiled(self.work.call, self.device)}

    def finish(self) -> None:
        """Let go of the case."""
        if self.work is not None:
            self.work.close()
        self.work = None

    def _threads(self) -> int:
        if "torch" in sys.modules:
            return int(sys.modules["torch"].get_num_threads())
        return int(self.options["threads"] or os.cpu_count() or 1)


def reply_to(worker: Worker, request: Mapping[str, Any]) -> dict[str, Any]:
    """The reply, or why there is none: ``{"failed": ...}``."""
    try:
        return worker.obey(request)
    except Exception as error:
        traceback.print_exc()
        text = " ".join(str(error).split())
        if isinstance(error, MemoryError) or any(mark in text for mark in _NO_MEMORY):
            return {"failed": "does not fit into memory"}
        return {"failed": f"{type(error).__name__}: {text[:160]}"}


_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")


def main(subject: str, side: str, options: Mapping[str, Any], out: TextIO) -> None:
    """Serve until stdin ends."""
    warnings.simplefilter("ignore")  # of the peers, about the versions they run with
    worker = Worker(subject, side, options)
    for line in sys.stdin:
        out.write(json.dumps(reply_to(worker, json.loads(line))) + "\n")
        out.flush()
    worker.finish()


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), replies)

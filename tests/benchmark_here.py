"""Run the benchmark in small sizes and in this process; no test by itself."""

import json
from pathlib import Path

from conftest import compose

from ltr.benchmark.benchmark import benchmark
from ltr.benchmark.comparison import Row
from ltr.benchmark.worker import Worker


class InThisProcess:
    """Stands in for ``Side``: saves the start of a process, seconds with torch."""

    def __init__(self, subject: str, name: str, options: dict) -> None:
        self.worker = Worker(subject, name, options | {"memory_limit": None})

    def start(self) -> None:
        pass

    def ask(self, do: str, **request) -> dict:
        return json.loads(json.dumps(self.worker.reply({"do": do, **request})))

    def close(self) -> None:
        self.worker.finish()


def quick(tmp_path: Path, *overrides: str) -> dict[str, list[Row]]:
    places = [f"cache_dir={tmp_path}/cache", f"output_dir={tmp_path}/outputs"]
    cfg = compose("quick=true", "threads=1", *places, *overrides, config="benchmark")
    return benchmark(cfg)

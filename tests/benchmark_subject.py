"""A subject of the benchmark whose sides go wrong in every way; no test by itself."""

import os
import time
from collections.abc import Mapping
from typing import Any

from ltr.benchmark.worker import Work


def make(side: str, settings: Mapping[str, Any], device: str, cache_dir: str) -> Work:
    """What ``side`` says: take long, take memory, die, raise or give another answer."""

    def call() -> object:
        if side == "slow":
            time.sleep(60)
        if side == "hungry":
            return bytearray(64 << 30)
        if side == "dies":
            os.write(2, b"so long\n")
            os._exit(3)
        if side == "raises":
            raise RuntimeError("no\nway")
        print("this must not disturb the pipe")
        return [0] * int(settings["size"])

    value = {"wrong": 2.0, "nan": float("nan")}.get(side, 1.0)
    return Work(call, lambda: {"value": value}, 10, "lists", note="a note")

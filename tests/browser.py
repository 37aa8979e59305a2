"""A page in Chromium, driven through a pipe: no driver and no port."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import F_DUPFD, fcntl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DESKTOP, PHONE = 1250, 380  # widths in CSS pixels


class Browser:
    """A page in Chromium; ``said`` collects what it writes to the console, errors and refusals."""

    def __init__(self, reads: int, writes: int) -> None:
        self._out, self._in = os.fdopen(reads, "rb"), os.fdopen(writes, "wb")
        self._count, self._buffer, self.said = 0, b"", list[str]()
        self._session: dict[str, str] = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.requests: list[str] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and wait for its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": params, **self._session}
        self._in.write(json.dumps(message).encode() + b"\0")
        self._in.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        """The next message; what the page says and asks for is kept."""
        while b"\0" not in self._buffer:
            part = self._out.read1(1 << 16)
            assert part, "Chromium has ended"
            self._buffer += part
        first, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(first)
        match message.get("method"):
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.said.append(json.dumps(message["params"]))
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
        return message

    def open(self, page: Path, *, width: int, height: int = 800) -> None:
        """Show ``page`` in a window of that many CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width == PHONE,
        )
        self.call("Page.navigate", url=page.resolve().as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium without a window; needs ``CHROMIUM``."""
    assert CHROMIUM is not None
    (reads_commands, writes), (reads, writes_answers) = os.pipe(), os.pipe()
    ours = [fcntl(fd, F_DUPFD, 10) for fd in (reads_commands, writes_answers)]  # not 3 and 4
    with TemporaryDirectory() as profile:
        options = ["--headless", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        options += ["--remote-debugging-pipe", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        pipes = f'exec "$@" 3<&{ours[0]} 4>&{ours[1]}'
        process = subprocess.Popen(
            ["bash", "-c", pipes, "bash", CHROMIUM, *options],
            pass_fds=ours,
            stderr=subprocess.DEVNULL,
        )
        for fd in (reads_commands, writes_answers, *ours):
            os.close(fd)
        shown = Browser(reads, writes)
        try:
            yield shown
        finally:
            shown.call("Browser.close")
            process.wait()
            shown._out.close()
            shown._in.close()

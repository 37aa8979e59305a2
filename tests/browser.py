"""A page in Chromium, driven through a pipe: no driver and no port.

``python tests/browser.py outputs/tables/NAME/table.html docs/figures`` draws the page's pictures:
its head and its plots at the width of a desktop, and its head at that of a phone. The ``page.html``
of ``scripts/explain.py`` gives one picture.
"""

import json
import os
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import F_DUPFD, fcntl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

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

    def picture(self, path: Path, top: float, height: float) -> None:
        """Write the part of the page from ``top``, ``height`` pixels high, as PNG."""
        width = self.run("innerWidth")
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        drawn = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(b64decode(drawn["data"]))


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


def draw(page: Path, folder: Path) -> None:
    """Write ``table_page.png``, ``table_page_plots.png`` and ``table_page_phone.png``."""
    with browser() as shown:
        shown.open(page, width=DESKTOP)
        top = "document.querySelector('{}').getBoundingClientRect().top + scrollY"
        plots, pairs = shown.run(top.format(".plot")), shown.run(top.format("#detail-1"))
        shown.picture(folder / "table_page.png", 0, 1400)
        shown.picture(folder / "table_page_plots.png", plots - 10, pairs - plots)
        shown.open(page, width=PHONE)
        shown.run("document.querySelectorAll('th button')[1].click()")  # best first
        shown.picture(folder / "table_page_phone.png", 0, 2300)


def draw_explained(page: Path, folder: Path) -> None:
    """Write ``explain_page.png``: the head of the page of a list and what the other items did."""
    with browser() as shown:
        shown.open(page, width=DESKTOP)
        plot = "document.querySelector('#plot-2').getBoundingClientRect().bottom + scrollY"
        drawn = folder / "explain_page.png"
        shown.picture(drawn, 0, shown.run(plot) + 20)
    Image.open(drawn).quantize(64).save(drawn, optimize=True)


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    (draw_explained if given[0].name == "page.html" else draw)(*given)

"""A browser that tests drive: Chromium's own protocol over a pipe, without a driver or a port."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

PATIENCE = 600.0
"""Seconds until what a test waits for must be there: a busy machine is no failure."""


class Page:
    """One page of a browser."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._buffer, self._number = write, read, b"", 0
        self._session: str | None = None
        (target,) = [
            each["targetId"] for each in self._call("Target.getTargets")["targetInfos"] if each["type"] == "page"
        ]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def open(self, address: str) -> None:
        """Go to an address."""
        self._call("Page.navigate", url=address)

    def run(self, script: str) -> Any:
        """What an expression comes to in the page; it may be a promise."""
        said = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def until(self, script: str) -> Any:
        """What an expression comes to once that is true."""
        end = time.monotonic() + PATIENCE
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"never: {script}\n{self.run('document.body.innerText')}"
            time.sleep(0.2)
        return value

    def click(self, script: str) -> None:
        """Press the mouse in the middle of the element that an expression gives, once it is there."""
        self.until(f"!!({script})")
        middle = f"(() => {{ const e = {script}; e.scrollIntoView({{block: 'center'}}); "
        middle += "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        x, y = self.run(middle)
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self) -> bytes:
        """The page as a PNG."""
        import base64

        return base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])

    def resize(self, width: int, height: int) -> None:
        """Show the page in a window of so many pixels."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, kind: str) -> None:
        """Lay the page out for a medium, such as ``print``; an empty text: for the screen."""
        self._call("Emulation.setEmulatedMedia", media=kind)

    def pdf(self) -> bytes:
        """The page printed on A4."""
        import base64

        said = self._call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=True)
        return base64.b64decode(said["data"])

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                more = os.read(self._read, 1 << 20)
                assert more, "the browser has ended"
                self._buffer += more
            line, self._buffer = self._buffer.split(b"\0", 1)
            said = json.loads(line)
            if said.get("id") == self._number:
                assert "error" not in said, (method, said["error"])
                result: dict[str, Any] = said["result"]
                return result


@contextlib.contextmanager
def browser(folder: Path, width: int = 1600, height: int = 1200) -> Iterator[Page]:
    """A browser with a profile in ``folder``, which ends with the context."""
    assert CHROMIUM is not None
    (first, write), (read, last) = os.pipe(), os.pipe()
    # Not the numbers that the browser has them under.
    to_read, to_write = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (first, last))
    os.close(first)
    os.close(last)
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
    # The browser reads its third file and writes into its fourth.
    wired = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write} {to_read}<&- {to_write}>&-'
    process = subprocess.Popen(
        [
            "bash",
            "-c",
            wired,
            CHROMIUM,
            *flags,
            f"--user-data-dir={folder / 'browser'}",
            f"--window-size={width},{height}",
        ],
        pass_fds=(to_read, to_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(to_read)
    os.close(to_write)
    try:
        yield Page(write, read)
    finally:
        process.terminate()
        process.wait(PATIENCE)
        os.close(write)
        os.close(read)

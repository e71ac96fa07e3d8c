"""Joins a standing Ray on a background thread."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future
from typing import Any


class Joining:
    """Enters the context ``connection`` at once, on a background thread, and stays in it until :meth:`end`."""

    def __init__(self, connection: contextlib.AbstractContextManager[Any]) -> None:
        self._connection = connection
        self._up: Future[None] = Future()
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._stay, name="joining Ray", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether :meth:`wait` returns, or raises, at once."""
        return self._up.done()

    def wait(self) -> None:
        """Return when this process is connected. Raises what connecting raises."""
        self._up.result()

    def end(self) -> None:
        """Leave the connection, if there is one."""
        self._leave.set()
        self._thread.join()

    def _stay(self) -> None:
        try:
            with self._connection:
                self._up.set_result(None)
                self._leave.wait()
        except BaseException as error:  # raised again by wait
            if not self._up.done():
                self._up.set_exception(error)

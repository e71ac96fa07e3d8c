"""Settings of the process; in a program that imports raysim, raysim changes the settings only temporarily.

Examples are environment variables, signal handlers, log levels and the number of threads. In such a program, raysim
changes them only through this module.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_LIBRARIES = ("OMP", "OPENBLAS", "MKL")
_own = False
_terminating = False


def take() -> None:
    """Declare that raysim's command line started this process, so that raysim may end the process as a last resort."""
    global _own
    _own = True


class Terminated(SystemExit):
    """SIGTERM has arrived; the command ends with exit code 143."""


def end_in_order() -> None:
    """Make SIGTERM raise :class:`Terminated`, so that the process ends as after Ctrl-C.

    Further SIGTERMs are ignored. Python discards an exception that is raised in a destructor or callback. Therefore
    :class:`Terminated` is raised again a little later, or by the next :func:`end_if_terminating`.
    """
    global _terminating
    _terminating = False
    signal.signal(signal.SIGTERM, _terminate)
    before = sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs, /) -> None:
        if not isinstance(lost.exc_value, Terminated):
            before(lost)
            return
        # A timer raises it later, because an exception in this hook would be lost too.
        signal.signal(signal.SIGALRM, _terminate_again)
        signal.setitimer(signal.ITIMER_REAL, 0.2)

    sys.unraisablehook = hook


def handle_again(number: int) -> None:
    """Restore Python's handler of the signal ``number`` after a library's C code has replaced it.

    Does nothing outside the main thread.
    """
    handler = signal.getsignal(number)
    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(number, handler)


def is_terminating() -> bool:
    """Return whether SIGTERM has arrived."""
    return _terminating


def end_if_terminating() -> None:
    """Raise :class:`Terminated` again if SIGTERM has arrived. Call it wherever a command continues after it has caught
    errors."""
    if _terminating:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Terminated(143)


def _terminate_again(number: int, frame: object) -> None:
    raise Terminated(143)


def _terminate(number: int, frame: object) -> None:
    global _terminating
    if not _terminating:
        _terminating = True
        raise Terminated(143)


def is_own() -> bool:
    """Return whether this process was started by raysim's command line."""
    return _own


@contextlib.contextmanager
def environment(values: Mapping[str, str | None], *, keep: bool = False) -> Iterator[None]:
    """Set environment variables inside the context; a value of None removes the variable.

    With ``keep``, variables that are already set do not change.
    """
    values = {name: value for name, value in values.items() if not keep or name not in os.environ}
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def environment_restored(*names: str) -> contextlib.AbstractContextManager[None]:
    """Restore the environment variables ``names`` at the end of the context, if code inside it has changed them."""
    return environment({name: os.environ.get(name) for name in names})


@contextlib.contextmanager
def signals(*numbers: signal.Signals) -> Iterator[None]:
    """Restore the handlers of the signals ``numbers`` at the end of the context.

    Does nothing outside the main thread.
    """
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler is not None:  # a handler of C code cannot be restored from Python
                    signal.signal(number, handler)


@contextlib.contextmanager
def quiet(*names: str, level: int = logging.ERROR) -> Iterator[None]:
    """Silence messages below ``level`` of the named loggers inside the context."""
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.level, list(logger.handlers)) for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, (level_before, handlers) in zip(loggers, before, strict=True):
            logger.setLevel(level_before)
            logger.handlers[:] = handlers


class _Muted:
    def __init__(self, stream: Any, thread: str) -> None:
        self._stream, self._thread = stream, thread

    def write(self, text: str) -> int:
        if threading.current_thread().name == self._thread:
            return len(text)
        written: int = self._stream.write(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def muted(thread: str) -> Iterator[None]:
    """Inside the context, drop the standard output of the thread with the name ``thread``."""
    before = sys.stdout
    sys.stdout = muted = _Muted(before, thread)
    try:
        yield
    finally:
        if sys.stdout is muted:
            sys.stdout = before


@contextlib.contextmanager
def searched(folder: str) -> Iterator[None]:
    """At the end of the context, remove ``folder`` from ``sys.path`` unless it was there before."""
    before = folder in sys.path
    try:
        yield
    finally:
        if not before and folder in sys.path:
            sys.path.remove(folder)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Limit the threads of numerical libraries to ``count`` inside the context, also in libraries loaded inside it."""
    usual = _usual_threads()
    libraries = _libraries(len(sys.modules))
    loaded = {library.filepath for library in libraries.lib_controllers}
    had_torch = "torch" in sys.modules
    variables = {f"{library}_NUM_THREADS": str(count) for library in _LIBRARIES}
    try:
        with environment(variables), libraries.limit(limits=count):
            yield
    finally:
        for library in _libraries(len(sys.modules)).lib_controllers:
            if library.filepath not in loaded:
                library.set_num_threads(usual)
        if not had_torch and "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(usual)


def one_thread() -> contextlib.AbstractContextManager[Any]:
    """Limit numerical libraries to one thread inside the context, so that sums do not depend on the number of cores."""
    limited: contextlib.AbstractContextManager[Any] = _libraries(len(sys.modules)).limit(limits=1)
    return limited


@lru_cache(maxsize=1)
def _libraries(modules: int) -> ThreadpoolController:
    """Return the loaded libraries that have threads. ``modules`` is the number of imported modules: the cached result
    is valid until it changes.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def limit_threads(count: int) -> None:
    """Limit the threads of numerical libraries to ``count`` for the rest of this process."""
    for library in _LIBRARIES:
        os.environ[f"{library}_NUM_THREADS"] = str(count)  # for those that are loaded later
    _libraries(len(sys.modules)).limit(limits=count)  # for those that are loaded already


def _usual_threads() -> int:
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdecimal() and int(setting):
        return int(setting)
    # Not every system reports the cores that this process may use.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

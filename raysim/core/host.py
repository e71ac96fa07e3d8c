"""Settings of the process that raysim changes for a while, and then restores.

Raysim is imported by notebooks and servers, which own their environment variables, signal handlers, levels of loggers,
limits of threads and search paths. All of them are changed through this module alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

_LIBRARIES = ("OMP", "OPENBLAS", "MKL")
_own = False
_terminating = False


def take() -> None:
    """Declare this process to be the command line's own, which may end it where nothing else helps."""
    global _own
    _own = True


class Terminated(SystemExit):
    """SIGTERM has arrived: the command ends in order, with exit code 143."""


def end_in_order() -> None:
    """From now on SIGTERM, with which batch systems and containers announce the end, ends this process as Ctrl-C does.

    Further ones are ignored. Python loses an exception that is raised in a destructor or callback: :class:`Terminated`
    is then raised again a little later, or by the next :func:`end_if_terminating` if that comes first.
    """
    global _terminating
    _terminating = False
    signal.signal(signal.SIGTERM, _terminate)
    before = sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs, /) -> None:
        if not isinstance(lost.exc_value, Terminated):
            before(lost)
            return
        # Not at once: it would be lost in this hook.
        signal.signal(signal.SIGALRM, _terminate_again)
        signal.setitimer(signal.ITIMER_REAL, 0.2)

    sys.unraisablehook = hook


def handle_again(number: int) -> None:
    """Give a signal back to its Python handler where a library's C code has taken it, which writes a trace to stderr.

    Does nothing outside the main thread, which alone can set handlers.
    """
    handler = signal.getsignal(number)
    if threading.current_thread() is threading.main_thread() and handler is not None:
        signal.signal(number, handler)


def is_terminating() -> bool:
    """Whether SIGTERM has arrived, whatever has become of its exception."""
    return _terminating


def end_if_terminating() -> None:
    """Raise :class:`Terminated` again where someone has caught it: called wherever a command goes on."""
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
    """Whether this process is the command line's own."""
    return _own


@contextlib.contextmanager
def environment(values: Mapping[str, str | None], *, keep: bool = False) -> Iterator[None]:
    """Set environment variables for a while; None unsets one. ``keep``: leave those that are set already."""
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


def variables_kept(*names: str) -> contextlib.AbstractContextManager[None]:
    """Restore these environment variables afterwards, whatever a library has set them to."""
    return environment({name: os.environ.get(name) for name in names})


@contextlib.contextmanager
def signals(*numbers: signal.Signals) -> Iterator[None]:
    """The handlers of these signals are the same afterwards; only the main thread can have changed them."""
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                if handler is not None:  # one that no Python code has set cannot be set by Python code
                    signal.signal(number, handler)


@contextlib.contextmanager
def quiet(*names: str, level: int = logging.ERROR) -> Iterator[None]:
    """Loggers that say nothing below ``level`` for a while; their handlers are the same afterwards."""
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
    """A stream that leaves out what the thread called ``thread`` writes."""

    def __init__(self, stream: Any, thread: str) -> None:
        self._stream, self._thread = stream, thread

    def write(self, text: str) -> int:
        """Write, unless it is that thread that writes."""
        if threading.current_thread().name == self._thread:
            return len(text)
        written: int = self._stream.write(text)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def muted(thread: str) -> Iterator[None]:
    """What the thread called ``thread``, a library's own, prints on standard output is left out for a while."""
    before = sys.stdout
    sys.stdout = muted = _Muted(before, thread)
    try:
        yield
    finally:
        if sys.stdout is muted:
            sys.stdout = before


@contextlib.contextmanager
def searched(folder: str) -> Iterator[None]:
    """``folder`` may be put on ``sys.path`` meanwhile; it is removed afterwards, unless it was there before."""
    before = folder in sys.path
    try:
        yield
    finally:
        if not before and folder in sys.path:
            sys.path.remove(folder)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """At most ``count`` compute threads for a while, in libraries that are loaded meanwhile too.

    Afterwards, a library that was loaded meanwhile has as many as it would have had without the limit.
    """
    from threadpoolctl import ThreadpoolController

    usual = _usual_threads()
    libraries = ThreadpoolController()
    loaded = {library.filepath for library in libraries.lib_controllers}
    had_torch = "torch" in sys.modules
    variables = {f"{library}_NUM_THREADS": str(count) for library in _LIBRARIES}
    try:
        with environment(variables), libraries.limit(limits=count):
            yield
    finally:
        for library in ThreadpoolController().lib_controllers:
            if library.filepath not in loaded:
                library.set_num_threads(usual)
        if not had_torch and "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(usual)


def limit_threads(count: int) -> None:
    """At most ``count`` compute threads for this process from now on, which is raysim's own."""
    for library in _LIBRARIES:
        os.environ[f"{library}_NUM_THREADS"] = str(count)  # for those that are loaded later
    from threadpoolctl import threadpool_limits

    threadpool_limits(count)  # for those that are loaded already


def _usual_threads() -> int:
    """How many threads a library takes that is loaded in this environment."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdecimal() and int(setting):
        return int(setting)
    # Not every system says which of its cores this process may use.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

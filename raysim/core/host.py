"""Good manners in a process that is somebody else's: what raysim sets there is put back when it has done.

Raysim is imported by notebooks and servers. Environment variables, signal handlers, levels of loggers, limits of
threads and search paths are the host's; all of them are changed through what stands here, for a while.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping

_LIBRARIES = ("OMP", "OPENBLAS", "MKL")
_own = False
_terminating = False


def take() -> None:
    """Say that this process is the command line's own: it may end it where nothing else helps."""
    global _own
    _own = True


class Terminated(SystemExit):
    """SIGTERM has arrived: the command ends in order, with exit code 143."""


def end_in_order() -> None:
    """From now on SIGTERM, with which batch systems and containers announce the end, ends this process as Ctrl-C does.

    Further ones are passed over. One that comes in a destructor or callback, which lose exceptions, is given again: a
    little later, or before that where the command goes on (:func:`end_if_terminating`).
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
    """Let Python handle a signal again as it is told to, where a library's C code, which writes its trace to stderr
    first, has taken the place. On another thread than the main one nothing can be done.
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
    """Environment variables for a while, None: unset; with ``keep``, those that are set already stay as they are."""
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
    """Environment variables that another library changes are as they were afterwards."""
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


@contextlib.contextmanager
def searched(folder: str) -> Iterator[None]:
    """Modules may be looked for in ``folder`` meanwhile; afterwards they are not, unless they were before."""
    before = folder in sys.path
    try:
        yield
    finally:
        if not before and folder in sys.path:
            sys.path.remove(folder)


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """At most ``count`` compute threads for a while, in libraries that are loaded meanwhile too.

    These have afterwards as many as they would have had.
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

"""The connection to Ray: to a Ray that is started here, or to the cluster that ``RAY_ADDRESS`` names."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

from raysim.cluster import devices, ray_private
from raysim.cluster.greeting import SLOW, answering, named, remedy, short
from raysim.cluster.own_ray import LOCAL, OPEN, QUIET, one_at_a_time, own_folder, private_token
from raysim.config.nodes import Node, standing_nodes
from raysim.core import blas, host
from raysim.core.errors import HangingError, ResourceError
from raysim.core.package import FOLDER

START_SECONDS = 180.0
"""Seconds after which a start of Ray or a connection to it counts as hanging."""

CHANGED = ("PYTHONBREAKPOINT", "RAY_AUTH_MODE", "RAY_CLIENT_MODE")
"""The environment variables that Ray sets in a process, to be restored when the connection ends."""

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The environment variable with which Ray passes settings to a submitted job."""

LISTENER = "ray_listen_error_messages"

TALKATIVE = ("ray.widgets.util",)

_imported_closed = False
"""Whether this module imported Ray while the variable :data:`~raysim.cluster.own_ray.OPEN` was 0, so that Ray listens
on this machine only.
"""

WATCH_SECONDS = 0.05
"""The seconds between two checks that the processes of a Ray started here are running."""


def awaited() -> bool:
    """Return whether this process is already connected to Ray, or ``RAY_ADDRESS`` names a Ray."""
    return named() is not None or ("ray" in sys.modules and sys.modules["ray"].is_initialized())


@contextlib.contextmanager
def connected(verbose: bool, dashboard: bool = False) -> Iterator[None]:
    """Connect this process to Ray while the context is open; a process that is already connected stays connected.

    If Ray is started here, ``dashboard`` starts its dashboard as well. Raises ``ResourceError`` if Ray cannot be used,
    and ``HangingError`` if a call of Ray does not return. If the cluster at ``RAY_ADDRESS`` does not accept this
    process, the error is raised within 40 seconds.
    """
    global _imported_closed
    address = named()
    with host.environment_restored(*CHANGED), contextlib.ExitStack() as standing:
        if "ray" in sys.modules and sys.modules["ray"].is_initialized():
            yield
            return
        if not address and "ray" in sys.modules and not (_imported_closed or OPEN in os.environ):
            print(
                "raysim: ray was imported before raysim could restrict it to this machine: other machines can reach "
                f"its ports, but need its token; set {OPEN}=0 before ray is imported, or import ray after raysim has "
                "started it",
                file=sys.stderr,
            )
        standing.enter_context(host.environment(QUIET if address else QUIET | LOCAL, keep=True))
        _imported_closed = _imported_closed or (not address and "ray" not in sys.modules)
        with host.quiet(*(() if verbose else TALKATIVE)):
            import ray  # noqa: F401
        options: dict[str, Any] = {"log_to_driver": verbose}
        if not verbose:
            options["logging_level"] = logging.ERROR
            standing.enter_context(host.muted(LISTENER))
        if FOLDER.parent != Path.cwd():  # else workers may find raysim only there
            options["job_config"] = ray_private.job_without_folders()
        if address:
            options["address"] = answering(address)
            if blas.VARIABLE in os.environ and blas.VARIABLE not in os.environ.get(JOB, ""):
                # So that products have the same bits there; a Ray that is started here has it from this process.
                options["runtime_env"] = {"env_vars": {blas.VARIABLE: os.environ[blas.VARIABLE]}}
        else:
            private_token()
            folder = standing.enter_context(own_folder())
            # Without an address Ray would join whatever somebody has started on this machine.
            options |= {"address": "local", "include_dashboard": dashboard, "dashboard_host": "127.0.0.1"}
            options["_temp_dir"] = folder
        try:
            with host.quiet() if verbose else host.quiet("ray"), nullcontext() if address else one_at_a_time():
                keeper = _started(options)
        except HangingError:
            raise
        except Exception as error:  # Ray raises a bare Exception where its node does not come up in time
            where = f"RAY_ADDRESS: '{address}'" if address else "resources: a local Ray"
            raise ResourceError(f"{where} cannot be used ({short(str(error))}); {remedy(str(error))}") from None
        host.handle_again(signal.SIGTERM)
        try:
            yield
        finally:
            keeper.stop()


def _started(options: Mapping[str, Any]) -> Keeper:
    """Start Ray or connect to it, and return the thread that keeps it running. A slow start is repeated once."""
    keeper = Keeper(options)
    try:
        keeper.start(START_SECONDS)
        return keeper
    except Exception as error:
        if SLOW not in str(error):
            raise
    print("raysim: Ray did not start in time; it is started once more", file=sys.stderr)
    keeper = Keeper(options)
    keeper.start(START_SECONDS)
    return keeper


class Keeper:
    """A thread that calls ``ray.init(**options)`` and ``ray.shutdown()``.

    In the main thread, ``ray.init`` could block forever, and it would set a signal handler that aborts the process
    three seconds after SIGTERM. The thread lives as long as Ray is needed, because Linux ends Ray's processes with the
    thread that started them.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._up: Future[None] = Future()
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="Ray", daemon=True)

    def start(self, seconds: float) -> None:
        """Wait until Ray is running. Raises the errors of ``ray.init``, and ``HangingError`` after ``seconds``.

        In raysim's command line, Python's watchdog ends the process and prints its trace if Ray's code blocks all other
        threads.
        """
        watched, traced = host.is_own(), faulthandler.is_enabled()
        if watched:
            faulthandler.dump_traceback_later(seconds + 20, exit=True)
        try:
            self._thread.start()
            self._up.exception(seconds)
        except TimeoutError:
            self._leave.set()
            raise HangingError(
                f"resources: Ray did not start within {seconds:g} s; see the logs in "
                f"{self._options.get('_temp_dir', '/tmp/ray')}/session_latest, then try again"
            ) from None
        except BaseException:
            self._leave.set()
            if watched:  # the process ends, and Ray would log that its settings are taken back
                logging.disable(logging.CRITICAL)
            raise
        finally:
            if watched:
                faulthandler.cancel_dump_traceback_later()
            if not traced:
                faulthandler.disable()
        self._up.result()

    def stop(self) -> None:
        """Shut Ray down, and wait until this is done."""
        self._leave.set()
        self._thread.join()

    def _keep(self) -> None:
        import ray

        try:
            ray_private.reread_authentication()
            ray.init(**self._options)
        except BaseException as error:
            with contextlib.suppress(Exception):  # parts of Ray may have started
                ray.shutdown()
            self._up.set_exception(error)
            return
        self._up.set_result(None)
        while not self._leave.wait(WATCH_SECONDS):
            if host.is_own() and (ended := ray_private.ended_parts()):
                _lost(ended[0])
        ray.shutdown()


def _lost(part: str) -> NoReturn:
    """End this process of raysim's command line, because ``part``, an essential process of its Ray, has ended.

    Ray itself would end the process with pages of logs, or wait forever.
    """
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar has hidden the cursor
    print(
        f"{show_cursor}raysim: resources: Ray itself has failed ({part} has ended); finished results are on disk; "
        "continue with 'raysim resume FOLDER'",
        file=sys.stderr,
        flush=True,
    )
    os._exit(2)


def dashboard_address() -> str | None:
    """Return the address of Ray's dashboard; None if the Ray of this process has none."""
    import ray

    # It would say that it is up already, and take SIGTERM for itself.
    with host.quiet("ray"), host.signals(signal.SIGTERM):
        url = ray.init(ignore_reinit_error=True, configure_logging=False).dashboard_url
    return f"http://{url}" if url else None


def live_nodes() -> tuple[Node, ...]:
    """Return the nodes of the Ray to which this process is connected; the node of this process comes first."""
    import ray

    return standing_nodes(ray.nodes(), ray.get_runtime_context().get_node_id())


def this_machine() -> Node:
    """Return the resources of a Ray on this machine: the container's cores, and the visible GPUs."""
    return Node("this machine", devices.cores(), devices.cards())

"""All that raysim uses of Ray's private parts, so that a new Ray that has changed them fails here.

``pyproject.toml`` bounds the versions: 2.52 was the first with tokens. Run as a program, ``ray_private.py ADDRESS``
asks whether Ray answers at an address and takes this machine's token, and ``ray_private.py --agent FILE COMMAND``
stands in for an agent until it is called; it must not import raysim then.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

IDLE = (sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()")
"""A process that does nothing until the one that holds the other end of its input has ended."""

IMPORTED_BY_WORKERS = (
    "ray._private.workers.default_worker",
    "ray._common.usage.usage_lib",
    "ray._private.arrow_serialization",
)
"""What each worker of Ray's imports, its program among them."""

REGISTER_SECONDS = 20.0
"""Seconds that a node that was started may take to register."""

CALLED = """
import os, runpy, socket, sys
called, sys.argv[:] = socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]
sys.path[0] = os.path.dirname(sys.argv[0])
first = socket.socket.bind
def bind(taken, address):
    if address[:2] == called.getsockname()[:2]:
        os.dup2(called.fileno(), taken.fileno())
    else:
        first(taken, address)
socket.socket.bind = bind
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""The program of an agent that takes over the listening socket, with the call that waits at it."""


def found_address() -> str | None:
    """The address of the Ray on this machine that ``RAY_ADDRESS=auto`` leads to; None where it leads to none.

    It may be one that has ended: Ray keeps the address of the last one in a file.
    """
    from ray._private import services

    try:
        found: str | None = services.canonicalize_bootstrap_address("auto")
    except (ConnectionError, ValueError):
        return None
    return found


def cores_and_gpus() -> tuple[float, int]:
    """The cores that a Ray started here would find, as the container limits them, and the GPUs that are visible."""
    from ray._private.accelerators import NvidiaGPUAcceleratorManager
    from ray._private.utils import get_num_cpus

    gpus = NvidiaGPUAcceleratorManager.get_current_node_num_accelerators()
    visible = NvidiaGPUAcceleratorManager.get_current_process_visible_accelerator_ids()
    return get_num_cpus(), gpus if visible is None else min(gpus, len(visible))


def job_without_folders() -> Any:
    """A job for ``ray.init`` whose workers look for modules where their Python does, and nowhere before.

    Ray would search the folder of the driver's script and its working directory first, where a file may have the name
    of a module of Python, raysim or a library. Our actors search these last; see
    :mod:`raysim.strategies.shared.importing`.
    """
    from ray.job_config import JobConfig

    class JobWithoutSearchPath(JobConfig):  # type: ignore[misc]
        def _serialize(self) -> Any:
            self._py_driver_sys_path.clear()
            return super()._serialize()

    return JobWithoutSearchPath()


def reread_authentication() -> None:
    """Make Ray in this process read ``RAY_AUTH_MODE`` and the token again, which it reads once and keeps."""
    from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def ended_parts() -> list[str]:
    """The essential processes, raylet and GCS, that have ended, of a Ray that this process has started."""
    from ray._private import worker

    node = worker._global_node
    return [] if node is None else [kind for kind, _ in node.dead_processes() if kind in ("raylet", "gcs_server")]


def dashboard_address() -> str | None:
    """The address of the dashboard of the Ray that this process is connected to; None where it has none."""
    from ray._private import worker

    node = worker._global_node
    return f"http://{node.webui_url}" if node is not None and node.webui_url else None


@contextlib.contextmanager
def on_loopback() -> Iterator[None]:
    """Make a Ray that is started in this context listen on the loopback interface alone.

    For this process, where ray may be imported already; Ray's processes read ``RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0``.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def without_agents(logs: bool) -> Iterator[None]:
    """Start Ray in this context with head, node and workers alone; ``logs``: and the process that prints their output.

    Ray would start five processes more, which a run on one machine does not need and which take two thirds of the time
    until Ray is up: the monitor of an autoscaler, a dashboard without its page, a reader of logs, and the node's agents
    for metrics and for environments, which on a busy machine do not always start within the 15 seconds that Ray allows.
    As a node must have its agents, idle processes stand in for them. The ports of the agent for metrics are -1: none
    listens. The stand-in for environments becomes the agent when a worker with an environment of its own is asked for,
    as Ray Tune does.

    A Ray before 2.54, which does not read ports from files, is started whole.
    """
    from ray import _raylet
    from ray._private import parameter, services, utils

    if not hasattr(_raylet, "persist_port"):
        yield
        return
    before = parameter.RayParams, services.start_api_server, services.start_ray_process
    error = utils.get_dashboard_dependency_error

    def start(command: Sequence[str], kind: str, *rest: Any, **options: Any) -> Any:
        return before[2](_with_idle_agents(command) if kind == "raylet" else command, kind, *rest, **options)

    parameter.RayParams = partial(parameter.RayParams, no_monitor=True, include_log_monitor=logs)
    services.start_api_server = lambda *_, **__: ("", None)
    services.start_ray_process = start
    # Ray would import a web server only to learn whether an agent could.
    utils.get_dashboard_dependency_error = lambda: None
    try:
        yield
    finally:
        parameter.RayParams, services.start_api_server, services.start_ray_process = before
        utils.get_dashboard_dependency_error = error


@contextlib.contextmanager
def workers_started_by(start: Sequence[str]) -> Iterator[None]:
    """Make a Ray that is started in this context put ``start`` before the command of each worker."""
    from ray._private import services

    before, option = services.start_ray_process, "--python_worker_command="

    def begin(command: Sequence[str], *rest: Any, **options: Any) -> Any:
        words = [
            f"{option}{subprocess.list2cmdline(start)} {word.removeprefix(option)}" if word.startswith(option) else word
            for word in command
        ]
        return before(words if start else command, *rest, **options)

    services.start_ray_process = begin
    try:
        yield
    finally:
        services.start_ray_process = before


@contextlib.contextmanager
def found_when_registered() -> Iterator[None]:
    """Make a Ray that is started in this context look for its node once that has registered.

    Ray itself looks as soon as the node's process is started, which is too early, and then again after a second.
    """
    from ray._private import services

    before = services.get_node

    def get_node(address: str, node: str) -> Any:
        _await_registered(address, node)
        return before(address, node)

    services.get_node = get_node
    try:
        yield
    finally:
        services.get_node = before


def _await_registered(address: str, node: str) -> None:
    """Return when a node has registered at an address, or the time is over: then Ray's own look-up says why."""
    from ray._private import services
    from ray._private.state import GlobalState

    state, end = GlobalState(), time.monotonic() + REGISTER_SECONDS
    state._initialize_global_state(services._get_gcs_client_options(address))
    while time.monotonic() < end and all(each["NodeID"] != node for each in state.node_table()):
        time.sleep(0.01)


def _with_idle_agents(command: Sequence[str]) -> list[str]:
    """The command of a raylet whose agents are idle processes; their ports are written where the raylet looks."""
    from ray import _raylet

    words = dict(word.split("=", 1) for word in command if "=" in word)
    session, node = words["--session_dir"], words["--node_id"]
    for name in ("DASHBOARD_AGENT_LISTEN", "METRICS_AGENT", "METRICS_EXPORT"):
        _raylet.persist_port(session, node, getattr(_raylet, f"{name}_PORT_NAME"), -1)  # type: ignore[attr-defined]
    file = os.path.join(session, f"{_raylet.RUNTIME_ENV_AGENT_PORT_NAME}_{node}")  # type: ignore[attr-defined]
    metrics, environments = "--dashboard_agent_command", "--runtime_env_agent_command"
    waiting = [sys.executable, "-I", "-S", __file__, "--agent", file]
    idle = {
        metrics: subprocess.list2cmdline(IDLE),
        environments: f"{subprocess.list2cmdline(waiting)} {words[environments]}",
    }
    names = [word.partition("=")[0] for word in command]
    return [f"{name}={idle[name]}" if name in idle else word for name, word in zip(names, command, strict=True)]


def wait_for_call(file: str, command: Sequence[str]) -> None:
    """Listen at a port and write it to ``file``; at the first call become the agent that ``command`` starts.

    Returns where the raylet, which holds the other end of this process's input, has ended.
    """
    (host,) = (word.partition("=")[2] for word in command if word.startswith("--node-ip-address="))
    listening = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    with open(f"{file}.new", "w") as written:
        written.write(str(listening.getsockname()[1]))
    os.replace(f"{file}.new", file)
    called, _, _ = select.select([listening, sys.stdin], [], [])
    if sys.stdin in called:
        return
    os.set_inheritable(listening.fileno(), True)
    script = next(i for i, word in enumerate(command) if word.endswith(".py"))
    command = [*command, f"--runtime-env-agent-port={listening.getsockname()[1]}"]
    os.execv(command[0], [*command[:script], "-c", CALLED, str(listening.fileno()), *command[script:]])


@contextlib.contextmanager
def plain_trials() -> Iterator[None]:
    """Keep Ray Tune from asking for an environment of its own for trials to which nothing is passed on.

    It would set a variable for Lightning, for which Ray would start an agent. Nor does it import MLflow and others, as
    it would to count callbacks for usage statistics.
    """
    from ray.air._internal import usage
    from ray.tune.execution import class_cache

    before, variables = usage.tag_callbacks, class_cache.DEFAULT_ENV_VARS
    usage.tag_callbacks, class_cache.DEFAULT_ENV_VARS = lambda *_: False, {}
    try:
        yield
    finally:
        usage.tag_callbacks, class_cache.DEFAULT_ENV_VARS = before, variables


@contextlib.contextmanager
def unprinted() -> Iterator[None]:
    """Keep Ray from printing messages of its processes, among them the logs of one that has died."""
    from ray._private import worker

    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def greet(address: str) -> None:
    """Return if Ray answers at ``address`` and takes our token; else raise, write to stderr, or end the process."""
    from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    ensure_token_if_auth_enabled(create_token_if_missing=False)
    GcsClient(address=address)


if __name__ == "__main__":
    if sys.argv[1] == "--agent":
        wait_for_call(sys.argv[2], sys.argv[3:])
    else:
        greet(sys.argv[1])

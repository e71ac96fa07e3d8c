"""A Ray that is started here: its processes, and what it lets in: this machine alone, and of it who has the token."""

from __future__ import annotations

import collections
import contextlib
import http.client
import io
import ipaddress
import os
import stat
import time
from pathlib import Path

import psutil
import pytest

from raysim.cluster import ray_private
from raysim.cluster.connection import connected
from tests.commands import in_a_process


def listen() -> None:
    """Starts a Ray as commands do, and prints where its processes listen and whether they are in token mode."""
    import ray

    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    with connected(verbose=False):
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # before it serves, it tries what its forks draw
                if not forked(process):
                    print("first", "python" if "python" in process.name() else process.name().partition("::")[0])
        ray.get(ray.remote(lambda: None).remote())
        family = [psutil.Process(), *psutil.Process().children(recursive=True)]
        for process in family[1:]:
            print("process", "python" if "python" in process.name() else process.name().partition("::")[0])
        sockets = [(process.name(), each) for process in family for each in process.net_connections("tcp")]
        for name, each in sockets:
            if each.status == psutil.CONN_LISTEN:
                print("listens", name.replace(" ", "_"), each.laddr.ip)
                print("metrics", name.replace(" ", "_"), shows_metrics(each.laddr.port))
        modes = {process.environ().get("RAY_AUTH_MODE") for process in family if process.name() == "raylet"}
        print("modes", *modes)
        asked = ray.remote(runtime_env={"env_vars": {"MINE": "set"}})(lambda: os.environ.get("MINE"))
        print("environment", ray.get(asked.remote()))


def forked(process: psutil.Process) -> bool:
    """Whether a process is a fork of the one that forks workers."""
    parent = process.parent()
    return parent is not None and any("fork_server.py" in word for word in parent.cmdline())


def shows_metrics(port: int) -> bool:
    """Whether a port of this machine answers ``/metrics`` to someone who has no token."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def test_a_ray_that_is_started_here_is_reached_from_here_alone_and_with_the_token(tmp_path: Path):
    done = in_a_process(listen, [], tmp_path, {"HOME": str(tmp_path)})
    assert done.code == 0, done.out + done.err
    lines = [line.split() for line in done.out.splitlines()]
    listening = {(name, address) for kind, name, address in (line for line in lines if line[0] == "listens")}
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    for name, text in listening:
        address = ipaddress.ip_address(text.removeprefix("::ffff:"))
        assert address.is_loopback, (name, text)
    assert {answer for kind, _, answer in (line for line in lines if line[0] == "metrics")} == {"False"}
    assert ["modes", "token"] in lines
    assert ["environment", "set"] in lines, "of a worker, as trials of a sweep ask for"
    processes = collections.Counter(name for kind, name in (line for line in lines if line[0] == "process"))
    # Its two agents are idle processes of Python, and a third one forks the workers, which came when they were needed.
    others = {name: count for name, count in processes.items() if name != "ray"}
    assert others == {"gcs_server": 1, "raylet": 1, "python": 3}
    assert collections.Counter(name for kind, name in (line for line in lines if line[0] == "first")) == others
    token = tmp_path / ".ray" / "auth_token"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (token.parent, token)] == [0o700, 0o600]


def shout() -> None:
    """Starts a Ray as verbose commands do, and ends once what a worker prints is printed here."""
    import ray

    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    printed = io.StringIO()
    with connected(verbose=True), contextlib.redirect_stdout(printed):
        ray.get(ray.remote(lambda: print("a worker's line")).remote())
        end = time.monotonic() + 600
        while "a worker's line" not in printed.getvalue():
            assert time.monotonic() < end
            time.sleep(0.02)


def test_verbose_commands_print_what_workers_print(tmp_path: Path):
    done = in_a_process(shout, [], tmp_path, {"HOME": str(tmp_path)})
    assert done.code == 0, done.out + done.err


def test_a_ray_that_knows_no_ports_in_files_is_started_whole(monkeypatch: pytest.MonkeyPatch):
    from ray import _raylet
    from ray._private import parameter

    whole = parameter.RayParams
    with ray_private.without_agents(logs=False):
        assert parameter.RayParams is not whole
        assert parameter.RayParams().no_monitor
    assert parameter.RayParams is whole
    monkeypatch.delattr(_raylet, "persist_port")
    with ray_private.without_agents(logs=False):
        assert parameter.RayParams is whole

"""A Ray that is started here: its processes, and what it lets in: this machine alone, and of it who has the token."""

from __future__ import annotations

import contextlib
import http.client
import io
import ipaddress
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from raysim.cluster.connection import connected
from tests.source import ROOT

pytestmark = pytest.mark.surroundings


def listen() -> None:
    """Starts a Ray as verbose commands do; prints what a worker does, where processes listen and their token mode."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        del os.environ[name]
    printed = io.StringIO()
    with connected(verbose=True):
        import ray

        with contextlib.redirect_stdout(printed):
            ray.get(ray.remote(lambda: print("a worker's line")).remote())
            end = time.monotonic() + 600
            while "a worker's line" not in printed.getvalue() and time.monotonic() < end:
                time.sleep(0.02)
        print("printed", "a worker's line" in printed.getvalue())
        family = [psutil.Process(), *psutil.Process().children(recursive=True)]
        (folder,) = {Path(ray.init(ignore_reinit_error=True).address_info["session_dir"]).parents[1]}
        print("folder", folder, oct(folder.stat().st_mode)[-3:])
        sockets = [(process.name(), each) for process in family for each in process.net_connections("tcp")]
        for name, each in sockets:
            if each.status == psutil.CONN_LISTEN:
                print("listens", name.replace(" ", "_"), each.laddr.ip)
                print("metrics", name.replace(" ", "_"), shows_metrics(each.laddr.port))
        modes = {process.environ().get("RAY_AUTH_MODE") for process in family if process.name() == "raylet"}
        print("modes", *modes)
        asked = ray.remote(runtime_env={"env_vars": {"MINE": "set"}})(lambda: os.environ.get("MINE"))
        print("environment", ray.get(asked.remote()))


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


def in_its_own(home: Path) -> subprocess.CompletedProcess[str]:
    """:func:`listen` in a process that has not imported Ray before."""
    command = [sys.executable, "-c", "from tests.cluster.test_listening import listen; listen()"]
    environment = os.environ | {"HOME": str(home), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def test_a_ray_that_is_started_here_is_reached_from_here_alone_and_with_the_token(tmp_path: Path):
    done = in_its_own(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["printed", "True"] in lines, "verbose commands print what workers print"
    listening = {(name, address) for kind, name, address in (line for line in lines if line[0] == "listens")}
    assert {"gcs_server", "raylet"} <= {name for name, _ in listening}
    for name, text in listening:
        address = ipaddress.ip_address(text.removeprefix("::ffff:"))
        assert address.is_loopback, (name, text)
    assert {answer for kind, _, answer in (line for line in lines if line[0] == "metrics")} == {"False"}
    assert ["modes", "token"] in lines
    assert ["environment", "set"] in lines, "of a worker, as trials of a sweep ask for"
    (folder,) = (line for line in lines if line[0] == "folder")
    assert folder[2] == "700", "nobody else reaches its sockets and logs"
    assert not Path(folder[1]).exists(), "it is removed at the end"
    token = tmp_path / ".ray" / "auth_token"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (token.parent, token)] == [0o700, 0o600]


FAILING_TWICE = """
from raysim.cluster import connection
from raysim.core.errors import ResourceError

def fails(options):
    raise Exception("no Ray here")

connection._started = fails
for _ in range(2):
    try:
        with connection.connected(verbose=False):
            pass
    except ResourceError:
        pass
"""
"""Imports ray, as a command does that starts one Ray after the other, without waiting for one."""


def test_a_ray_that_somebody_else_imported_is_said_to_listen_and_ones_own_is_not(tmp_path: Path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | {"HOME": str(tmp_path)}
    for before, said in (("", 0), ("import ray\n", 2)):
        command = [sys.executable, "-c", before + FAILING_TWICE]
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stderr.count("ray was imported before raysim") == said

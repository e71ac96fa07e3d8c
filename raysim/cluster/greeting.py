"""Finds out within seconds whether a Ray at an address answers and lets this process in."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator

from raysim.cluster import ray_private
from raysim.core.errors import ResourceError

CONNECT_SECONDS = 10.0
"""How long a cluster may take to answer at all."""

SLOW = "timed out during startup"
"""Part of Ray's message about a node that needs more than half a minute to start."""

AUTO, LOCAL = "auto", "local"
"""Words that ``RAY_ADDRESS`` takes in place of an address: that of a Ray on this machine, and a Ray of one's own."""

TOKEN_REMEDY = "put the cluster's token into ~/.ray/auth_token or RAY_AUTH_TOKEN and set RAY_AUTH_MODE=token"


def resolved(address: str) -> str:
    """The address that Ray takes ``address`` for, once that answers where it was looked up; imports Ray for ``auto``.

    Raises ``ResourceError`` where ``auto`` leads to nothing that answers.
    """
    if address != AUTO:
        return address
    found = ray_private.found_address()
    if found is None:
        raise ResourceError(
            f"RAY_ADDRESS: '{AUTO}' finds no Ray on this machine; start one with 'ray start --head', or unset it"
        )
    try:
        check_answers(found, None)
    except ResourceError as error:
        raise ResourceError(f"{error} ('{AUTO}' led to it: 'ray stop' forgets a Ray that has ended)") from None
    return found


def check_answers(address: str, asked: subprocess.Popen[str] | None) -> None:
    """Report in seconds what Ray would retry for minutes: no answer, no Ray at the address, no token or a wrong one.

    ``asked``: a process that greets the address already (see :func:`greeted`), or None. Raises ``ResourceError``.
    """
    if address == LOCAL:
        return
    if "://" in address:
        raise ResourceError(
            f"RAY_ADDRESS: '{address}' is a Ray Client's address, whose data stay behind; run on the cluster with "
            "'ray job submit', or give the head's host:port"
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ResourceError(f"RAY_ADDRESS: '{address}' is not host:port; for example 10.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResourceError(
            f"RAY_ADDRESS: '{address}' does not answer ({reason}); see that the cluster is up and the address right"
        ) from None
    if asked is not None:
        check_greets(address, asked)
        return
    with greeted(address) as asked:
        check_greets(address, asked)


_begun: dict[str, subprocess.Popen[str]] = {}
"""Processes that greet an address already, until :func:`greeted` takes them."""


@contextlib.contextmanager
def begun(address: str) -> Iterator[None]:
    """Greet the Ray at an address at once, while configuration and data are read.

    The first :func:`greeted` of the address in this context takes the process; one that is not taken is killed.
    """
    _begun[address] = _greeting(address)
    try:
        yield
    finally:
        if (process := _begun.pop(address, None)) is not None:
            _end(process)


@contextlib.contextmanager
def greeted(address: str) -> Iterator[subprocess.Popen[str]]:
    """A process that greets the Ray at an address, and is ended afterwards.

    It is a process of its own because Ray's call has no time limit, writes to stderr, and can end its process.
    """
    process = _begun.pop(address, None) or _greeting(address)
    try:
        yield process
    finally:
        _end(process)


def _greeting(address: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", ray_private.__file__, address]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    with process:  # closes its streams, and waits
        pass


def check_greets(address: str, asked: subprocess.Popen[str]) -> None:
    """Raise ``ResourceError`` unless Ray answers at ``address`` and takes our token."""
    try:
        _, output = asked.communicate(timeout=CONNECT_SECONDS)
    except subprocess.TimeoutExpired:
        raise ResourceError(
            f"RAY_ADDRESS: '{address}' does not answer as Ray does; give the head's port, mostly 6379, "
            "not the dashboard's"
        ) from None
    if not asked.returncode:
        return
    last = (output.strip().splitlines() or ["no reason is given"])[-1]
    if "no authentication token was found" in last:
        raise ResourceError(
            f"RAY_ADDRESS: '{address}' needs a token (RAY_AUTH_MODE=token) and there is none here; {TOKEN_REMEDY}"
        )
    _, _, reason = last.partition(": ")
    if "AuthenticationError" in last:
        raise ResourceError(f"RAY_ADDRESS: '{address}' refuses this token ({short(reason)}); {TOKEN_REMEDY}")
    raise ResourceError(f"RAY_ADDRESS: '{address}' cannot be used ({short(reason)}); {remedy(reason)}")


def short(reason: str) -> str:
    """Ray's message on one line, without its repetitions."""
    text = " ".join(reason.split())
    if "Version mismatch" not in text:
        text = text.split(". ")[0]
    return text[:300] or "no reason is given"


def remedy(reason: str) -> str:
    """What a user can do about Ray's message ``reason``."""
    if "Version mismatch" in reason:
        return "install the same Python and Ray here as on the cluster (constraints.txt)"
    if "token" in reason:
        return TOKEN_REMEDY
    if SLOW in reason:
        return "try again when the machine is less busy, or run with --in-process, which starts no Ray"
    return "check 'ray status' there, or unset it"

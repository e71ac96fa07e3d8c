"""A quick test whether a Ray at an address replies and accepts this process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from raysim.core.errors import ResourceError

CONNECT_SECONDS = 10.0
"""Seconds within which the machine at Ray's address must accept a connection."""

GREET_SECONDS = 25.0
"""Seconds within which the Ray at an address must accept this process."""

SLOW = "timed out during startup"

AUTO, LOCAL = "auto", "local"
"""The values of ``RAY_ADDRESS`` that are not addresses: a running Ray on this machine, and a new Ray."""

TOKEN_REMEDY = "put the cluster's token into ~/.ray/auth_token or RAY_AUTH_TOKEN and set RAY_AUTH_MODE=token"


REFUSED = ("AuthenticationError", "InvalidAuthToken")

GREETING = """
import logging, sys
import ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level=logging.CRITICAL)
    print(ray.get_runtime_context().gcs_address)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
"""


def named() -> str | None:
    """Return the value of ``RAY_ADDRESS``; None if it is unset, empty, or ``local`` (a new Ray)."""
    address = os.environ.get("RAY_ADDRESS")
    return None if address == LOCAL else address or None


def answering(address: str) -> str:
    """Return the address of the Ray at ``address`` after checking that it accepts this process.

    Raises ``ResourceError`` within 40 seconds if it does not.
    """
    if "://" in address:
        raise ResourceError(
            f"RAY_ADDRESS: '{address}' is an address for Ray Client, through which the cluster cannot read this "
            "machine's data; run on the cluster with 'ray job submit', or give the head's host:port"
        )
    host, _, port = address.rpartition(":")
    if address != AUTO and not (host and port.isdigit()):
        raise ResourceError(f"RAY_ADDRESS: '{address}' is not host:port; write for example 10.0.0.1:6379")
    try:
        if address != AUTO:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ResourceError(
            f"RAY_ADDRESS: '{address}' does not answer ({reason}); check that the cluster runs and the address is right"
        ) from None
    return _greeted(address)


def _greeted(address: str) -> str:
    """Return the host and port of the Ray at ``address``, or of this machine's running Ray for ``auto``.

    A separate process calls Ray, because the call has no time limit and can end the calling process.
    """
    command = [sys.executable, "-P", "-c", GREETING, address]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=GREET_SECONDS)
    except subprocess.TimeoutExpired as late:
        if address == AUTO:
            raise ResourceError(
                f"RAY_ADDRESS: '{AUTO}' finds a Ray that does not answer; if that Ray has ended, remove its address "
                "with 'ray stop'"
            ) from None
        if _refused(str(late.stderr)):
            raise ResourceError(f"RAY_ADDRESS: '{address}' refuses this machine's token; {TOKEN_REMEDY}") from None
        raise ResourceError(
            f"RAY_ADDRESS: '{address}' answers, but not as Ray does; give the head's port, usually 6379, not the "
            "dashboard's"
        ) from None
    if not asked.returncode:
        return asked.stdout.split()[-1]
    last = (asked.stderr.strip().splitlines() or ["no reason is given"])[-1]
    if address == AUTO and "Could not find any running Ray" in last:
        raise ResourceError(
            f"RAY_ADDRESS: '{AUTO}' finds no Ray on this machine; start one with 'ray start --head', or unset "
            "RAY_ADDRESS"
        )
    if "no authentication token was found" in last:
        raise ResourceError(
            f"RAY_ADDRESS: '{address}' needs a token (RAY_AUTH_MODE=token), and this machine has none; {TOKEN_REMEDY}"
        )
    if _refused(asked.stderr):
        raise ResourceError(f"RAY_ADDRESS: '{address}' refuses this machine's token; {TOKEN_REMEDY}")
    _, _, reason = last.partition(": ")
    raise ResourceError(f"RAY_ADDRESS: '{address}' cannot be used ({short(reason)}); {remedy(reason)}")


def _refused(messages: str) -> bool:
    return any(part in messages for part in REFUSED)


def short(reason: str) -> str:
    """Return the first sentence of Ray's message ``reason``; all sentences if the message is about different versions.

    A text of more than 300 characters is cut.
    """
    text = " ".join(reason.split())
    if "Version mismatch" not in text:
        text = text.split(". ")[0]
    return text[:300] or "no reason is given"


def remedy(reason: str) -> str:
    """Return what the user can do about Ray's message ``reason``."""
    if "Version mismatch" in reason:
        return "install the same Python and Ray here as on the cluster (constraints.txt)"
    if "token" in reason:
        return TOKEN_REMEDY
    if SLOW in reason:
        return "try again when the machine is less busy, or run with --in-process, which starts no Ray"
    return "check the output of 'ray status' and the value of RAY_ADDRESS"

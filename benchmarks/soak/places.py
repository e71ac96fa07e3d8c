"""Where commands run: in one process, on a Ray of their own, or on one that stands, of one host or of three.

A host is a network namespace with an address of its own on one switch, in which a node of Ray listens. Hosts share the
file system and the process ids, so that any process of any of them can be disturbed from here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.soak.drivers import name_of, shell, wait_for

NET = "198.18.78"  # addresses set aside for testing between networks (RFC 2544)
PORT = 6399
CLONE_NEWNET = 0x40000000
TRIAL = ("TrialProcess", "ResourceTrainable")
"""What is in the titles of the processes of trials."""

ACTORS = ("HospitalActor", "CoordinatorActor", *TRIAL)
"""What is in the titles of the processes of jobs."""


class StandingRay:
    """A Ray that stays up, of one node on each of ``addresses``."""

    def __init__(self, folder: Path, addresses: list[str], entries: list[list[str]], cpus: int) -> None:
        self._folder, self._addresses, self._entries, self._cpus = folder, addresses, entries, cpus
        (folder / "token").write_text(secrets.token_hex(32))
        self._nodes: list[subprocess.Popen[bytes]] = []
        self.environment = {
            "RAY_ADDRESS": f"{addresses[0]}:{PORT}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def start(self) -> None:
        """Start all nodes."""
        for number in range(len(self._addresses)):
            self._nodes.append(self._started(number))
            self.wait(number + 1)

    def wait(self, count: int) -> None:
        """Until so many raylets run and the head answers."""
        wait_for(lambda: len(self.raylets()) >= count, 90, f"{count} nodes are not up")
        time.sleep(3.0)

    def replace(self, number: int) -> None:
        """Start a node again whose raylet has been killed."""
        self._end(self._nodes[number])
        self._nodes[number] = self._started(number)
        self.wait(len(self._nodes))

    def raylets(self) -> list[psutil.Process]:
        """The raylets, the head's first."""
        below = [psutil.Process(node.pid).children(recursive=True) for node in self._nodes if node.poll() is None]
        return [each for family in below for each in family if "raylet/raylet" in name_of(each)]

    def workers(self) -> list[psutil.Process]:
        """Processes of jobs."""
        children = []
        for raylet in self.raylets():
            with contextlib.suppress(psutil.Error):
                children += raylet.children(recursive=True)
        return [each for each in children if any(name in name_of(each) for name in ACTORS)]

    def stop(self) -> None:
        """End all nodes."""
        for node in reversed(self._nodes):
            self._end(node)

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        options = head if number == 0 else [f"--address={self._addresses[0]}:{PORT}"]
        options += [f"--node-ip-address={self._addresses[number]}", f"--num-cpus={self._cpus}", "--block"]
        options += ["--object-store-memory=100000000", "--disable-usage-stats"]
        log = (self._folder / f"node-{number}.log").open("wb")
        program = ["-c", "import sys; from ray.scripts.scripts import main; sys.exit(main())"]
        return subprocess.Popen(
            [*self._entries[number], sys.executable, *program, "start", *options],
            stdout=log,
            stderr=log,
            cwd=self._folder,
            env=os.environ | self.environment | {"RAY_ADDRESS": ""},
            start_new_session=True,
        )

    @staticmethod
    def _end(node: subprocess.Popen[bytes]) -> None:
        family = []
        with contextlib.suppress(psutil.Error):
            family = psutil.Process(node.pid).children(recursive=True)
        node.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.wait(10)
        for each in family:
            with contextlib.suppress(psutil.Error):
                each.kill()
        node.kill()
        node.wait()


@contextlib.contextmanager
def one_host(folder: Path) -> Iterator[StandingRay]:
    """A Ray of one node with a core."""
    ray = StandingRay(folder, ["127.0.0.1"], [[]], cpus=1)
    try:
        ray.start()
        yield ray
    finally:
        ray.stop()


@contextlib.contextmanager
def three_hosts(folder: Path) -> Iterator[StandingRay]:
    """A Ray of three nodes on three hosts, with a core each. This process moves to the first host. Needs root."""
    bridge = f"soak{os.getpid() % 10_000}"
    spaces = [f"{bridge}-{i}" for i in range(3)]
    addresses = [f"{NET}.{10 + i}" for i in range(3)]
    try:
        shell(f"ip link add {bridge} type bridge && ip link set {bridge} up")
        for i, (space, address) in enumerate(zip(spaces, addresses, strict=True)):
            shell(
                f"ip netns add {space} && ip link add {bridge}v{i} type veth peer name eth0 netns {space} && "
                f"ip link set {bridge}v{i} master {bridge} up && ip -n {space} address add {address}/24 dev eth0 && "
                f"ip -n {space} link set eth0 up && ip -n {space} link set lo up && "
                f"ip -n {space} route add default via {NET}.254"
            )
        ray = StandingRay(folder, addresses, [["ip", "netns", "exec", space] for space in spaces], cpus=1)
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        try:
            ray.start()
            _enter(os.open(f"/run/netns/{spaces[0]}", os.O_RDONLY))
            yield ray
        finally:
            _enter(home)
            ray.stop()
    finally:
        for i, space in enumerate(spaces):
            subprocess.run(["ip", "link", "delete", f"{bridge}v{i}"], capture_output=True)
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)
        subprocess.run(["ip", "link", "delete", bridge], capture_output=True)


def _enter(space: int) -> None:
    """Let this process, and those that it starts from now on, use another network."""
    if ctypes.CDLL(None, use_errno=True).setns(space, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")

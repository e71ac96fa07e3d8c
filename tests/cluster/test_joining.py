"""A standing Ray is joined while this process is at something else."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from raysim.cluster.joining import Joining
from raysim.core.errors import ResourceError


class Cluster:
    """Notes who connects and leaves; refuses where ``refuses``."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses = refuses
        self.said: list[str] = []

    @contextlib.contextmanager
    def connect(self, *_: object) -> Iterator[bool]:
        if self.refuses:
            raise ResourceError("RAY_ADDRESS: nobody is there")
        self.said.append("connected")
        yield False
        self.said.append("left")


def test_a_connection_is_held_until_its_end():
    cluster = Cluster()
    joining = Joining(cluster.connect())
    joining.wait()
    assert joining.done
    assert cluster.said == ["connected"]
    joining.end()
    assert cluster.said == ["connected", "left"]


def test_an_error_of_connecting_waits_until_somebody_asks():
    joining = Joining(Cluster(refuses=True).connect())
    with pytest.raises(ResourceError, match="nobody is there"):
        joining.wait()
    joining.end()

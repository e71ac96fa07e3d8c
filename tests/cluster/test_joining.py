"""A standing Ray is joined while configuration and data are read, and a coordinator begins there."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator

import pytest

from raysim.cluster import connection, coordinator
from raysim.cluster.joining import Joining
from raysim.core import blas
from raysim.core.errors import ResourceError
from raysim.strategies.shared.importing import search_path


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

    @contextlib.contextmanager
    def begin(self) -> Iterator[None]:
        self.said.append("begun")
        yield
        self.said.append("ended")


@pytest.fixture
def cluster(monkeypatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(connection, "_connected", made.connect)
    monkeypatch.setattr(coordinator, "begun", made.begin)
    return made


def test_a_connection_is_held_until_its_end():
    cluster = Cluster()
    joining = Joining(cluster.connect())
    joining.wait()
    assert cluster.said == ["connected"]
    joining.end()
    assert cluster.said == ["connected", "left"]


def test_an_error_of_connecting_waits_until_somebody_asks():
    joining = Joining(Cluster(refuses=True).connect())
    with pytest.raises(ResourceError, match="nobody is there"):
        joining.wait()
    joining.end()


def test_the_first_that_connects_takes_what_was_joined(cluster):
    with connection.joining(verbose=False):
        with connection.connected(verbose=False) as before:
            assert before is False
            assert cluster.said == ["connected", "begun"]
        assert cluster.said == ["connected", "begun", "ended", "left"]
        with connection.connected(verbose=False):
            assert cluster.said[4:] == ["connected"]
    assert cluster.said[4:] == ["connected", "left"]


def test_what_nobody_takes_is_let_go(cluster):
    with pytest.raises(ValueError, match="a wrong key"), connection.joining(verbose=False):
        raise ValueError("a wrong key")
    assert cluster.said == ["connected", "begun", "ended", "left"]
    with connection.connected(verbose=False):
        assert cluster.said[4:] == ["connected"]


def test_a_cluster_that_refuses_is_told_of_where_it_is_needed(cluster):
    cluster.refuses = True
    refused = pytest.raises(ResourceError, match="nobody is there")
    with connection.joining(verbose=False), refused, connection.connected(verbose=False):
        pass


def test_a_coordinator_that_was_begun_is_taken_once_where_modules_are_looked_for_in_the_same_places(monkeypatch):
    started: list[types.SimpleNamespace] = []

    def start(*settings: object) -> types.SimpleNamespace:
        served: list[object] = []
        serve = types.SimpleNamespace(remote=served.append)
        started.append(types.SimpleNamespace(serve=serve, served=served, settings=settings))
        return started[-1]

    monkeypatch.setattr(coordinator, "_started", start)
    with coordinator.begun():
        taken = coordinator.coordinate("pool")
        assert taken is started[0]
        assert taken.served == ["pool"]
        assert taken.settings == (search_path(), blas.code())
        another = coordinator.coordinate("second")
        assert another is started[1]
        assert another.served == ["second"]
    with coordinator.begun():
        monkeypatch.setattr(coordinator, "search_path", lambda: ("elsewhere",))
        assert coordinator.coordinate("pool").settings[0] == ("elsewhere",)
    with coordinator.begun():
        pass
    assert coordinator.coordinate("pool") is started[5]
    assert [each.served for each in started[2:]] == [[], ["pool"], [], ["pool"]]

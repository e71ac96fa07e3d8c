"""A cluster that cannot be used is said in one line, soon."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray

from raysim.cluster import connection as cluster
from raysim.cluster import greeting, ray_private, room
from raysim.cluster.placement import Placement, place
from raysim.cluster.software import check_same, software
from raysim.config.nodes import Node
from raysim.config.sections.resources import ResourcesSection
from raysim.core import host
from raysim.core.errors import HangingError, ResourceError
from raysim.experiment.session import place_live
from tests import rays
from tests.commands import in_a_process, refusal
from tests.conftest import patiently


def connect() -> None:
    with cluster.connected(verbose=False):
        pass


@pytest.fixture
def listener() -> Iterator[str]:
    """The address of something that is not Ray."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nothing listens, which is held: a Ray of another test could be given it otherwise."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def _impatient(*arguments: str) -> None:
    """``raysim`` that does not wait for what never answers."""
    _waiting(2.0, *arguments)


def _patient(*arguments: str) -> None:
    """``raysim`` that waits for what does answer, however slow this machine is."""
    _waiting(600.0, *arguments)


def _waiting(seconds: float, *arguments: str) -> None:
    from raysim.cli.main import main

    greeting.CONNECT_SECONDS = greeting.GREET_SECONDS = seconds
    sys.argv = list(arguments)
    main()


def refused(tmp_path: Path, address: str, command: Callable[..., None] = _patient, **environment: str) -> str:
    """What ``raysim run`` says on that cluster; it must end with exit code 2."""
    settings = {"RAYSIM_CACHE": str(tmp_path), "HOME": str(tmp_path), "RAY_ADDRESS": address} | environment
    options = ["--set", "data.hospitals=8", "--set", "data.rows=400", "--set", "tracking.uri=none"]
    done = in_a_process(command, ["raysim", "run", *options, "--out", str(tmp_path / "out")], tmp_path, settings)
    assert done.code == 2, done.err
    line = refusal(done.err)
    assert line.startswith("RAY_ADDRESS: '")
    return line


def test_nobody_answers(tmp_path, nobody):
    assert f"'{nobody}' does not answer (Connection refused); check that the cluster runs" in refused(tmp_path, nobody)


def test_auto_leads_to_a_ray_that_has_ended(tmp_path, nobody):
    """Ray itself would try it for more than a minute."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(nobody)
    line = refused(tmp_path, "auto", _impatient, RAY_TMPDIR=str(tmp_path))
    assert "'auto' finds a Ray that does not answer; if that Ray has ended, remove its address with 'ray stop'" in line


def test_auto_leads_to_no_ray(monkeypatch):
    """On a machine where nobody runs one; Ray looks through all processes."""
    said = "Could not find any running Ray instance. Please specify the one to connect to"
    monkeypatch.setattr(greeting, "GREETING", f"import sys; sys.exit('ConnectionError: {said}')")
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    with pytest.raises(ResourceError, match="'auto' finds no Ray on this machine; start one with 'ray start --head'"):
        connect()


def test_something_else_answers(tmp_path, listener):
    line = refused(tmp_path, listener, _impatient)
    assert "answers, but not as Ray does; give the head's port, usually 6379" in line


def test_no_token(tmp_path, listener):
    line = refused(tmp_path, listener, RAY_AUTH_MODE="token")
    assert "needs a token (RAY_AUTH_MODE=token), and this machine has none; put the cluster's token into" in line


@pytest.mark.parametrize("end", ["sys.exit('ConnectionError: Failed to connect')", "time.sleep(600)"])
def test_a_wrong_token(monkeypatch, listener, end):
    """Ray writes what is wrong, tries again and ends with other words; on three hosts Ray itself does so."""
    said = "Failed to get cluster ID from GCS server: Unauthenticated: RPC error: InvalidAuthToken: token is incorrect"
    monkeypatch.setattr(greeting, "GREETING", f"import sys, time; print({said!r}, file=sys.stderr, flush=True); {end}")
    monkeypatch.setattr(greeting, "GREET_SECONDS", 5.0)
    monkeypatch.setenv("RAY_ADDRESS", listener)
    with pytest.raises(ResourceError, match="refuses this machine's token; put the cluster's token into"):
        connect()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://10.0.0.1:10001", "is an address for Ray Client, .* run on the cluster with 'ray job submit'"),
        ("10.0.0.1", "'10.0.0.1' is not host:port; write for example"),
        ("head:ray", "'head:ray' is not host:port"),
        ("no-such-host.invalid:6379", "does not answer"),
    ],
)
def test_addresses_that_are_none(monkeypatch, address, message):
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ResourceError, match=message):
        connect()


def test_a_silent_network_is_not_waited_for(monkeypatch):
    def drops(address: object, timeout: float) -> None:
        assert timeout <= 10
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", drops)
    monkeypatch.setenv("RAY_ADDRESS", "192.0.2.1:6379")
    with pytest.raises(ResourceError, match=r"'192.0.2.1:6379' does not answer \(timed out\)"):
        connect()


def test_another_version_of_ray_is_named_whole(monkeypatch):
    def mismatch(**_: object) -> None:
        raise RuntimeError(
            "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\n    Python: 3.11.7\n"
            "This process on node 10.0.0.2 was started with:\n    Ray: 2.60.0\n    Python: 3.11.7\n"
        )

    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setattr(cluster, "answering", lambda address: address)
    monkeypatch.setattr(ray, "init", mismatch)
    with pytest.raises(ResourceError, match=r"Ray: 2.9.0 .* Ray: 2.60.0 .*; install the same Python and Ray here"):
        connect()


def test_a_node_that_does_not_come_up_twice_is_one_line_that_says_what_goes_without(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))  # commands of other tests, which start Rays, are not waited for
    tries = []

    def slow(**_: object) -> None:
        tries.append(None)
        raise Exception("The current node timed out during startup. This could happen because of the GCS.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", slow)
    with pytest.raises(
        ResourceError, match=r"a local Ray cannot be used \(The current node timed out .*\); .* run with --in-process"
    ):
        connect()
    assert len(tries) == 2
    assert capsys.readouterr().err == "raysim: Ray did not start in time; it is started once more\n"


def test_a_node_that_comes_up_the_second_time_is_used(monkeypatch):
    tries, ended = [], []

    def slow_once(**_: object) -> None:
        tries.append(None)
        if len(tries) == 1:
            raise Exception("The current node timed out during startup. This could happen because of the GCS.")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", slow_once)
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(None))
    connect()
    assert len(tries) == 2
    assert len(ended) == 2  # of what had been started of the first, and in the end


def test_any_other_failure_to_start_is_not_tried_again(monkeypatch):
    tries = []

    def refuses(**_: object) -> None:
        tries.append(None)
        raise Exception("no permission")

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", refuses)
    with pytest.raises(ResourceError, match="no permission"):
        connect()
    assert len(tries) == 1


def test_other_software_on_a_node_is_named():
    versions = software()
    check_same([("10.0.0.1", versions), ("10.0.0.2", dict(versions))])
    check_same([(ray.util.get_node_ip_address(), versions | {"numpy": "1.0"})])  # files that are being edited
    with pytest.raises(ResourceError, match=r"resources: numpy is 1.0 on node 10.0.0.2 and .* here; install the same"):
        check_same([("10.0.0.1", versions), ("10.0.0.2", versions | {"numpy": "1.0"})])


def test_nodes_are_started_only_where_those_that_stand_cannot():
    import numpy as np

    rows, stands = np.array([5, 4, 3, 2]), (Node("here", 2),)
    grows = ResourcesSection(autoscale="2x4cpu+1gpu", gpus_per_actor=0.5)
    placement, nodes = place_live(rows, grows, (), stands)
    assert sorted(nodes[i].name for i in placement.nodes) == ["new node 1", "new node 1", "new node 2", "new node 2"]
    assert placement.bundles() == [{"CPU": 2.0, "GPU": 1.0}] * 2
    placement, nodes = place_live(rows, ResourcesSection(autoscale="2x4cpu+1gpu"), (), stands)
    assert nodes == stands
    with pytest.raises(ResourceError, match=r"gpus_per_actor: 0 of 1 actor fit"):
        place_live(rows, ResourcesSection(autoscale="2x4cpu+1gpu", gpus_per_actor=2), (), stands)


@pytest.fixture
def two_nodes(monkeypatch) -> Iterator[None]:
    """Two raylets on this machine, which say that they are nodes with 2 CPUs and 1 CPU."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    head = {"num_cpus": 2, "include_dashboard": False}
    with rays.forked():
        nodes = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
        patiently(lambda: nodes.add_node(num_cpus=1))
    patiently(lambda: ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR"))
    yield
    ray.shutdown()
    nodes.shutdown()


def test_actors_are_where_the_plan_says_and_busy_nodes_are_an_error(two_nodes, monkeypatch, capsys):
    import numpy as np

    from raysim.cluster.pool import RayPool

    monkeypatch.setattr(room, "RESERVE_SECONDS", 600.0)
    nodes = cluster.live_nodes()
    assert sorted(node.cpus for node in nodes) == [1, 2]
    placement = place(np.arange(3), ResourcesSection(), nodes)
    group = room.reserve(placement, nodes)
    pool = RayPool(placement, "cpu", group=group)
    pool.wait(600)
    homes = ray.get([actor.__ray_call__.remote(_node) for actor in pool.actors])
    assert sorted(homes.count(home) for home in set(homes)) == [1, 2]

    monkeypatch.setattr(room, "RESERVE_SECONDS", 1.0)
    with pytest.raises(ResourceError, match=r"2 CPUs, 1 CPU, each on a separate node, did not become free within 1 s"):
        room.reserve(placement, nodes)
    alone = Placement((np.arange(3),), 1, 0, nodes=(0,))
    capsys.readouterr()
    with pytest.raises(
        ResourceError, match=r"1 CPU did not become free within 1 s \(free on all nodes: 0 CPUs of 3 CPUs\)"
    ):
        room.reserve(alone, nodes)
    assert capsys.readouterr().err == (
        "raysim: waiting for 1 CPU: other work uses this Ray; 0 CPUs of 3 CPUs are free\n"
    )
    ray.kill(pool.actors[0])
    monkeypatch.setattr(room, "RESERVE_SECONDS", 600.0)
    ray.util.remove_placement_group(group)
    assert room.reserve(alone, nodes) is None


def _node(actor: object) -> str:
    home: str = ray.get_runtime_context().get_node_id()
    return home


def test_a_ray_that_hangs_while_it_starts_is_an_error_and_ends_later(monkeypatch):
    go_on, ended, up = threading.Event(), threading.Event(), []

    def init(**_: object) -> None:
        go_on.wait()
        up.append(True)

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: bool(up))
    monkeypatch.setattr(ray, "shutdown", ended.set)
    monkeypatch.setattr(cluster, "START_SECONDS", 0.1)
    with pytest.raises(HangingError, match=r"resources: Ray did not start within 0.1 s; see the logs in .*/raysim-"):
        connect()
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(600), "what nobody waits for any more is shut down as soon as it is up"


def _hanging(*arguments: str) -> None:
    """``raysim`` where Ray hangs while it starts; an orderly way out, where it may hang again, has another code."""
    from raysim.cli.main import main

    cluster.START_SECONDS = 0.3
    ray.init = lambda **options: time.sleep(1000)
    atexit.register(os._exit, 9)
    sys.argv = list(arguments)
    main()


def test_a_ray_that_hangs_while_it_starts_ends_the_command(tmp_path):
    settings = ["tracking.uri=none", "data.hospitals=8", "resources.hospitals_per_actor=4"]
    command = ["raysim", "run", "--out", "out", *(f"--set={each}" for each in settings)]
    done = in_a_process(_hanging, command, tmp_path, {"RAYSIM_CACHE": str(tmp_path), "HOME": str(tmp_path)})
    assert done.code == 2
    assert refusal(done.err).startswith("resources: Ray did not start within 0.3 s; see the logs in ")


def _dying() -> None:
    host.take()
    late = time.monotonic() + 0.5
    ray.init = lambda **options: None
    ray_private.ended_parts = lambda: ["raylet"] if time.monotonic() > late else []
    cluster.Keeper({}).start(60)
    time.sleep(600)


def test_a_ray_that_dies_ends_the_command_with_one_line(tmp_path):
    done = in_a_process(_dying, [], tmp_path, {"HOME": str(tmp_path)})
    assert done.code == 2
    assert done.err == (
        "raysim: resources: Ray itself has failed (raylet has ended); finished results are on disk; "
        "continue with 'raysim resume FOLDER'\n"
    )


def test_parts_of_a_ray_that_was_not_started_here_are_not_watched():
    assert not ray.is_initialized()
    assert ray_private.ended_parts() == []

"""Placement by itself: nothing here starts Ray."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.cluster.devices import device_for
from raysim.cluster.placement import Placement, balance, describe, place
from raysim.config.nodes import Node, inventory, parse_nodes, standing_nodes
from raysim.config.sections.resources import OwnActor, ResourcesSection
from raysim.core.errors import ResourceError

ROWS = np.array([30, 8, 21, 0, 14, 9, 17, 40])
NAMES = [f"h{i}" for i in range(8)]

clusters = st.lists(st.tuples(st.integers(1, 16), st.integers(0, 4)), min_size=1, max_size=5).map(
    lambda kinds: [Node(f"n{i}", cpus, gpus) for i, (cpus, gpus) in enumerate(kinds)]
)
federations = st.lists(st.integers(0, 1000), min_size=1, max_size=40).map(np.array)


def held(placement: Placement, nodes: list[Node]) -> list[tuple[float, float]]:
    """What actors hold of each node."""
    totals = np.zeros((len(nodes), 2))
    for actor, node in enumerate(placement.nodes):
        totals[node] += placement.share(actor)
    return [(cpus, gpus) for cpus, gpus in totals]


def fits_devices(shares: list[float], devices: int) -> bool:
    """Whether Ray's own way of handing out GPUs, in this order, each from the fullest that has it, gets by."""
    free = [1.0] * devices
    for share in shares:
        if share >= 1:
            whole = [i for i, left in enumerate(free) if left == 1.0][: int(share)]
            if len(whole) < share:
                return False
            for i in whole:
                free[i] = 0.0
        elif share:
            room = [(left, i) for i, left in enumerate(free) if left + 1e-9 >= share]
            if not room:
                return False
            free[min(room)[1]] -= share
    return True


@given(federations, clusters, st.sampled_from([0, 0.1, 0.25, 0.3, 0.5, 0.6, 1, 2]), st.data())
def test_everybody_is_served_once_and_no_node_holds_more_than_it_has(rows, nodes, gpus, data):
    names = [f"h{i}" for i in range(len(rows))]
    requests = data.draw(
        st.dictionaries(
            st.sampled_from(names),
            st.builds(OwnActor, cpus=st.sampled_from([None, 0.5, 2, 3]), gpus=st.sampled_from([None, 0, 0.4, 1])),
            max_size=3,
        )
    )
    resources = ResourcesSection(gpus_per_actor=gpus, per_hospital=requests)
    try:
        placement = place(rows, resources, nodes, names)
    except ResourceError as error:
        assert str(error).startswith("resources.")  # noqa: PT017
        return
    assert sorted(np.concatenate(placement.served).tolist()) == list(range(len(rows)))
    for node, (cpus, held_gpus) in zip(nodes, held(placement, nodes), strict=True):
        assert cpus <= node.cpus + 1e-9
        assert held_gpus <= node.gpus + 1e-9
    for i, node in enumerate(nodes):
        shares = [placement.share(actor)[1] for actor, home in enumerate(placement.nodes) if home == i]
        assert fits_devices(shares, node.gpus)
    for actor, ids in enumerate(placement.served):
        request = requests.get(names[ids[0]]) if len(ids) == 1 else None
        if request is not None and request.cpus is not None:
            assert placement.share(actor)[0] == request.cpus
        assert len(ids) == 1 or not set(requests) & {names[h] for h in ids.tolist()}


@given(federations, clusters)
def test_as_many_actors_as_have_a_core_of_one_node_each(rows, nodes):
    placement = place(rows, ResourcesSection(), nodes)
    assert len(placement.served) == min(len(rows), sum(int(node.cpus) for node in nodes))
    assert placement.cpus == 1


@given(federations, st.integers(1, 12))
def test_loads_differ_by_no_more_than_the_largest_hospital(rows, actors):
    loads = [int(rows[ids].sum()) + len(ids) for ids in balance(rows, actors)]
    assert max(loads) - min(loads) <= rows.max() + 1


def test_hospitals_without_rows_are_spread_too():
    """Each counts as one row more: 3 to 0 and 5 to 2 are made up for by hospitals without rows."""
    assert [ids.tolist() for ids in balance(np.zeros(6, dtype=int), 3)] == [[0, 3], [1, 4], [2, 5]]
    assert [ids.tolist() for ids in balance(np.array([3, 0, 0, 0, 0, 0, 0]), 2)] == [[0, 5], [1, 2, 3, 4, 6]]
    assert [ids.tolist() for ids in balance(np.array([0, 5, 2, 0, 0, 0]), 2)] == [[1, 5], [0, 2, 3, 4]]


def test_actors_go_to_nodes_in_proportion_to_what_fits_there():
    nodes = [Node("small", 4), Node("large", 8), Node("tiny", 0.5)]
    placement = place(ROWS, ResourcesSection(hospitals_per_actor=2, cpus_per_actor=1), nodes)
    assert sorted(placement.nodes) == [0, 1, 1, 1] or sorted(placement.nodes) == [0, 0, 1, 1]
    one_each = place(ROWS, ResourcesSection(hospitals_per_actor=4, cpus_per_actor=1), nodes[:2])
    assert sorted(one_each.nodes) == [0, 1]
    assert one_each.bundles() == [{"CPU": 1.0}, {"CPU": 1.0}]


def test_a_count_of_actors_shares_cpus_as_nodes_allow():
    # 4 and 2 CPUs for eight actors: 0.6667 each would be 6 and 3, so all nine would fit; 0.75 leaves 5 and 2.
    placement = place(ROWS, ResourcesSection(hospitals_per_actor=1), [Node("a", 4), Node("b", 2)])
    assert placement.cpus == pytest.approx(0.6666, abs=1e-4)
    assert np.bincount(placement.nodes).tolist() in ([5, 3], [6, 2])


@pytest.mark.parametrize(
    ("share", "actors"),
    [(0.1667, 6), (0.167, 6), (0.16667, 6), (0.143, 7), (0.0667, 15), (0.17, 5), (0.3, 3), (0.6, 1)],
)
def test_equal_shares_may_be_rounded(share, actors):
    """Two digits are no rounded sixth: .17 of a card is more than one."""
    node, rows = [Node("a", 16, 1)], np.ones(actors, dtype=int)
    each = ResourcesSection(hospitals_per_actor=1, gpus_per_actor=share, cpus_per_actor=1)
    (bundle,) = place(rows, each, node).bundles()
    assert bundle["GPU"] <= 1
    with pytest.raises(ResourceError, match="GPU"):
        place(np.ones(actors + 1, dtype=int), each, node)
    six = ResourcesSection(hospitals_per_actor=1, cpus_per_actor=share)
    assert len(place(rows, six, [Node("a", 1, 0)]).served) == actors


def test_shares_that_add_up_to_a_node_fit_it_exactly():
    placement = place(
        np.ones(24, dtype=int), ResourcesSection(gpus_per_actor=0.1), [Node("a", 10, 1), Node("b", 14, 2)]
    )
    assert np.bincount(placement.nodes).tolist() == [10, 14]
    assert placement.bundles() == [{"CPU": 10.0, "GPU": 1.0}, {"CPU": 14.0, "GPU": 1.4}]


def test_a_large_centre_has_an_actor_of_its_own_first_and_strands_no_gpu():
    requests = {"h7": OwnActor(cpus=2, gpus=1), "h0": OwnActor(gpus=0.75)}
    resources = ResourcesSection(gpus_per_actor=0.25, per_hospital=requests)
    placement = place(ROWS, resources, [Node("cpu", 3), Node("gpu", 8, 2)], NAMES)
    assert [ids.tolist() for ids in placement.served[:2]] == [[7], [0]]
    assert placement.share(0) == (2, 1)
    assert placement.share(1) == (1, 0.75)
    # The 0.75 leaves a quarter of its device, which one more actor takes: no other fits.
    assert len(placement.served) == 3
    assert placement.share(2) == (1, 0.25)
    assert set(placement.nodes) == {1}


def test_cpu_work_leaves_machines_with_gpus_alone():
    requests = {"h7": OwnActor(cpus=2, gpus=0)}
    nodes = [Node("gpu", 4, 1), Node("cpu", 2)]
    placement = place(ROWS, ResourcesSection(gpus_per_actor=0.25, per_hospital=requests), nodes, NAMES)
    homes = {tuple(ids.tolist()): node for ids, node in zip(placement.served, placement.nodes, strict=True)}
    assert homes.pop((7,)) == 1
    assert list(homes.values()) == [0] * 4


@pytest.mark.parametrize(
    ("resources", "nodes", "message"),
    [
        (
            ResourcesSection(cpus_per_actor=3),
            "3x2cpu",
            r"resources.cpus_per_actor: 0 of 1 actor fit with 3 CPUs each, .* \(nodes: 3 x 2 CPUs\); request less",
        ),
        (
            ResourcesSection(hospitals_per_actor=4, cpus_per_actor=3),
            "3x2cpu",
            r"resources.cpus_per_actor: 0 of 2 actors fit with 3 CPUs each",
        ),
        (
            ResourcesSection(hospitals_per_actor=3, gpus_per_actor=0.6),
            "2x4cpu+1gpu",
            r"resources.gpus_per_actor: 2 of 3 actors fit .* its GPU fraction on one device",
        ),
        (
            ResourcesSection(hospitals_per_actor=4, gpus_per_actor=2),
            "4x4cpu+1gpu",
            r"resources.gpus_per_actor: 0 of 2 actors",
        ),
        # Where GPUs let no actor run, each is said to hold an even part of the CPUs, and one at most.
        (
            ResourcesSection(hospitals_per_actor=4, gpus_per_actor=2),
            "1x1cpu,4x0cpu+1gpu",
            r"resources.gpus_per_actor: 0 of 2 actors fit with 0.5 CPUs \+ 2 GPUs each, ",
        ),
        (
            ResourcesSection(hospitals_per_actor=4, gpus_per_actor=2),
            "4x4cpu+1gpu",
            r"resources.gpus_per_actor: 0 of 2 actors fit with 1 CPU \+ 2 GPUs each, ",
        ),
        (
            ResourcesSection(gpus_per_actor=0.5),
            "4cpu",
            r"resources.gpus_per_actor: 1 actor x 0.5 need 0.5 GPUs, but there are 0;",
        ),
        (
            ResourcesSection(gpus_per_actor=1.5),
            "4cpu+2gpu",
            r"resources.gpus_per_actor: 1.5 is more than one GPU, but not a w",
        ),
        (
            ResourcesSection(per_hospital={"h1": OwnActor(gpus=2.5)}),
            "4cpu+4gpu",
            r"resources.per_hospital.h1.gpus: 2.5 is more than one GPU, but not a whole number; use 3",
        ),
        (
            ResourcesSection(device="cuda"),
            "4cpu+1gpu",
            r"resources.gpus_per_actor: 0 with resources.device: cuda leaves actors no GPU; set a share",
        ),
        (
            ResourcesSection(device="cuda", gpus_per_actor=0.25, per_hospital={"h1": OwnActor(gpus=0)}),
            "4cpu+1gpu",
            r"resources.per_hospital.h1: its actor gets no GPU, although resources.device is cuda; set gpus to a share",
        ),
        (
            ResourcesSection(device="cuda", per_hospital={"h1": OwnActor(cpus=1)}),
            "4cpu+1gpu",
            r"resources.per_hospital.h1: its actor gets no GPU, although resources.device is cuda; set gpus to a share",
        ),
        (
            ResourcesSection(per_hospital={"h1": OwnActor(cpus=5)}),
            "4cpu,4cpu",
            r"resources.per_hospital.h1: no node has 5 CPUs free \(nodes: 2 x 4 CPUs\); request less",
        ),
        (
            ResourcesSection(per_hospital={"h11": OwnActor()}),
            "4cpu",
            r"resources.per_hospital.h11: no such hospital; did you",
        ),
    ],
)
def test_what_no_node_can_hold_is_named(resources, nodes, message):
    with pytest.raises(ResourceError, match=message):
        place(ROWS, resources, parse_nodes(nodes), NAMES)


def test_everybody_with_an_actor_of_their_own():
    requests = {name: OwnActor(cpus=0.5) for name in NAMES}
    placement = place(ROWS, ResourcesSection(per_hospital=requests), [Node("a", 4)], NAMES)
    assert sorted(ids.tolist() for ids in placement.served) == [[h] for h in range(8)]


@pytest.mark.parametrize("text", ["", "16", "2x", "xcpu", "1x8cpu+gpu", "4cpu;2cpu"])
def test_nodes_that_cannot_be_read_are_refused(text):
    with pytest.raises(ValueError, match="write for example 2x16cpu"):
        parse_nodes(text)


def test_nodes_of_a_cluster_begin_with_ones_own_and_leave_out_the_dead():
    def entry(name: str, address: str, alive: bool = True, **has: float) -> dict[str, object]:
        return {"NodeID": name, "NodeManagerAddress": address, "Alive": alive, "Resources": has}

    described = [entry("a", "10.0.0.3", CPU=8.0, GPU=1.0), entry("b", "10.0.0.2", alive=False), entry("c", "10.0.0.1")]
    nodes = standing_nodes(described, "a")
    assert nodes == (Node("10.0.0.3", 8, 1), Node("10.0.0.1", 0, 0))
    assert inventory(nodes) == "1 x 8 CPUs + 1 GPU, 1 x 0 CPUs"


def test_actors_and_hospitals_are_counted_in_words():
    texts = [describe(sizes, nodes) for sizes, nodes in (([1], 1), ([6], 1), ([2, 2], 1), ([1, 1], 2), ([2, 1], 1))]
    assert texts == [
        "1 actor, 1 hospital",
        "1 actor, 6 hospitals",
        "2 actors, 2 hospitals each",
        "2 actors on 2 nodes, 1 hospital each",
        "2 actors, 1 to 2 hospitals each",
    ]


@pytest.mark.parametrize("parts", [3, 6, 7, 9, 12])
def test_parts_of_a_gpu_fill_it(parts):
    """Rounded up, six sixths of a GPU would be more than one."""
    resources = ResourcesSection(hospitals_per_actor=1, gpus_per_actor=1 / parts)
    placement = place(np.ones(parts, dtype=int), resources, [Node("a", parts, 1)])
    assert len(placement.served) == parts
    assert placement.gpus * parts <= 1


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [("auto", 0.25, "auto"), ("auto", 0.0, "cpu"), ("cpu", 0.25, "cpu"), ("cuda", 1.0, "cuda")],
)
def test_only_actors_with_a_share_look_for_a_gpu(device, gpus, expected):
    assert device_for(device, gpus) == expected

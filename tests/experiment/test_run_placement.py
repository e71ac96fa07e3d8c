"""How many runs are run side by side."""

from __future__ import annotations

from typing import Any

import pytest

from raysim.config.nodes import Node
from raysim.config.sections.resources import ResourcesSection
from raysim.core.errors import ResourceError
from raysim.experiment.run_placement import (
    MODEL_COPIES,
    PROCESS_BYTES,
    SMALL_CELLS,
    SMALL_MODELS,
    SMALL_PRODUCTS,
    Load,
    at_once,
    fits_here,
)

NODE = Node("here", 4.0, 0)


@pytest.mark.parametrize(
    ("resources", "nodes", "load", "expected"),
    [
        ({}, [NODE], Load(8, 1000, 100), 4),
        ({}, [NODE], Load(3, 1000, 100), 3),
        ({}, [NODE], Load(2, 1000, 100), 2),
        ({}, [NODE], Load(1, 1000, 100), 1),
        ({}, [Node("large", 64.0, 0)], Load(8, 1000, 100), 1),
        ({}, [Node("half", 0.5, 0)], Load(8, 1000, 100), 1),
        ({}, [NODE, NODE], Load(8, 1000, 100), 1),
        ({}, [NODE], Load(8, SMALL_CELLS, SMALL_MODELS), 4),
        ({}, [NODE], Load(8, SMALL_CELLS + 1, 100), 1),
        ({}, [NODE], Load(8, 1000, SMALL_MODELS + 1), 1),
        ({"cpus_per_actor": 2}, [NODE], Load(8, 1000, 100), 2),
        ({"hospitals_per_actor": 3}, [NODE], Load(8, 1000, 100), 1),
        ({"gpus_per_actor": 0.5}, [NODE], Load(8, 1000, 100), 1),
        ({"device": "cuda"}, [NODE], Load(8, 1000, 100), 1),
        ({"data": "shipped"}, [NODE], Load(8, 1000, 100), 1),
        ({"per_hospital": {"a": {"cpus": 1}}}, [NODE], Load(8, 1000, 100), 1),
        ({"autoscale": "2x4cpu"}, [NODE], Load(8, 1000, 100), 1),
        ({"runs_at_once": 1}, [NODE], Load(8, 1000, 100), 1),
        ({"runs_at_once": 3}, [NODE, NODE], Load(8, SMALL_CELLS + 1, 100), 3),
        ({"runs_at_once": 9}, [NODE], Load(2, 1000, 100), 2),
        ({}, [Node("tight", 4.0, memory=4 * Load(8, 1000, 100).memory)], Load(8, 1000, 100), 4),
        ({}, [Node("tight", 4.0, memory=4 * Load(8, 1000, 100).memory - 1)], Load(8, 1000, 100), 3),
        ({}, [Node("tight", 4.0, memory=2 * Load(8, 1000, 100).memory - 1)], Load(8, 1000, 100), 1),
        ({"runs_at_once": 3}, [Node("tight", 4.0, memory=1.0)], Load(8, 1000, 100), 3),
    ],
)
def test_runs_are_run_side_by_side_where_that_pays(
    resources: dict[str, Any], nodes: list[Node], load: Load, expected: int
):
    section = ResourcesSection.model_validate({"runs_at_once": "auto"} | resources)
    assert at_once(section, nodes, load) == expected


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"runs_at_once": 5}, r"^resources\.runs_at_once: 5 actors of 1 CPUs do not fit on this machine, which has 4"),
        ({"runs_at_once": 3, "cpus_per_actor": 2}, "3 actors of 2 CPUs do not fit"),
        (
            {"runs_at_once": 2, "gpus_per_actor": 1},
            "resources.runs_at_once: 2 is not possible with gpus_per_actor, device: cuda or per_hospital",
        ),
    ],
)
def test_more_runs_at_once_than_can_be_are_refused(resources: dict[str, Any], message: str):
    with pytest.raises(ResourceError, match=message):
        at_once(ResourcesSection.model_validate(resources), [NODE], Load(8, 1000, 100))


def test_memory_is_the_process_and_all_rows_and_models_in_eight_bytes():
    assert Load(1, 1000, 10).memory == PROCESS_BYTES + 8000 + 80 * MODEL_COPIES


@pytest.mark.parametrize(
    ("resources", "load", "products", "expected"),
    [
        ({}, Load(1, SMALL_CELLS, SMALL_MODELS), SMALL_PRODUCTS, True),
        ({}, Load(2, 1000, 100), 1000, False),
        ({}, Load(1, SMALL_CELLS + 1, 100), 1000, False),
        ({}, Load(1, 1000, SMALL_MODELS + 1), 1000, False),
        ({}, Load(1, 1000, 100), SMALL_PRODUCTS + 1, False),
        ({"head_start": False}, Load(1, 1000, 100), 1000, False),
        ({"hospitals_per_actor": 3}, Load(1, 1000, 100), 1000, False),
        ({"cpus_per_actor": 1}, Load(1, 1000, 100), 1000, False),
        ({"dashboard": True}, Load(1, 1000, 100), 1000, False),
        ({"gpus_per_actor": 0.5}, Load(1, 1000, 100), 1000, False),
        ({"device": "cuda"}, Load(1, 1000, 100), 1000, False),
        ({"data": "shipped"}, Load(1, 1000, 100), 1000, False),
        ({"per_hospital": {"a": {"cpus": 1}}}, Load(1, 1000, 100), 1000, False),
        ({"autoscale": "2x4cpu"}, Load(1, 1000, 100), 1000, False),
    ],
)
def test_small_runs_that_ask_for_nothing_are_run_in_this_process(
    resources: dict[str, Any], load: Load, products: float, expected: bool
):
    assert fits_here(ResourcesSection.model_validate(resources), load, products) is expected

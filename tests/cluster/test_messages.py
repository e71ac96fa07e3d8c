"""Messages between the coordinator and actors."""

from __future__ import annotations

import pickle

import numpy as np

from raysim.cluster.messages import SMALL, Joined


def test_memory_arrives_as_it_was_whatever_its_arrays():
    rng = np.random.default_rng(1)
    states: dict[int, dict[str, np.ndarray]] = {
        3: {"model": rng.random(5).astype(np.float32), "kept margins": np.arange(6).reshape(3, 2)},
        1: {"kept margins": np.zeros((0, 2), np.int64), "kept grown": np.array(4)},
        2: {},
        7: {"model": rng.random(SMALL).astype(np.float32), "kept grown": np.array(2.5), "kept row": np.arange(2)},
    }
    arrived = pickle.loads(pickle.dumps(Joined(states)))
    assert list(arrived) == list(states)
    for hospital, arrays in states.items():
        assert set(arrived[hospital]) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(arrived[hospital][name], array, strict=True)

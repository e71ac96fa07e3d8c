"""A private run decides each thing once: what has been worked out is handed down."""

from __future__ import annotations

import cProfile
from pathlib import Path

import raysim
from raysim.config import overrides, paths, plugins, reading
from raysim.engine.privacy import calibration
from raysim.experiment import idle_keys, jobs
from raysim.privacy import accountant
from raysim.training import losses

DECISIONS = (
    calibration.resolved,
    calibration.parameters_of,
    accountant.calibrated,
    jobs.make_job,
    plugins._made_strategy,
    plugins._made_selection,
    plugins._made_source,
    losses.default_rate,
    reading.read_tree,
    reading.checked,
    paths.anchored,
    overrides.parsed,
)


def test_a_private_run_of_two_rounds_decides_each_thing_once(tmp_path: Path) -> None:
    """Only the paths of data are made absolute twice: those of a source's own defaults when it has been made."""
    tree = {
        "data": {"source": "synthetic", "hospitals": 6, "rows": 400},
        "strategy": "fedavg",
        "selection": "all",
        "training": {"rounds": 2},
        # Noise that no other test asks for: what is resolved is kept for the process.
        "privacy": {"unit": "hospital", "epsilon": 3.90625, "delta": 0.01},
        "tracking": {"uri": "none"},
    }
    idle_keys._defaults()  # the defaults of all configurations are of the process, and made once in it
    with cProfile.Profile() as profile:
        raysim.run(tree, out=tmp_path / "out", in_process=True)
    calls = {each.code: each.callcount for each in profile.getstats()}
    counts = {each.__name__: calls.get(each.__code__, 0) for each in DECISIONS}
    assert counts == {each.__name__: 2 if each is paths.anchored else 1 for each in DECISIONS}

"""A private run decides each thing once: what has been worked out is handed down."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import raysim
from raysim.config import overrides, paths, reading
from raysim.engine.privacy import calibration
from raysim.experiment import jobs
from raysim.privacy import accountant
from raysim.training import losses

DECISIONS = (
    calibration.settled,
    calibration.terms_of,
    accountant.calibrated,
    jobs.make_job,
    losses.default_rate,
    reading.read_tree,
    reading.checked,
    paths.anchored,
    overrides.parsed,
)


def test_a_private_run_of_two_rounds_decides_each_thing_once(tmp_path: Path) -> None:
    """Only the paths of data are made absolute twice: those of a source's own defaults when it has been made."""
    tree = {
        "data": {"source": "synthetic", "hospitals": 6},
        "strategy": "fedavg",
        "selection": "all",
        "training": {"rounds": 2},
        # Noise that no other test asks for: what is settled is kept for the process.
        "privacy": {"unit": "hospital", "epsilon": 3.90625, "delta": 0.01},
        "tracking": {"uri": "none"},
    }
    names, counts = {each.__code__: each.__name__ for each in DECISIONS}, Counter[str]()

    def seen(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in names:
            counts[names[frame.f_code]] += 1

    sys.setprofile(seen)
    try:
        raysim.run(tree, out=tmp_path / "out", in_process=True)
    finally:
        sys.setprofile(None)
    assert counts == {name: 2 if name == "anchored" else 1 for name in names.values()}

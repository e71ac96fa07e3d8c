"""How far one hospital can move the sums of a round, for every strategy under every guarantee for hospitals.

The neighbouring federation has other rows at one hospital, or rows of which nothing finite can be learned, so that this
hospital contributes nothing. The second run is given the sums of the first, as in
:mod:`tests.privacy.test_sensitivity`. Noise is off: sums are held against the clip that noise is measured in.
"""

from __future__ import annotations

import tempfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.config.sections.privacy import PrivacySection
from raysim.core import registry
from raysim.core.exact import FRACTION_BITS
from raysim.data.federation import Federation
from raysim.engine.job import Job
from raysim.engine.messages.update_sums import number_rows
from raysim.engine.privacy import release
from raysim.engine.privacy.release import release_of
from raysim.engine.server.job_checks import check_job
from raysim.privacy.clip import clipped
from raysim.strategies.selections.sampling import All
from tests.conftest import fitting, job_of, store, with_patients
from tests.privacy.test_sensitivity import History
from tests.privacy.test_strategies_by_mode import MODES, RUNS

CLIP, HOSPITALS, ROWS = 0.3, 7, 6
PERSONAL = {"fine_tuning", "ditto", "local", "chip", "per_fedavg"}
"""Who trains beside what is sent, which ends where nothing finite comes of it."""

SIGNED = {"hierarchical", "clustered"}
"""Who asks for statistics of rows before the first round, which no hospital computes of rows that are not finite."""

GUARANTEES = {
    name: (guarantee, secure)
    for name, (guarantee, secure) in MODES.items()
    if guarantee is not None and guarantee["unit"] == "hospital"
}


def neighbours(folder: Path, seed: int, hospital: int, scale: float | None) -> tuple[Federation, Federation]:
    """Federations that differ by what a hospital trains on: rows ``scale`` times as large; None: no finite ones."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(2 * HOSPITALS * ROWS, 3)), rng.integers(2, size=2 * HOSPITALS * ROWS)
    y[:2] = 0, 1
    starts = np.arange(HOSPITALS) * 2 * ROWS
    bounds = starts[:, None] + np.array([0, ROWS, ROWS, 2 * ROWS])
    theirs = slice(int(starts[hospital]), int(starts[hospital]) + ROWS)
    other, labels = X.copy(), y.copy()
    other[theirs] = np.nan if scale is None else scale * rng.normal(size=(ROWS, 3))
    labels[theirs] = 1 - labels[theirs]
    made = []
    for name, features, classes in (("one", X, y), ("other", other, labels)):
        (folder / name).mkdir()
        made.append(with_patients(store(folder / name, features, classes, bounds)))
    return made[0], made[1]


def job_with(federation: Federation, name: str, mode: str, **keys: Any) -> Job:
    """A job of the strategy ``name`` under a guarantee for hospitals, without noise."""
    cls = registry.load("strategies", name, "strategy.name")
    given: dict[str, Any] = {"weights": "uniform"} if "weights" in cls.__dataclass_fields__ else {}
    given |= {"clusters": 2} if "clusters" in cls.__dataclass_fields__ else {}
    how, secure = GUARANTEES[mode]
    made = job_of(federation, cls(**given), selection=All(), rounds=2, epochs=1, batch_size=0, learning_rate=0.5)
    section = PrivacySection(**{**how, "noise_multiplier": 0.0, "delta": 1e-3, "clip": CLIP, **keys})
    job = replace(fitting(made, federation), privacy=section, secure=secure)
    check_job(job, federation)
    return job


def check_hospital(name: str, mode: str, seed: int, hospital: int, scale: float | None, **keys: Any) -> None:
    """Run both federations, and hold every round's sums against the clip."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        one, other = neighbours(Path(folder), seed, hospital, scale)
        # A run ends where figures of rows are taken that are not finite. What was summed before must hold, too.
        monkeypatch.setattr("raysim.engine.client.evaluating._check_finite", lambda *_: None)
        first = History()
        first.outcome(one, job_with(one, name, mode, **keys), monkeypatch)
        second = History(first)
        second.outcome(other, job_with(other, name, mode, **keys), monkeypatch)
    assert len(first.sums) == len(second.sums)
    assert len(first.sums) >= 2 or name == "local"
    twice = 1.0 if scale is None else 2.0  # rows that were replaced were there before
    for (plan, units), (_, others) in zip(first.sums, second.sums, strict=True):
        problem, size = plan.problem, units.shape[1]
        if problem.sent is None:
            assert not (units - others).any()
            continue
        moved = (units - others).astype(np.float64) * 2.0**-FRACTION_BITS
        rounding = np.sqrt(units.size) * 2.0**-FRACTION_BITS / float(problem.sent.weight.max())
        if plan.bit:
            moved, bit = moved[:-1], moved[-1]
            assert np.linalg.norm(bit) <= 1.0  # each is 1/2 or -1/2, also of an update that is not finite
        assert len(moved) == problem.sent.sums + number_rows(problem, size)
        beside = problem.sent.weight if problem.sent.extra_weight is None else problem.sent.extra_weight
        moved[: problem.sent.sums] /= float(problem.sent.weight.max())
        moved[problem.sent.sums :] /= float(beside.max())
        if problem.spread:
            twice = 2.0  # it may have chosen another model
        assert np.linalg.norm(moved) <= twice * release_of(plan).clip + rounding


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name in RUNS for mode in GUARANTEES if mode in RUNS[name]])
def test_one_hospital_moves_sums_by_no_more_than_the_clip(name, mode):
    rng = np.random.default_rng(zlib.crc32(f"{name} {mode}".encode()))
    for scale in (100.0,) if name in PERSONAL | SIGNED else (100.0, None):
        check_hospital(name, mode, int(rng.integers(2**16)), int(rng.integers(HOSPITALS)), scale)


@pytest.mark.parametrize("scale", [None, 0.1, 100.0])
def test_with_a_clip_that_moves_it_is_that_of_the_round(scale):
    check_hospital("fedavg", "hospital", 5, 5, scale, adaptive={"bits": 5.0})


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "qfedavg"])  # the program of ifca clips by itself, too
def test_an_update_that_is_not_clipped_is_seen(monkeypatch, name):
    check_hospital(name, "hospital", 1, 2, 100.0)
    monkeypatch.setattr(release, "clipped", lambda vectors, clip: clipped(vectors, 100.0 * clip))
    with pytest.raises(AssertionError):
        check_hospital(name, "hospital", 1, 2, 100.0)

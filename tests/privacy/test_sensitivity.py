"""How far one patient can move what leaves hospitals, held against the sensitivity in the ledger.

Two federations differ by one patient (:mod:`tests.privacy.test_hospital_sensitivity`: by one hospital). The second run
is given, wherever something leaves a hospital with noise, what the first one released, as an adversary sees one
history: what it would have released itself is compared. Noise is off, and its deviation is measured, so that a
sensitivity is that deviation over the multiplier that the ledger composes.
"""

from __future__ import annotations

import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.privacy import NoisyStatistic, PrivacySection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.core.exact import FRACTION_BITS
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome
from raysim.engine.messages.plan import ModelSpec, ProgramCall
from raysim.engine.messages.program_sums import SumLayout
from raysim.engine.privacy import noisy_answers
from raysim.engine.privacy.noisy_statistics import events, noise_on
from raysim.engine.privacy.release import release_of
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.engine.server.remote import RemoteHospitals
from raysim.privacy import noisy_sums
from raysim.privacy.events import Laplace
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.selections.power_of_choice import PowerOfChoice
from tests.conftest import MLP, TREES, job_of, store, with_patients
from tests.privacy.test_strategies_by_mode import RUNS

KINDS = ("label_counts", "label_presence", "feature_counts", "feature_quantiles", "signature", "loss", "metrics")
HOSPITALS = 4

Key = tuple[Any, ...]


class History:
    """What leaves hospitals in a run, noise off; ``seen`` is that of the run whose history the server is shown."""

    def __init__(self, seen: History | None = None) -> None:
        self.seen = seen
        self.releases: dict[Key, tuple[np.ndarray, float]] = {}
        """By purpose and key: the sum, and the scale of its noise."""
        self.exact: list[Any] = []
        """Answers that are sent exactly, in order: a guarantee says nothing of these, and names them."""
        self.sums: list[tuple[Any, np.ndarray]] = []
        """Each round's plan and the sums of its updates."""
        self.called: list[tuple[ProgramCall, np.ndarray]] = []
        """Each call of a client program and its sums."""
        self.states: list[Any] = []
        """What hospitals remembered when they were sent each message."""

    def outcome(self, federation: Federation, job: Job, monkeypatch: pytest.MonkeyPatch) -> Outcome:
        """Run the job."""
        pool: Any = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
        round_of, really = pool.round, noisy_sums.noisy_sum

        def releases(*arguments: Any) -> np.ndarray:
            with monkeypatch.context() as patched:
                values = []
                for sampled in (0.0, 1.0):
                    patched.setattr(noisy_sums, "laplaces", lambda origin, size, *key, x=sampled: np.full(size, x))
                    patched.setattr(noisy_sums, "normals", lambda origin, size, *key, x=sampled: np.full(size, x))
                    values.append(really(*arguments))
            key = arguments[5:]
            assert key not in self.releases, "two releases have the same noise"
            self.releases[key] = values[0], float(np.mean(values[1] - values[0]))
            return values[0] if self.seen is None else self.seen.releases[key][0]

        def spied(plan: Any, states: Any) -> Any:
            if plan.at_once:  # see answers
                return round_of(plan, states)
            self.states.append(states)
            if self.seen is not None and sent_is_kept(plan):
                states = self.seen.states[len(self.states) - 1]
            partials, later = round_of(plan, states)
            if plan.problem is not None and partials[0].units is not None:
                self.sums.append((plan, partials[0].units.copy()))
                if self.seen is not None:
                    partials[0].units = self.seen.sums[len(self.sums) - 1][1]
            if plan.call is not None and plan.problem is None:
                self.called.append((plan.call, partials[0].sums.copy()))
                if self.seen is not None:
                    partials[0].sums = self.seen.called[len(self.called) - 1][1]
            return partials, later

        ask = RemoteHospitals.answers

        def answers(hospitals: Any, call: Any, *rest: Any) -> Any:
            answered = ask(hospitals, call, *rest)
            if noise_on(job.privacy, call.program.name) is None:
                self.exact.append(answered)
                return answered if self.seen is None else self.seen.exact[len(self.exact) - 1]
            return answered

        with monkeypatch.context() as patched:
            patched.setattr(noisy_answers, "noisy_sum", releases)
            patched.setattr(RemoteHospitals, "answers", answers)
            pool.round = spied
            *_, outcome = JobRun(pool, job).events()
        assert isinstance(outcome, Outcome)
        return outcome


def sent_is_kept(plan: Any) -> bool:
    """Whether what hospitals remember comes of noisy steps, as MOON's last local model or FedPer's own part: that is of
    the history, too, for each step's noise covers all that it moves.

    Under a guarantee for patients, that is; what is clipped after training is not what is remembered.
    """
    release = release_of(plan)
    if release is None or release.patients is None:
        return False
    chain = plan.problem.chain
    own_part = plan.private is not None and chain[-1].upload is not None
    return own_part or any(phase.upload is not None and phase.training.keep for phase in chain)


def neighbours(
    folder: Path, seed: int, where: tuple[int, str], scale: float, classes: int = 2
) -> tuple[Federation, Federation]:
    """A federation of patients with one to three rows, and the same without the last patient of a hospital's part.

    The label has so many ``classes``; 0: it is a number.
    """
    rng, (hospital, part) = np.random.default_rng(seed), where
    rows: list[tuple[int, int, int]] = []  # hospital, part, patient
    for h in range(HOSPITALS):
        for p in range(3):
            for _ in range(int(rng.integers(2, 5)) if p != 1 else 0):
                rows += [(h, p, len(rows))] * int(rng.integers(1, 4))
    home = np.array(rows)
    n = len(home)
    X = rng.normal(size=(n, 3))
    y = rng.integers(classes, size=n) if classes else scale * rng.normal(size=n)
    y[:classes] = range(classes)
    theirs = (home[:, 0] == hospital) & (home[:, 1] == ("train", "validation", "test").index(part))
    gone = home[:, 2] == home[theirs, 2].max()
    X[gone] *= scale
    made = []
    for name, stay in (("with", np.ones(n, dtype=bool)), ("without", ~gone)):
        (folder / name).mkdir()
        counts = np.array(
            [[np.sum(stay & (home[:, 0] == h) & (home[:, 1] == p)) for p in range(3)] for h in range(HOSPITALS)]
        )
        stops = np.cumsum(counts.ravel())
        bounds = np.concatenate([[0], stops])[np.arange(HOSPITALS)[:, None] * 3 + np.arange(4)]
        stored = store(folder / name, X[stay], y[stay], bounds, classes)
        np.save(stored.folder / "people.npy", home[stay, 2])
        made.append(with_patients(stored))
    return made[0], made[1]


def guarantee(mode: str, normal: bool, figures: bool = True, sampled: bool = True) -> PrivacySection:
    noise = {"noise_multiplier": 3.0} if normal else {"epsilon": 0.5}
    kinds = ("sizes", *KINDS) if figures else ("sizes", *KINDS[:-1])
    return PrivacySection(
        unit="patient",
        mode=mode,
        noise_multiplier=0.0,
        delta=1e-3,
        clip=0.3,
        sizes="noisy",
        statistics=dict.fromkeys(kinds, noise),
        **({"rate": 0.7} if mode == "pooled" and sampled else {}),
    )


def check_neighbours(
    job_on: Callable[[Federation], Job], seed: int, where: tuple[int, str], scale: float, classes: int = 2
) -> set[str]:
    """Run a job on two neighbouring federations and hold every release against its event; returns their kinds."""
    with tempfile.TemporaryDirectory() as folder:
        one, other = neighbours(Path(folder), seed, where, scale, classes)
        return check_pair(job_on, one, other, where[0])


def check_pair(job_on: Callable[[Federation], Job], one: Federation, other: Federation, hospital_of: int) -> set[str]:
    """As above, of two federations that differ by one patient of the hospital ``hospital_of``."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        first = History()
        outcome = first.outcome(one, job_on(one), monkeypatch)
        second = History(first)
        second.outcome(other, job_on(other), monkeypatch)
    section = job_on(one).privacy
    assert section is not None
    assert first.releases.keys() == second.releases.keys()
    ledger, times = events(section, outcome.ledger), Counter[tuple[str, int]]()
    for key, (sums, deviation) in first.releases.items():
        kind, hospital = key[0].removeprefix("dp "), key[2]
        event = ledger[kind]
        times[kind, hospital] += 1
        moved = sums - second.releases[key][0]
        length = np.abs(moved).sum() if isinstance(event, Laplace) else np.linalg.norm(moved)
        assert length <= deviation / event.multiplier * (1 + 1e-9), kind
        assert hospital == hospital_of or length == 0, kind
    assert all(count <= ledger[kind].count for (kind, _), count in times.items())
    check_updates(first, second, hospital_of, section.clip)
    check_calls(first, second, section.clip)
    return {kind for kind, _ in times} | ({"update"} if first.sums or first.called else set())


def check_updates(first: History, second: History, hospital: int, clip: float) -> None:
    """Of one step each: the sums move by at most a clipped gradient over the public divisor."""
    assert len(first.sums) == len(second.sums)
    for (plan, units), (_, others) in zip(first.sums, second.sums, strict=True):
        moved = np.linalg.norm((units - others).astype(np.float64)) * 2.0**-FRACTION_BITS
        there = plan.ids == hospital
        if plan.problem.sent is None or not there.any():
            assert moved == 0
            continue
        patients = release_of(plan).patients
        rate = plan.problem.training.learning_rate or plan.work.optimizer.learning_rate
        step = 1.0 if patients.pooled else rate / patients.expected[hospital]
        weight = float(np.linalg.norm(plan.problem.sent.weight[there]))
        rounding = np.sqrt(units.size) * 2.0**-FRACTION_BITS
        assert moved <= weight * step * clip * (1 + 1e-6) + rounding


def check_calls(first: History, second: History, clip: float) -> None:
    """All sums of a call together move by at most the clip."""
    assert len(first.called) == len(second.called)
    for (call, units), (_, others) in zip(first.called, second.called, strict=True):
        layout = SumLayout(call.program)
        moved = np.concatenate(
            [(units - others)[layout.places[name]] * 2.0**-send.bits for name, send in layout.summed.items()]
        )
        steps = np.array([2.0**-send.bits for send in layout.summed.values()])
        assert np.linalg.norm(moved) <= clip * (1 + 1e-9) + np.sqrt(len(moved)) * steps.max()
        np.testing.assert_array_equal(units[-layout.groups :], others[-layout.groups :])


def job_with(
    name: str, mode: str, normal: bool, selection: Any = None, figures: bool = True
) -> Callable[[Federation], Job]:
    """A job of the strategy ``name`` on a federation; ``figures``: whether they are released with noise, too."""
    strategy = registry.load("strategies", name, "strategy.name")()
    if hasattr(strategy, "clusters"):
        strategy = replace(strategy, clusters=2)

    def on(federation: Federation) -> Job:
        made = job_of(federation, strategy, selection=selection, rounds=2, epochs=1, batch_size=0, every=1)
        return replace(made, privacy=guarantee(mode, normal, figures, not strategy.uses_programs()))

    return on


def fitting_model(job_on: Callable[[Federation], Job]) -> Callable[[Federation], Job]:
    """The job, with layers or trees where its model does not fit its strategy; ``ConfigError`` where none fits."""
    with tempfile.TemporaryDirectory() as folder:
        one, _ = neighbours(Path(folder), 0, (0, "train"), 1.0)
        refused = []
        made: list[Callable[[Federation], Job]] = [job_on, *(partial(_with, job_on, each) for each in (MLP, TREES))]
        for fitted in made:
            try:
                check_job(fitted(one), one)
            except ConfigError as error:
                refused.append(error)
            else:
                return fitted
    # A model that does not fit tells nothing of the strategy: then what another was refused for counts.
    raise next((each for each in reversed(refused) if not str(each).startswith("model.")), refused[0])


def _with(job_on: Callable[[Federation], Job], model: Any, federation: Federation) -> Job:
    job = job_on(federation)
    return replace(job, work=replace(job.work, model=model))


def sampled(name: str, mode: str) -> list[tuple[int, tuple[int, str], float]]:
    """A seed, the hospital and part of the patient, and how large the patient's rows are, for each part."""
    rng = np.random.default_rng(zlib.crc32(f"{name} {mode}".encode()))
    scales = rng.permutation([100.0, rng.choice([0.1, 1.0])])
    return [
        (int(rng.integers(2**16)), (int(rng.integers(HOSPITALS)), part), float(scale))
        for part, scale in zip(("train", "test"), scales, strict=True)
    ]


STAY = {"fedper", "fedrep", "fedsoft", "local"}
"""Whose models stay at hospitals, so that their figures are not released with noise; all else is."""


@pytest.mark.parametrize(
    ("name", "mode", "normal"),
    [
        # Both kinds of noise for each strategy that is run in both modes, and in each mode: not all four.
        (name, mode, (turn + len(mode)) % 2 == 0)
        for turn, name in enumerate(RUNS)
        for mode in ("pooled", "local")
        if mode in RUNS[name]
    ],
)
def test_one_patient_changes_all_messages_by_at_most_the_sensitivity_of_the_ledger(name, mode, normal):
    job_on = fitting_model(job_with(name, mode, normal, figures=name not in STAY))
    for seed, where, scale in sampled(name, mode):
        kinds = check_neighbours(job_on, seed, where, scale)
        assert kinds >= ({"size"} if name in STAY else {"size", "metrics"})
        assert "update" in kinds or name == "local"


@pytest.mark.parametrize("normal", [False, True], ids=["laplace", "normal"])
@pytest.mark.parametrize("classes", [3, 0], ids=["classes", "real"])
def test_one_patient_changes_figures_of_other_labels_by_at_most_the_sensitivity_of_the_ledger(classes, normal):
    noise = {"noise_multiplier": 3.0} if normal else {"epsilon": 0.5}
    kinds = {"metrics": noise | ({} if classes else {"range": (-2.0, 3.0)})}
    guaranteed = guarantee("local", normal).model_copy(
        update={"statistics": {kind: NoisyStatistic(**keys) for kind, keys in kinds.items()}}
    )
    model = None if classes else ModelSpec("linear_regression", None, {}, "default")

    def job_on(federation: Federation) -> Job:
        made = job_of(federation, FedAvg(), rounds=2, batch_size=0, every=1, model=model)
        return replace(made, privacy=guaranteed)

    for seed, where, scale in (*sampled(str(classes), "local"), *sampled(str(classes), "again")):
        assert check_neighbours(job_on, seed, where, scale, classes) == {"size", "metrics", "update"}


@pytest.mark.parametrize("name", sorted(STAY))
def test_figures_of_models_that_stay_at_hospitals_are_refused(name):
    """Other strategies are held against the ledger, or refused: see :mod:`tests.privacy.test_strategies_by_mode`."""
    for mode in RUNS[name] & {"pooled", "local"}:
        with pytest.raises(ConfigError, match=r"privacy.statistics.metrics: .*stay at hospitals"):
            check_neighbours(fitting_model(job_with(name, mode, False)), 0, (0, "train"), 1.0)


@pytest.mark.parametrize("normal", [False, True], ids=["laplace", "normal"])
@pytest.mark.parametrize(
    ("name", "selection", "keys", "kinds"),
    [
        ("clustered", None, {}, {"signature"}),
        ("clust_psi", None, {}, {"label_counts"}),
        ("clust_psi", None, {"by": ("attributes",)}, {"feature_quantiles", "feature_counts"}),
        ("fedavg", PowerOfChoice(), {}, {"loss"}),
    ],
)
def test_every_noisy_kind_is_among_what_is_tried(name, selection, keys, kinds, normal):
    job_on = job_with(name, "local", normal, selection)

    def on(federation: Federation) -> Job:
        job = job_on(federation)
        return replace(job, strategy=replace(job.strategy, **keys))

    assert kinds | {"update"} <= check_neighbours(on, 3, (1, "train"), 100.0)


@pytest.mark.parametrize("clip", [2.0, 1e9])
def test_a_clip_that_is_left_out_or_another_than_the_noise_is_for_is_seen(monkeypatch, clip):
    job_on, real = job_with("clustered", "local", True), noisy_sums.clipped_sum
    check_neighbours(job_on, 5, (2, "train"), 1.0)

    def loose(rows: Any, unit: Any, how: Any, bounds: noisy_sums.Bounds) -> Any:
        return real(rows, unit, how, noisy_sums.Bounds(clip * bounds.absolute, clip * bounds.euclidean))

    monkeypatch.setattr(noisy_sums, "clipped_sum", loose)
    seen = 0
    for seed in range(4):
        for part in ("train", "test"):
            try:
                check_neighbours(job_on, seed, (seed % HOSPITALS, part), 100.0)
            except AssertionError:
                seen += 1
    assert seen

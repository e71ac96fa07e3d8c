"""Checkpoints: a job that goes on from one ends with the same bits, and damage is noticed."""

from __future__ import annotations

import json
import re
import resource
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.evaluation import EvaluationSection
from raysim.core import registry
from raysim.core.errors import ConfigError, ResourceError
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome
from raysim.engine.messages.plan import ModelSpec, Work
from raysim.engine.packing import pack, pack_state, unpack, unpack_state
from raysim.engine.run_state import RunState
from raysim.engine.server.cadence import AUTO_SECONDS, Cadence
from raysim.engine.server.coordinator import JobRun
from raysim.storage.checkpoints import Checkpoints, Writer, check_last_format, clear
from raysim.storage.encoding import FORMAT, decode, encode, read_tensors
from raysim.strategies.base import Selection, State, Strategy
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.references.local import Local
from raysim.strategies.selections.sampling import InverseSqrt, Uniform
from raysim.training.base import Optimizer
from tests.conftest import MakeFederation, fitting, with_patients
from tests.equality import same_models

SIZES = [9, 4, 13, 0, 1, 6, 8]

ONE_ROUND = {"ensemble", "meta_analysis", "odal"}
"""Strategies that are done after their first round, whatever rounds are left."""


def job(federation: Federation, strategy: Strategy, selection: Selection, rounds: int = 4) -> Job:
    work = Work(
        str(federation.folder),
        ModelSpec("logistic_regression", None, {}, "default"),
        Optimizer("sgd", 0.1, 4),
        2,
        1,
        "float32",
    )
    return Job(work, strategy, selection, rounds, EvaluationSection(every=2))


def run_once(federation: Federation, job: Job, since: RunState | None = None, every: int = 1) -> list[Any]:
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    return list(JobRun(pool, job, since).events(every))


def same(a: Outcome, b: Outcome) -> None:
    """Equal to the last bit: models, what hospitals keep, figures, rounds apart from seconds, and the ledger."""
    same_models(a, b)
    rows = [
        [(r.round, r.cohort_size, r.bytes_down, r.bytes_up, r.training_loss, repr(r.metrics)) for r in outcome.rounds]
        for outcome in (a, b)
    ]
    assert rows[0] == rows[1]
    ledgers = [
        [(t, kind, ids.tolist(), sent.tolist(), program) for t, kind, ids, sent, program in outcome.ledger.entries]
        for outcome in (a, b)
    ]
    assert ledgers[0] == ledgers[1]
    assert (a.setup, a.traffic, a.losses) == (b.setup, b.traffic, b.losses)


def options(kind: str) -> list[str]:
    return sorted(registry.entries(kind))


def both(federate: MakeFederation, strategy: str, selection: str) -> tuple[Federation, Job]:
    federation = with_patients(federate(SIZES, features=4))
    made = registry.load("strategies", strategy, "strategy.name")()
    planned = job(federation, made, registry.load("selections", selection, "selection.name")())
    return federation, fitting(planned, federation)


@pytest.mark.parametrize(
    ("strategy", "selection"),
    [(name, "inverse_sqrt") for name in options("strategies")] + [("chip", name) for name in options("selections")],
)
def test_a_run_that_goes_on_from_any_checkpoint_ends_with_the_same_bits(federate: MakeFederation, strategy, selection):
    federation, planned = both(federate, strategy, selection)
    planned = replace(planned, rounds=3)
    *events, alone = run_once(federation, planned)
    standings = [event for event in events if isinstance(event, RunState)]
    last = 1 if strategy in ONE_ROUND else 3
    assert [standing.round for standing in standings] == list(range(1, last + 1))
    for standing in standings:
        content = encode(standing, "abc", planned.strategy)
        assert read_tensors(content)[1]["state"]["strategy"] == strategy  # by its name, not by where its modules lie
        read, fingerprint = decode(content, planned.strategy)
        assert fingerprint == "abc"
        assert read.history is not None
        assert read.history.seconds > 0
        *rounds, outcome = run_once(federation, planned, read, every=0)
        assert [row.round for row in rounds] == list(range(standing.round, last + 1))
        same(outcome, alone)


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize("strategy", ["local", "centralized"])
def test_an_optimiser_that_goes_on_goes_on_from_a_checkpoint(federate: MakeFederation, strategy, optimizer):
    federation, planned = both(federate, strategy, "all")
    planned = replace(planned, work=replace(planned.work, optimizer=Optimizer(optimizer, 0.1, 4, 0.1)))
    *events, alone = run_once(federation, planned)
    for standing in (event for event in events if isinstance(event, RunState)):
        read, _ = decode(encode(standing, "abc", planned.strategy), planned.strategy)
        same(run_once(federation, planned, read, every=0)[-1], alone)


def test_checkpoints_change_no_result(federate: MakeFederation):
    federation, planned = both(federate, "chip", "inverse_sqrt")
    same(run_once(federation, planned, every=0)[-1], run_once(federation, planned, every=1)[-1])


def test_automatic_checkpoints_go_by_time_and_cost(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("raysim.engine.server.cadence.time.perf_counter", lambda: now[0])
    cadence = Cadence("auto")
    assert cadence.on
    now[0] = AUTO_SECONDS - 0.1
    assert not cadence.due(7)
    now[0] = AUTO_SECONDS
    assert cadence.due(8)
    now[0] += 2.0  # what it took
    cadence.made()
    now[0] += 39.9
    assert not cadence.due(9)
    now[0] += 0.2
    assert cadence.due(10)
    assert not Cadence(0).on
    assert [Cadence(3).due(t) for t in (1, 2, 3, 6, 7)] == [False, False, True, True, False]


@dataclass(frozen=True, eq=False)
class Part:
    weights: np.ndarray
    count: int = 3


@dataclass(frozen=True, eq=False, kw_only=True)
class Rich(State):
    part: Part | None
    queue: tuple[Any, ...]
    by_name: dict[Any, Any]


def test_a_state_of_many_kinds_comes_back_as_it_was():
    state = Rich(
        models=np.arange(6.0).reshape(2, 3),
        cluster=np.array([1, 2]),
        part=Part(np.array([np.nan, -0.0]), 5),
        queue=([1, 2.5], None, np.float32(0.1), (True, "x"), float("inf")),
        by_name={3: np.array(7), "b": [np.zeros((0, 2), dtype=np.int32)]},
    )
    arrays: dict[str, Any] = {}
    packed = json.loads(json.dumps(pack_state(state, arrays, Strategy())))
    back = unpack_state(packed, arrays, Strategy())
    assert isinstance(back, Rich)
    assert isinstance(back.part, Part)
    assert back.part.count == 5
    np.testing.assert_array_equal(back.part.weights, state.part.weights)
    assert back.queue[:2] == state.queue[:2]
    assert type(back.queue[2]) is np.float32
    assert back.queue[2:] == state.queue[2:]
    assert back.by_name[3] == 7
    assert back.by_name["b"][0].dtype == np.int32


def test_a_state_that_cannot_be_kept_is_refused_at_once(federate: MakeFederation):
    @dataclass(frozen=True, eq=False, kw_only=True)
    class Odd(State):
        rng: Any

    class Strange(Strategy):
        def setup(self, view):
            return Odd(models=view.initial[None, :], rng=np.random.default_rng(1))

    federation = federate(SIZES)
    planned = job(federation, Strange(), InverseSqrt(0.5, 2))
    with pytest.raises(
        ConfigError,
        match=r"checkpoint: Odd cannot be stored, because state/rng holds a value of type Generator; use arrays",
    ):
        run_once(federation, planned)
    assert isinstance(run_once(federation, planned, every=0)[-1], Outcome)


def test_a_dataclass_that_no_annotation_names_is_refused():
    """Reading it back could not tell which class it was."""
    state = Rich(models=np.zeros((1, 2)), part=None, queue=(Part(np.zeros(1)),), by_name={})
    with pytest.raises(
        ConfigError,
        match=r"checkpoint: Rich cannot be stored, because state/queue/0 holds a value of type Part; use arrays",
    ):
        pack_state(state, {}, Strategy())


@pytest.mark.parametrize("memory", [{1, 2}, Part(np.zeros(1))])
def test_a_memory_that_cannot_be_kept_is_refused_at_once(memory, federate: MakeFederation):
    class Odd(Uniform):
        def setup(self, view):
            return memory

    federation = federate(SIZES)
    planned = job(federation, FedAvg(), Odd(0.5, 2))
    name = type(memory).__name__
    with pytest.raises(
        ConfigError,
        match=f"checkpoint: what the selection remembers cannot be stored, because memory holds a value of type {name}",
    ):
        run_once(federation, planned)
    assert isinstance(run_once(federation, planned, every=0)[-1], Outcome)


def test_no_file_decides_which_class_is_made():
    packed = {"class": "subprocess.Popen", "value": {"fields": {"args": "true"}}}
    with pytest.raises(ValueError, match=r"subprocess.Popen, which the configured strategy does not have"):
        unpack_state(packed, {}, Strategy())
    with pytest.raises(ValueError, match="is not a dataclass"):
        unpack(pack(Part(np.zeros(1)), "x", {}, typed=True), {"x/weights": np.zeros(1)})


@pytest.fixture
def standings(federate: MakeFederation) -> list[RunState]:
    federation, planned = both(federate, "local", "inverse_sqrt")
    return [event for event in run_once(federation, planned) if isinstance(event, RunState)]


@pytest.mark.parametrize("uri", [False, True])
def test_the_last_ones_are_kept_and_a_truncated_one_is_passed_over(standings, tmp_path: Path, uri):
    folder = tmp_path / "a" / "b"
    checkpoints = Checkpoints(folder.as_uri() if uri else str(folder), 2, "f", Local())
    assert checkpoints.latest() == (None, [])
    for standing in standings:
        checkpoints.write(standing)
    names = sorted(path.name for path in folder.iterdir())
    assert [name[:12] for name in names] == ["round-000003", "round-000004"]
    latest, said = checkpoints.latest()
    assert latest is not None
    assert (latest.round, said) == (4, [])

    content = (folder / names[1]).read_bytes()
    for damaged in (content[: len(content) // 2], b"", content[:-1] + bytes([content[-1] ^ 1]), b"\xff" * 50):
        (folder / names[1]).write_bytes(damaged)
        latest, said = checkpoints.latest()
        assert latest is not None
        assert latest.round == 3
        assert said == ["checkpoint round-000004 is damaged (its content does not have the digest in its name)"]
    # The next ones must not push out the one that is whole.
    checkpoints.write(standings[2])
    assert checkpoints.latest()[0].round == 3
    with pytest.raises(ConfigError, match="is of another run"):
        Checkpoints(str(folder), 2, "other", Local()).latest()
    clear(checkpoints.location)
    assert not list(folder.iterdir())


@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1], ids=["older", "newer"])
@pytest.mark.parametrize("truncated", [False, True])
def test_a_checkpoint_of_another_version_is_refused(standings, other: int, truncated: bool, monkeypatch, tmp_path):
    """A newer one may mean something else by the same names, as an older one does."""
    checkpoints = Checkpoints(str(tmp_path), 3, "f", Local())
    with monkeypatch.context() as version:
        version.setattr("raysim.storage.encoding.FORMAT", other)
        checkpoints.write(standings[0])
        checkpoints.write(standings[1])
    first, last = sorted(tmp_path.glob("round-*"))
    if truncated:
        last.write_bytes(last.read_bytes()[:-1])
    said = (
        f"checkpoint: {first if truncated else last} was written by another version of raysim (its format is {other}, "
        f"and this version reads {FORMAT}); finish the run with that version, or start a new run in another folder"
    )
    for read in (checkpoints.latest, lambda: check_last_format(str(tmp_path))):
        with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
            read()


def test_a_full_disk_is_one_line_and_leaves_the_checkpoint_before(standings, tmp_path: Path):
    checkpoints = Checkpoints(str(tmp_path / "c"), 2, "f", Local())
    checkpoints.write(standings[0])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    writer = Writer(checkpoints)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # the system refuses further bytes, as if full
        with (
            pytest.raises(ResourceError, match=r"checkpoint: .* cannot be written after round 2 \(File too large\)"),
            writer,
        ):
            writer.offer(standings[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(list((tmp_path / "c").iterdir())) == 1
    assert checkpoints.latest()[0].round == 1

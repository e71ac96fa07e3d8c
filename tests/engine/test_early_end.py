"""Runs that end where the loss on validation rows falls no more: which round serves, what it costs, and going on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.training import StopSection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome
from raysim.engine.measuring.stopping import Stopped, Stopping
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.storage.encoding import decode, encode
from raysim.storage.results import summary
from raysim.storage.run_tables import egress_table, rounds_table
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.fedper import FedPer
from raysim.strategies.personal.fine_tuning import FineTuning
from raysim.strategies.references.local import Local
from raysim.strategies.regressions.newton import Newton
from tests.conftest import MLP, MakeFederation, fitting, job_of, run, with_patients
from tests.engine.test_losses import mean_loss
from tests.equality import same_models
from tests.storage.test_checkpoint import same
from tests.virtual_time.unreliable import system

SIZES, VALIDATION = [9, 4, 13, 0, 6, 5, 8], [4, 0, 3, 2, 5, 2, 0]
P = 4
"""Parameters of logistic regression on three features."""


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return with_patients(federate(SIZES, validation=VALIDATION))


def stopping(federation: Federation, strategy: Any, patience: int = 3, **settings: Any) -> Job:
    """A job whose rate is so large that its loss soon rises again."""
    made = job_of(federation, strategy, **({"rounds": 12, "learning_rate": 3.0} | settings))
    return replace(made, stop=StopSection(patience=patience, tolerance=0.01))


def ended(outcome: Outcome) -> Stopped:
    assert outcome.stopped is not None
    return outcome.stopped


def validation_rows(federation: Federation) -> Any:
    return np.concatenate([np.arange(len(federation.y))[federation.rows(h, "validation")] for h in range(len(SIZES))])


def test_a_strategy_that_solves_ends_by_itself_and_serves_its_last_round(federation: Federation) -> None:
    job = replace(job_of(federation, Newton(), rounds=20), stop=StopSection(patience=1, tolerance=1.0))
    stops = run(federation, job, 1)
    assert stops.stopped is None
    assert stops.ended
    assert stops.rounds_run > 1
    same_models(stops, run(federation, replace(job, stop=None), 1))


def test_a_check_is_the_loss_of_the_models_after_a_round_on_validation_rows(federation: Federation) -> None:
    outcome = run(federation, stopping(federation, FedAvg()), 1)
    rows = validation_rows(federation)
    for row in outcome.rounds:
        shorter = run(federation, job_of(federation, FedAvg(), rounds=row.round, learning_rate=3.0), 1)
        assert row.validation_loss == pytest.approx(mean_loss(federation, shorter.models[0], rows), rel=1e-12)
    assert ended(outcome).before == pytest.approx(np.log(2))


def test_it_ends_after_so_many_checks_without_a_fall_and_serves_the_best(federation: Federation) -> None:
    outcome = run(federation, stopping(federation, FedAvg()), 1)
    how, losses = ended(outcome), [row.validation_loss for row in outcome.rounds]
    assert how.early
    assert how.served < how.last == len(outcome.rounds) < 12
    assert how.last == how.served + 3
    assert losses.index(min(losses)) + 1 == how.served
    assert how.loss == min(losses)
    assert [row.round for row in outcome.rounds if row.training_loss is not None] == list(range(1, how.last + 1))


TRAINED = [
    name for name in sorted(registry.entries("strategies")) if registry.load("strategies", name, "")().uses_training()
]
"""The strategies that train by steps."""


@pytest.mark.parametrize("strategy", TRAINED)
def test_what_serves_is_what_so_many_rounds_make(federation: Federation, strategy: str) -> None:
    """Bit for bit, for every strategy, own and fine-tuned models and figures of groups of patients included."""
    # A search of the number of clusters takes long.
    made = registry.load("strategies", strategy, "")(**{"fedgmc": {"clusters": 3}}.get(strategy, {}))
    job = fitting(stopping(federation, made, patience=2, learning_rate=2.0), federation)
    outcome = run(federation, job, 2)
    how = ended(outcome)
    plain = run(federation, replace(job, stop=None, rounds=how.served), 1)
    same_models(outcome, plain)
    assert repr(outcome.metrics) == repr(plain.metrics)
    assert repr(outcome.rounds[how.served - 1].metrics) == repr(plain.rounds[-1].metrics)
    longer = run(federation, replace(job, stop=None, rounds=how.last + 1), 1)
    losses_by_round = [(row.round, row.cohort_size, row.training_loss) for row in outcome.rounds]
    assert losses_by_round == [(row.round, row.cohort_size, row.training_loss) for row in longer.rounds[: how.last]]


def test_a_run_that_runs_all_its_rounds_may_serve_an_earlier_one(federation: Federation) -> None:
    outcome = run(federation, stopping(federation, FedAvg(), patience=12, every=0), 1)
    how = ended(outcome)
    assert (how.early, how.last, len(outcome.rounds)) == (False, 12, 12)
    assert how.served < 12
    assert [row.round for row in outcome.rounds if row.metrics] == [how.served]  # metrics are of the model used
    said = summary(federation, outcome)
    assert (said["rounds"], said["stopped_at"], said["stop_reason"]) == (12, None, "rounds")
    assert (said["served_round"], said["validation_loss"]) == (how.served, how.loss)


def test_an_early_end_is_reported(federation: Federation) -> None:
    outcome = run(federation, stopping(federation, FedAvg()), 1)
    how, said = ended(outcome), summary(federation, outcome)
    assert (said["rounds"], said["stopped_at"], said["stop_reason"]) == (how.last, how.last, "patience")
    assert said["validation_loss_of"] == "global"
    assert said["validation_loss_before"] == pytest.approx(np.log(2))
    assert list(rounds_table(outcome.rounds)["validation_loss"]) == [row.validation_loss for row in outcome.rounds]
    plain = run(federation, job_of(federation, FedAvg()), 1)
    assert "validation_loss" not in rounds_table(plain.rounds)
    assert "stopped_at" not in summary(federation, plain)
    assert plain.stopped is None


def test_a_check_is_traffic(federation: Federation) -> None:
    """Five of seven hospitals have validation rows: they receive the model for it, and have it for the next round."""
    outcome = run(federation, stopping(federation, FedAvg()), 1)
    last, checked, trained = ended(outcome).last, [0, 2, 3, 4, 5], [0, 1, 2, 4, 5, 6]
    loss = [
        (t, ids.tolist(), sent.tolist())
        for t, kind, ids, sent, _ in outcome.ledger.entries
        if kind == "validation_loss"
    ]
    assert loss == [(t, checked, [16] * 5) for t in range(last + 1)]
    # Of the cohort hospitals 1 and 6 were not sent the model for the check before.
    assert [row.bytes_down for row in outcome.rounds] == [4 * P * (2 + 5)] * last
    assert [row.bytes_up for row in outcome.rounds] == [len(trained) * 4 * (P + 1) + 5 * 16] * last
    assert outcome.setup.down == 4 * P * 5
    assert outcome.setup.up == outcome.ledger.sent(0) == 7 * 4 + 5 * 16
    table = egress_table(federation, outcome)
    assert table[table["kind"] == "validation_loss"]["bytes"].sum() == 80 * (last + 1)


def test_only_what_hospitals_do_not_have_is_sent_for_a_check(federation: Federation) -> None:
    local = run(federation, stopping(federation, Local()), 1)
    assert {row.bytes_down for row in local.rounds} == {0}
    heads = run(federation, stopping(federation, FedPer(), model=MLP, learning_rate=0.1), 1)
    shared = heads.layout.size - int(heads.private.sum())
    assert {row.bytes_down for row in heads.rounds} == {4 * shared * (2 + 5)}


def test_a_check_takes_virtual_time_as_a_question_does(federation: Federation) -> None:
    """Each message takes its latency of 2 seconds: a round's two messages 4 seconds, a check's two as many."""
    section = system(rows_per_second=1e12, latency=2.0)
    plain = run(federation, job_of(federation, FedAvg(), rounds=3, system=section), 1)
    checked = run(federation, stopping(federation, FedAvg(), rounds=3, learning_rate=0.1, system=section), 1)
    assert [row.virtual_seconds for row in plain.rounds] == pytest.approx([4, 8, 12])
    assert [row.virtual_seconds for row in checked.rounds] == pytest.approx([4 + 4, 8 + 8, 12 + 12])


@pytest.mark.parametrize("strategy", ["fedavg", "chip", "ditto", "fine_tuning", "scaffold", "fedsoft", "centralized"])
def test_a_run_that_goes_on_from_any_checkpoint_ends_with_the_same_bits(federation: Federation, strategy: str) -> None:
    made = registry.load("strategies", strategy, "strategy.name")()
    job = stopping(federation, made, patience=2, precision="float32")
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    *events, alone = JobRun(pool, job).events(1)
    standings = [event for event in events if isinstance(event, RunState)]
    assert isinstance(alone, Outcome)
    assert len(standings) == ended(alone).last
    for standing in standings:
        read, _ = decode(encode(standing, "abc", job.strategy), job.strategy)
        *_, outcome = JobRun(pool, job, read).events()
        assert isinstance(outcome, Outcome)
        same(outcome, alone)
        assert outcome.stopped == alone.stopped
        assert [row.validation_loss for row in outcome.rounds] == [row.validation_loss for row in alone.rounds]


def test_who_goes_on_from_anothers_standing_goes_on_with_its_checks(federation: Federation) -> None:
    """As in population-based training: without its history, and with a patience of one's own."""
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    job = stopping(federation, FineTuning(), patience=4)
    *_, whole = JobRun(pool, job).run()
    donor = JobRun(pool, job)
    events = donor.run()
    next(events), next(events), next(events)
    standing = donor.state_after_round()
    assert standing is not None
    assert (standing.round, standing.stopping.rounds) == (3, (1, 2, 3))
    *_, heir = JobRun(pool, job, standing).run()
    assert isinstance(whole, Outcome)
    assert isinstance(heir, Outcome)
    assert heir.stopped == whole.stopped
    np.testing.assert_array_equal(heir.models, whole.models)
    assert repr(heir.metrics) == repr(whole.metrics)
    hasty = replace(job, stop=StopSection(patience=1, tolerance=10.0))
    *_, early = JobRun(pool, hasty, standing).run()
    assert isinstance(early, Outcome)
    assert (ended(early).last, early.rounds) == (3, [])


def test_losses_that_are_not_finite_end_a_run_and_never_serve() -> None:
    nothing = Stopping(StopSection(patience=2, tolerance=0.0), {"global": 0.7}).after(1, "global", float("nan"))
    assert nothing.best is None
    assert not nothing.over
    assert nothing.after(2, "global", float("inf")).over
    assert Stopped.of(nothing) is not None
    assert Stopped.of(nothing).served == 1


def test_a_run_without_rounds_is_not_checked(federation: Federation) -> None:
    outcome = run(federation, stopping(federation, FedAvg(), rounds=0), 1)
    assert outcome.stopped is None
    assert "validation_loss" not in {kind for _, kind, _, _, _ in outcome.ledger.entries}


def test_without_validation_rows_it_is_refused(federate: MakeFederation) -> None:
    federation = federate(SIZES)
    with pytest.raises(ConfigError) as error:
        check_job(stopping(federation, FedAvg()), federation)
    said = str(error.value)
    assert said.startswith("training.stop: no hospital has validation rows")
    assert "give data.split.validation a share" in said
    assert len(said.splitlines()) == 1

"""What hospitals make and choose by themselves where the server learns sums alone: q-FedAvg's steps, IFCA's choices."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError, StrategyError
from raysim.engine.privacy.release import Release
from raysim.engine.server.job_checks import check_job
from raysim.privacy.accountant import epsilon
from raysim.privacy.events import Gaussian
from raysim.secure import traffic
from raysim.strategies.base import Reply, State, Update
from raysim.strategies.fairness.qfedavg import QFedAvg, SteepenedTraining
from raysim.strategies.hospital_clusters.ifca import COUNTS, LEAST, ChosenTraining, Ifca
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import job_of, run, run_and_resumed

SIZES = [12, 9, 0, 10, 11, 13, 8, 10, 9]
STRATEGIES = [
    QFedAvg(q=2.0),
    Ifca(clusters=2, spread=1.0),
    Ifca(clusters=7, spread=1.0, weights="samples"),
    Ifca(clusters=2, spread=1.0, averaging="gradient"),
]
HOSPITAL = {"unit": "hospital", "delta": 1e-3, "noise_multiplier": 0.0, "clip": 1e4}


@pytest.fixture
def federation(federate):
    return federate(SIZES)


def hidden(federation, strategy, secure=None, privacy=None, **settings):
    job = replace(
        job_of(federation, strategy, **settings),
        secure=None if secure is None else SecureSection(**secure),
        privacy=None if privacy is None else PrivacySection(**HOSPITAL | privacy),
    )
    check_job(job, federation)
    return job


def test_a_hospitals_message_by_hand():
    """q 2, rate .5, loss 3, delta (1, 2): F^2 = 9, and 9 + 2 * 3 * 5 / .5 = 69; a choice is sent by its place."""
    moved, losses = np.array([1.0, 2.0]), iter([3.0, 4.0, 2.0, 3.0] * 2)
    model = SimpleNamespace(
        train=lambda theta, epochs=None: SimpleNamespace(theta=theta + moved),
        loss=lambda theta: next(losses),
        learning_rate=0.5,
    )
    at = SimpleNamespace(model=model, received={"theta": np.zeros(2), "models": np.zeros((3, 2))})
    sent = SteepenedTraining(2, 2.0).run(at).sent
    assert sent["delta"] == pytest.approx([9.0, 18.0], rel=1e-9)
    assert sent["steepness"] == pytest.approx(69.0, rel=1e-9)
    sent = ChosenTraining(3, 2, None, math.inf).run(at).sent
    assert sent["delta"].tolist() == [[0, 0], [1, 2], [0, 0]]
    assert sent["chosen"].tolist() == [0, 1, 0]
    next(losses)
    sent = ChosenTraining(3, 2, None, 0.5).run(at).sent
    assert np.linalg.norm(sent["delta"]) == pytest.approx(0.5 * math.sqrt(0.9))
    assert np.linalg.norm(np.append(sent["delta"], sent["chosen"])) == pytest.approx(0.5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sums_give_what_single_answers_gave_and_masks_change_no_bit(federation, strategy):
    """Seven models of four scalars: the counts take two sums."""
    plain = run(federation, job_of(federation, strategy), 1)
    model = run(federation, hidden(federation, strategy, {}), 1)
    assert model.models == pytest.approx(plain.models, abs=1e-10)
    assert model.models[1:] == pytest.approx(plain.models[1:], abs=1e-10)
    for mode, actors in (("model", 4), ("execute", 2)):
        assert (run(federation, hidden(federation, strategy, {"mode": mode}), actors).models == model.models).all()
    assert "choice" not in {kind for _, kind, _, _, _ in model.ledger.entries}
    assert "loss" not in {kind for _, kind, _, _, _ in model.ledger.entries}


@pytest.mark.parametrize("strategy", STRATEGIES[:2])
def test_lost_hospitals_are_left_out_of_both_sums(federation, strategy):
    drop = {"threshold": 3, "drop": {"mask": 0.2}}
    model, execute = (
        run(federation, hidden(federation, strategy, drop | {"mode": mode}, rounds=4, seed=3), 2)
        for mode in ("model", "execute")
    )
    assert (model.models == execute.models).all()
    assert (
        np.abs(model.models - run(federation, hidden(federation, strategy, {}, rounds=4, seed=3), 1).models).max()
        > 1e-6
    )


def test_bytes_are_those_of_all_sums(federation):
    """Two models of four scalars and their counts, each masked by itself, among eight hospitals."""
    outcome = run(federation, hidden(federation, STRATEGIES[1], {}), 2)
    up = 2 * traffic.up(4, 7) + traffic.up(2, 7)
    assert [row.bytes_up for row in outcome.rounds] == [8 * up] * 3
    assert [row.bytes_down for row in outcome.rounds] == [8 * (2 * 4 * 4 + 3 * traffic.down(7))] * 3
    alone = run(federation, hidden(federation, STRATEGIES[1], privacy={}), 2)
    assert [row.bytes_up for row in alone.rounds] == [8 * 4 * (2 * 4 + 2 + 1)] * 3


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("way", ["central", "distributed", "local"])
def test_without_noise_and_clipping_a_guarantee_changes_nothing(federation, strategy, way):
    """All come, and count alike: sums over their number are those of equal weights."""
    uniform = strategy if isinstance(strategy, QFedAvg) else replace(strategy, weights="uniform")
    plain = run(federation, job_of(federation, uniform), 1)
    secure = {"mode": "execute"} if way == "distributed" else None
    job = hidden(federation, uniform, secure, {"mode": way})
    assert run(federation, job, 2).models == pytest.approx(plain.models, abs=1e-9)


@pytest.mark.parametrize("way", ["central", "distributed", "local"])
def test_the_noise_of_each_block_and_count_is_that_of_the_guarantee(federate, way):
    """By the sums that the server receives in one round: of every block alike, chosen or not, and of the counts."""
    wide, narrow = federate([3] * 9, features=3000), federate([3] * 9)
    secure = {} if way == "distributed" else None
    privacy = {"mode": way, "noise_multiplier": 2.0, "clip": 1e-6}
    received = {}

    class Watching(Ifca):
        def aggregate(self, view, state, update):
            received.update(sums=update.sums, chosen=update.extra("chosen") / update.problem.program.one)
            return super().aggregate(view, state, update)

    job = hidden(wide, Watching(clusters=2), secure, privacy, rounds=1)
    run(wide, job, 2)
    whole = math.sqrt(9) if way == "local" else 1.0
    for block in received["sums"]:
        assert block.std() == pytest.approx(2.0 * 1e-6 * whole / 9, rel=0.05)
    drawn = []
    for seed in range(20):
        run(narrow, hidden(narrow, Watching(clusters=2), secure, privacy, rounds=1, seed=seed), 1)
        drawn.append(9 * received["chosen"])
    # A tenth of the budget: noise of 6.3 hospitals on each number, or 19 where each adds its own.
    noise = 2.0 / math.sqrt(COUNTS) * whole
    assert np.array(drawn).std() == pytest.approx(noise, rel=0.3)
    assert np.array(drawn).sum(axis=1).mean() == pytest.approx(9, abs=4 * noise * math.sqrt(2 / 20))


def test_a_noisy_number_of_hospitals_is_not_near_0(federation):
    """Each of nine counts 1/9: where noise says that nobody has chosen, the sum counts as that of three."""
    strategy = Ifca(clusters=2)
    view = SimpleNamespace(
        noise=SimpleNamespace(clip=1.0, multiplier=1.0), hides=True, sizes=np.ones(9, np.int64), initial=np.zeros(2)
    )
    view.least_members = 1
    problem = strategy.problem(view, State(np.zeros((3, 2))), np.arange(9))
    one = ChosenTraining(2, 2, None, 1.0).one
    update = Update(np.arange(9), np.ones((2, 2)), numbers=np.array([-1.0, one]), problem=problem)
    assert strategy.aggregate(view, State(np.zeros((3, 2))), update).models[1:] == pytest.approx(
        np.array([[9 / LEAST] * 2, [1, 1]])
    )


def test_one_hospital_moves_all_sums_together_by_the_clip():
    """By hand: a vector and a number, which are clipped together."""
    release = Release(clip=0.5)
    joint = release.leaving([np.array([3.0, 0.0]), np.array([4.0])], 1, 1, 0)
    assert joint[0] == pytest.approx([0.3, 0.0], rel=1e-9)
    assert joint[1] == pytest.approx([0.4], rel=1e-9)


@pytest.mark.parametrize("strategy", STRATEGIES[:2])
def test_epsilon_is_that_of_one_event_a_round(federation, strategy):
    privacy = {"noise_multiplier": 5.0, "clip": 0.5, "declared_public": ("sizes", "metrics")}
    statement = run(federation, hidden(federation, strategy, privacy=privacy, rounds=4), 1).privacy
    assert statement.epsilon == pytest.approx(epsilon([Gaussian(5.0, 1.0, 4)], 1e-3))
    assert (statement.covers, statement.not_private) == (("update",), ())


@pytest.mark.parametrize("strategy", STRATEGIES[:2])
@pytest.mark.parametrize("secure", [None, {"mode": "execute", "drop": {"mask": 0.1}}])
def test_a_run_goes_on_bit_for_bit(federation, strategy, secure):
    privacy = {"noise_multiplier": 1.0, "clip": 0.3}
    job = hidden(federation, strategy, secure, privacy, rounds=4)
    whole, resumed = run_and_resumed(federation, job)
    assert (resumed.models == whole.models).all()
    assert (run(federation, job, 4).models == resumed.models).all()


def test_what_does_not_go_with_messages_is_refused(federation):
    job = hidden(federation, STRATEGIES[1], {})
    with pytest.raises(ConfigError, match=r"compression.name: strategy 'Ifca' sends zeros for other sums, to hide"):
        run(federation, replace(job, compression=CompressionSection(name="grid")), 1)


def test_a_clip_that_moves_does_not_go_with_choices(federation):
    privacy = {"noise_multiplier": 2.0, "clip": 0.5, "adaptive": {"bits": 5.0}}
    with pytest.raises(ConfigError, match=r"privacy.adaptive: changes the clip, but the weights of .* 'Ifca'"):
        run(federation, hidden(federation, STRATEGIES[1], privacy=privacy), 1)
    run(federation, hidden(federation, STRATEGIES[0], privacy=privacy), 1)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"delta": np.zeros(3), "steepness": 1.0}, "delta: has shape [3] but [4] is declared"),
        (
            {"delta": np.zeros(4)},
            "steepness: is declared in sends, but the program did not return it; return it, or do not declare it",
        ),
        (
            {"delta": np.zeros(4), "steepness": np.nan},
            "steepness: has an entry that is not finite; send finite numbers",
        ),
        (
            {"delta": np.zeros(4), "steepness": 1.0, "loss": 1.0},
            "loss: is not declared in sends (delta, steepness); declare or remove it",
        ),
    ],
)
def test_a_program_that_trains_sends_what_it_has_declared(federation, monkeypatch, sent, message):
    monkeypatch.setattr(SteepenedTraining, "run", lambda self, at: Reply(sent))
    where = "strategy 'QFedAvg', round 1, program 'qfedavg', hospital 'h"
    with pytest.raises(StrategyError) as raised:
        run(federation, hidden(federation, STRATEGIES[0], {}), 1)
    assert str(raised.value).startswith(where)
    assert str(raised.value).endswith(message)


def test_under_a_guarantee_what_is_no_number_is_sent_as_zeros(federation, monkeypatch):
    sent = {"delta": np.full(4, np.inf), "steepness": np.nan}
    monkeypatch.setattr(SteepenedTraining, "run", lambda self, at: Reply(sent))
    start = run(federation, job_of(federation, FedAvg(), rounds=0), 1).models
    assert (run(federation, hidden(federation, STRATEGIES[0], privacy={}), 1).models == start).all()

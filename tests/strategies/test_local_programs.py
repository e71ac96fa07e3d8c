"""Methods whose hospitals train by programs of their own: neutral settings, and rounds by hand in numpy float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.config.sections.system import SystemSection
from raysim.core.errors import ConfigError, HospitalFailed
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.server.job_checks import check_job
from raysim.robust.centres import geometric_median
from raysim.strategies.base import LocalProblem, Upload, shares
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.feddyn import FedDyn
from raysim.strategies.one_model.fednova import FedNova
from raysim.strategies.one_model.fedprox import FedProx
from raysim.strategies.one_model.fedsam import FedSam
from raysim.strategies.one_model.rfa import RFA
from raysim.strategies.personal.apfl import Apfl
from raysim.strategies.personal.fedbn import FedBN
from raysim.strategies.personal.fedper import FedPer
from raysim.strategies.personal.per_fedavg import PerFedAvg
from raysim.strategies.personal.pfedme import PFedMe
from raysim.strategies.selections.sampling import All, Uniform
from raysim.strategies.shared.weights import hospital_weights
from tests.conftest import MLP, NORMED, MakeFederation, job_of, run, run_strategy
from tests.equality import same_models
from tests.strategies.test_identities import SIZES, assert_different, assert_same

Floats = np.ndarray
RATE, EPOCHS, BATCH = 0.1, 2, 4
SAMPLED = {"rounds": 3, "epochs": EPOCHS, "batch_size": BATCH, "selection": Uniform(0.5, 2)}


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


class ByHand:
    """One hospital's rows and batches in a round."""

    def __init__(self, federation: Federation, hospital: int, round: int) -> None:
        rows = federation.rows(hospital, "train")
        self.X = np.column_stack([federation.X[rows].astype(np.float64), np.ones(rows.stop - rows.start)])
        self.y, self.hospital, self.round = federation.y[rows], hospital, round

    def batches(self) -> Iterator[Floats]:
        n = len(self.y)
        for epoch in range(EPOCHS):
            order = np.arange(n)
            if n > BATCH:
                stream(1, "batch", self.round, self.hospital, epoch).shuffle(order)
            yield from (order[first : first + BATCH] for first in range(0, n, BATCH))

    def gradient(self, theta: Floats, rows: Floats) -> Floats:
        X = self.X[rows]
        return X.T @ (1 / (1 + np.exp(-X @ theta)) - self.y[rows]) / len(rows)


def by_hand(federation: Federation, outcome: Outcome, trained: Callable[..., Floats], uniform: bool = False) -> Floats:
    """The global model after the outcome's rounds, with the deltas that ``trained(hand, w)`` makes."""
    w = np.zeros(4)
    for t, kind, ids, _, _ in outcome.ledger.entries:
        if kind == "update":
            hands = [ByHand(federation, h, t) for h in ids.tolist()]
            weights = np.array([1.0 if uniform else len(hand.y) for hand in hands])
            w = w + weights / weights.sum() @ np.array([trained(hand, w) for hand in hands])
    return w


@pytest.mark.parametrize(
    "strategy", [FedSam(rho=0.0), PerFedAvg(alpha=0.0), Apfl(), Apfl(alpha=0.0, adaptive=False)], ids=repr
)
@pytest.mark.parametrize("model", [None, MLP], ids=["linear", "mlp"])
def test_the_neutral_setting_is_federated_averaging(federation: Federation, strategy, model):
    plain = run_strategy(federation, FedAvg(), model=model, **SAMPLED)
    assert_same(run_strategy(federation, strategy, model=model, **SAMPLED).models, plain.models)


def test_a_step_uphill(federation: Federation):
    def trained(hand: ByHand, w: Floats) -> Floats:
        start = w
        for rows in hand.batches():
            g = hand.gradient(w, rows)
            w = w - RATE * hand.gradient(w + 0.3 * g / np.linalg.norm(g), rows)
        return w - start

    outcome = run_strategy(federation, FedSam(rho=0.3), **SAMPLED)
    assert_same(outcome.models[0], by_hand(federation, outcome, trained))
    assert_different(outcome.models[0], run_strategy(federation, FedAvg(), **SAMPLED).models[0])


def test_a_mixture_learns_its_share(federation: Federation):
    stored: dict[int, tuple[Floats, float]] = {}
    mixed: dict[int, Floats] = {}

    def trained(hand: ByHand, w: Floats) -> Floats:
        start = w
        v, alpha = stored.get(hand.hospital, (w, 0.4))
        for rows in hand.batches():
            g, m = hand.gradient(w, rows), hand.gradient(alpha * v + (1 - alpha) * w, rows)
            w, v, alpha = w - RATE * g, v - RATE * alpha * m, float(np.clip(alpha - RATE * m @ (v - w), 0, 1))
        stored[hand.hospital] = v, alpha
        mixed[hand.hospital] = alpha * v + (1 - alpha) * w
        return w - start

    outcome = run_strategy(federation, Apfl(alpha=0.4), **SAMPLED)
    assert_same(outcome.models[0], by_hand(federation, outcome, trained))
    assert outcome.own_models.keys() == mixed.keys()
    for h, theta in mixed.items():
        assert_same(outcome.own_models[h], theta)
    assert len({round(alpha, 6) for _, alpha in stored.values()}) > 1


def test_envelopes(federation: Federation):
    lam, steps, approach = 0.7, 3, 0.4
    thetas: dict[int, Floats] = {}

    def trained(hand: ByHand, w: Floats) -> Floats:
        start = w
        for rows in hand.batches():
            theta = w
            for _ in range(steps):
                theta = theta - RATE * (hand.gradient(theta, rows) + lam * (theta - w))
            w = w - approach * (w - theta)
        thetas[hand.hospital] = theta
        return 0.9 * (w - start)

    outcome = run_strategy(federation, PFedMe(lam=lam, steps=steps, approach=approach, beta=0.9), **SAMPLED)
    assert_same(outcome.models[0], by_hand(federation, outcome, trained, uniform=True))
    for h, theta in thetas.items():
        assert_same(outcome.own_models[h], theta)
    one = {"rounds": 3, "batch_size": 0}
    uniform = run_strategy(federation, FedAvg(weights="uniform"), **one)
    assert_same(run_strategy(federation, PFedMe(steps=1, approach=1.0), **one).models, uniform.models)


def test_a_start_one_step_ahead(federation: Federation):
    alpha = 0.3

    def trained(hand: ByHand, w: Floats) -> Floats:
        start, others = w, stream(1, "per_fedavg: other batches", hand.round, 0, hand.hospital)
        for rows in hand.batches():
            other = others.choice(len(hand.y), len(rows), replace=False)
            w = w - RATE * hand.gradient(w - alpha * hand.gradient(w, other), rows)
        return w - start

    outcome = run_strategy(federation, PerFedAvg(alpha=alpha), **SAMPLED)
    assert_same(outcome.models[0], by_hand(federation, outcome, trained))
    w = outcome.models[0]
    for h in range(len(SIZES)):
        hand = ByHand(federation, h, 0)
        assert_same(outcome.own_models[h], w - alpha * hand.gradient(w, np.arange(len(hand.y))))


def test_dynamic_regularisation(federation: Federation):
    alpha, stored, w, drift = 0.5, {h: np.zeros(4) for h in range(len(SIZES))}, np.zeros(4), np.zeros(4)
    outcome = run_strategy(federation, FedDyn(alpha=alpha), **SAMPLED)
    for t, kind, ids, _, _ in outcome.ledger.entries:
        if kind != "update":
            continue
        deltas = []
        for h in ids.tolist():
            hand, theta = ByHand(federation, h, t), w
            for rows in hand.batches():
                theta = theta - RATE * (hand.gradient(theta, rows) - stored[h] + alpha * (theta - w))
            stored[h] = stored[h] - alpha * (theta - w)
            deltas.append(theta - w)
        drift = drift - alpha / len(SIZES) * np.sum(deltas, axis=0)
        w = w + np.mean(deltas, axis=0) - drift / alpha
    assert_same(outcome.models[0], w)
    first = {**SAMPLED, "rounds": 1, "selection": None}
    prox = run_strategy(federation, FedProx(mu=alpha, weights="uniform"), **first).models[0]
    assert_same(run_strategy(federation, FedDyn(alpha=alpha), **first).models[0], 2 * prox)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize("mu", [0.0, 0.4])
def test_steps_are_normalised(federation: Federation, optimizer: str, mu: float):
    if optimizer == "momentum" and mu:
        with pytest.raises(
            ConfigError,
            match=r"training\.optimizer: fednova defines no weights for momentum steps "
            r"with a proximal term",
        ):
            check_job(job_of(federation, FedNova(mu=mu), optimizer=optimizer), federation)
        return
    run = SAMPLED | {"optimizer": optimizer, "rounds": 1, "selection": None}
    outcome = run_strategy(federation, FedNova(mu=mu), **run)
    weights = np.array(SIZES) / sum(SIZES)
    steps = np.array([EPOCHS * -(-n // BATCH) for n in SIZES], dtype=float)
    if mu:
        steps = np.sum([((1 - RATE * mu) ** k) * (k < steps) for k in range(20)], axis=0)
    if optimizer == "momentum":
        steps = np.array([sum(sum(0.9**j for j in range(k + 1)) for k in range(int(tau))) for tau in steps])
    deltas = []
    for h in range(len(SIZES)):
        hand, theta, velocity = ByHand(federation, h, 1), np.zeros(4), np.zeros(4)
        for rows in hand.batches():
            velocity = (0.9 if optimizer == "momentum" else 0.0) * velocity + hand.gradient(theta, rows) + mu * theta
            theta = theta - RATE * velocity
        deltas.append(theta)
    assert_same(outcome.models[0], (weights @ steps) * ((weights / steps) @ np.array(deltas)))
    equal = run | {"batch_size": 0, "rounds": 3}
    alike = run_strategy(federation, FedNova(mu=mu), **equal)
    assert_same(alike.models, run_strategy(federation, FedProx(mu=mu), **equal).models)


@dataclass(frozen=True)
class ServerNova(FedAvg):
    """FedNova that takes the hospitals' steps from the view and the built-in training from the engine."""

    def problem(self, view, state, ids):
        return LocalProblem(np.zeros_like(ids), Upload(shares(view.sizes[ids]) / view.local_steps[ids]))

    def aggregate(self, view, state, update):
        taken = shares(view.sizes[update.ids]) @ view.local_steps[update.ids]
        return replace(state, models=state.models + taken * update.sums)


@pytest.mark.parametrize("batch_size", [0, 4, 7])
def test_the_view_says_how_many_steps_hospitals_take(federation: Federation, batch_size: int):
    run = SAMPLED | {"batch_size": batch_size, "selection": None}
    assert_same(run_strategy(federation, ServerNova(), **run).models, run_strategy(federation, FedNova(), **run).models)


@dataclass(frozen=True)
class Declaring(ServerNova):
    """It says itself how hospitals train."""

    batch_size: int = BATCH
    learning_rate: float | None = None


def test_what_a_strategy_declares_and_the_configuration_sets_otherwise_is_refused(federation: Federation):
    check_job(job_of(federation, Declaring(learning_rate=2.0), batch_size=BATCH), federation)
    said = (
        rf"^strategy\.batch_size: {BATCH}, but hospitals train with training\.batch_size: 9; set both to the same value"
    )
    with pytest.raises(ConfigError, match=said):
        check_job(job_of(federation, Declaring(), batch_size=9), federation)


@pytest.mark.parametrize("weights", ["samples", "uniform"])
@pytest.mark.parametrize("passes", [0, 1, 3, 8])
def test_the_geometric_median_is_that_of_the_updates(federation: Federation, weights: str, passes: int):
    run_ = SAMPLED | {"rounds": 1, "selection": None}
    outcome = run_strategy(federation, RFA(weights=weights, passes=passes), **run_)
    updates = []
    for h in range(len(SIZES)):
        hand, theta = ByHand(federation, h, 1), np.zeros(4)
        for rows in hand.batches():
            theta = theta - RATE * hand.gradient(theta, rows)
        updates.append(theta)
    mass = hospital_weights(np.array(SIZES), weights)
    mean = mass @ np.array(updates)
    due = geometric_median(np.array(updates), mass, passes=passes, start=mean).update if passes else mean
    assert_same(outcome.models[0], due)
    if not passes:
        assert_same(outcome.models, run_strategy(federation, FedAvg(weights=weights), **run_).models)


def test_the_geometric_median_is_the_same_with_masks_and_anywhere(federation: Federation):
    job = job_of(federation, RFA(), **SAMPLED)
    alone = run(federation, job, 1)
    same_models(alone, run(federation, job, 3))
    same_models(alone, run(federation, replace(job, secure=SecureSection(mode="execute")), 2))


def test_batch_norm_stays_at_home(federation: Federation):
    run = SAMPLED | {"model": NORMED}
    outcome = run_strategy(federation, FedBN(), **run)
    assert_same(outcome.models, run_strategy(federation, FedPer(head=("norm",)), **run).models)
    assert outcome.private is not None
    names = {name for name, part in outcome.layout.slices.items() if outcome.private[part].any()}
    assert names == {name for name in outcome.layout.names if name.startswith("norm.")}
    with pytest.raises(ConfigError, match=r"model\.name: fedbn keeps batch normalisation .* has none"):
        check_job(job_of(federation, FedBN()), federation)


@pytest.mark.parametrize("strategy", [FedSam(), Apfl(), PFedMe(), PerFedAvg()], ids=lambda each: type(each).__name__)
def test_other_optimisers_are_refused(federation: Federation, strategy):
    with pytest.raises(ConfigError, match=r"training\.optimizer: \w+ is defined for sgd, not for adam; use sgd"):
        check_job(job_of(federation, strategy, optimizer="adam"), federation)


def test_a_proximal_term_that_is_too_strong_is_reported(federation: Federation):
    with pytest.raises(HospitalFailed, match=r"training.learning_rate: 0.1 times lam 20 is 2 or more, so"):
        run_strategy(federation, PFedMe(lam=20.0))


SECTIONS = {
    "system": {"system": SystemSection(rounds={"minimum_cohort": 2}, availability=0.8)},
    "compression": {"compression": CompressionSection(name="grid")},
    "aggregation": {"aggregation": AggregationSection(name="trimmed_mean", assumed=0.2)},
    "adversary": {"adversary": AdversarySection(attack="sign_flip", share=0.3)},
    "secure": {"secure": SecureSection(mode="execute")},
    "privacy": {"privacy": PrivacySection(unit="hospital", delta=1e-3, noise_multiplier=1.0, clip=0.5)},
}


@pytest.mark.parametrize("section", SECTIONS)
def test_what_happens_to_updates_happens_to_those_of_programs(federation: Federation, section: str):
    """Where a program comes to federated averaging, so it does under each section, with the same bytes and times."""
    jobs = [
        replace(job_of(federation, strategy, **SAMPLED | {"selection": All()}), **SECTIONS[section])
        for strategy in (FedSam(rho=0.0, weights="uniform"), FedAvg(weights="uniform"))
    ]
    ours, plain = (run(federation, check_job(job, federation), 2) for job in jobs)
    assert_same(ours.models, plain.models)
    for one, other in zip(ours.rounds, plain.rounds, strict=True):
        assert (one.bytes_up, one.bytes_down, one.asked) == (other.bytes_up, other.bytes_down, other.asked)
        assert one.virtual_seconds == other.virtual_seconds


@pytest.mark.parametrize("section", ["system", "compression", "aggregation", "adversary"])
def test_what_is_about_updates_is_refused_for_rounds_of_several_calls(federation: Federation, section: str):
    job = replace(job_of(federation, RFA()), **SECTIONS[section])
    with pytest.raises(ConfigError, match=rf"^{section}: .* strategy 'RFA' uses client programs"):
        check_job(job, federation)

"""What hospitals send with noise beside updates: sizes and counts, what they cost, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.plugins import completed
from raysim.config.reading import checked
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation, pooled_rows
from raysim.engine.job import Outcome
from raysim.engine.privacy import noisy_statistics
from raysim.engine.privacy.privacy_ledger import guaranteed
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.privacy import accountant, quick
from raysim.privacy.events import Event, Gaussian, Laplace
from raysim.privacy.noisy_sums import Mechanism, total_of
from raysim.secure import traffic
from raysim.storage.encoding import decode, encode
from raysim.strategies.base import Send, Statistic, statistics_of
from raysim.strategies.hospital_clusters.clust_psi import ClustPsi
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.regressions.newton import Newton
from raysim.strategies.selections.sampling import All
from raysim.strategies.shared.label_counts import LabelCounts, label_counts
from tests.conftest import MakeFederation, job_of, run
from tests.privacy.divergences import by_divergences
from tests.privacy.test_patient import of_patients, private, section

SIZES = [9, 4, 13, 7, 0, 6]


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def noisy(federation: Federation, strategy=None, actors: int = 1, job=None, **keys) -> Outcome:
    settings = {"rounds": 3, "epochs": 1, **(job or {})}
    plain = {"mode": "local", "clip": 0.5, "sizes": "noisy", "declared_public": ("metrics",)}
    return private(federation, strategy, actors, settings, **plain | keys)


# --- answers


def test_each_release_of_a_kind_in_a_round_has_its_own_noise(federation):
    asked: list[np.ndarray] = []

    class Twice(FedAvg):
        def setup(self, view):
            asked.extend(label_counts(view, None) for _ in range(2))
            return super().setup(view)

    sent_twice = noisy(federation, Twice(), statistics={"label_counts": {"epsilon": 0.5}}, noise_multiplier=9.0)
    assert (asked[0] != asked[1]).any()
    assert sent_twice.privacy is not None
    once = noisy(federation, ClustPsi(clusters=2), statistics={"label_counts": {"epsilon": 0.5}}, noise_multiplier=9.0)
    assert sent_twice.privacy.epsilon == pytest.approx(once.privacy.epsilon + 0.5)


def test_counts_that_weigh_classes_and_counts_of_the_strategy_have_different_noise(federate, monkeypatch):
    """With the same noise, one of the two totals in shares, the difference would reveal the exact total."""
    federation = federate([9] * 12, [5] * 12)
    asked: list[np.ndarray] = []

    class Curious(FedAvg):
        def setup(self, view):
            asked.append(statistics_of(view, LabelCounts(view.classes, noisy=True))[:, 0].sum(axis=0))
            return super().setup(view)

    first: list[np.ndarray] = []
    monkeypatch.setattr(noisy_statistics, "total_of", lambda *args: first.append(total_of(*args)) or first[-1])
    keys = {"mode": "local", "noise_multiplier": 5.0, "statistics": {"label_counts": {"noise_multiplier": 30.0}}}
    job = replace(job_of(federation, Curious(), rounds=1), privacy=section(**keys), secure=SecureSection())
    outcome = run(federation, replace(job, work=replace(job.work, class_weights="balanced")), 1)
    exact = np.bincount(federation.y[pooled_rows(federation)], minlength=2)
    shares = np.sqrt(2 * 12 // 3 - 1)
    assert np.abs((asked[0] - shares * first[0]) / (1.0 - shares) - exact).min() > 1.0
    assert outcome.ledger.times("label_counts") == 2


def test_signatures_with_noise_cluster_hospitals_and_are_covered(federation):
    keys = {"sizes": "public", "declared_public": ("sizes", "metrics"), "noise_multiplier": 3.0}
    noisy_run = noisy(federation, Clustered(clusters=2), statistics={"signature": {"noise_multiplier": 5.0}}, **keys)
    assert noisy_run.privacy.covers == ("update", "signature")
    assert noisy_run.privacy.not_private == ()
    features = ClustPsi(clusters=2, by=("attributes",))
    both = {"feature_quantiles": {"noise_multiplier": 5.0}, "feature_counts": {"epsilon": 1.0}}
    noisy_run = noisy(federation, features, statistics=both, **keys)
    assert noisy_run.privacy.covers == ("update", "feature_quantiles", "feature_counts")


def test_blocks_of_features_are_asked_for_with_noise_only_where_they_are_named():
    plain = {"unit": "patient", "epsilon": 4, "statistics": {"signature": {"epsilon": 1.0}}}
    for settings, blocks in (({}, ["size", "prevalence"]), ({"signature": ["mean"]}, ["mean"])):
        config = checked({"strategy": {"name": "clustered", **settings}, "privacy": plain})
        assert list(completed(config, ["strategy"]).strategy.options()["signature"]) == blocks
    config = checked({"strategy": "clustered", "privacy": plain | {"statistics": {}}})
    assert len(completed(config, ["strategy"]).strategy.options()["signature"]) == 5


# --- sizes


def test_sizes_are_released_with_noise_once_and_all_else_uses_them(federation):
    seen: list[np.ndarray] = []

    class Seeing(FedAvg):
        def setup(self, view):
            seen.append(view.sizes)
            return super().setup(view)

    outcome = noisy(federation, Seeing(), statistics={"sizes": {"epsilon": 0.3}}, epsilon=3.0)
    (sizes,) = seen
    assert (sizes >= 1).all()
    assert sizes.tolist() != SIZES
    assert outcome.privacy.covers == ("update", "size")
    assert outcome.privacy.not_private == ()
    assert outcome.privacy.epsilon == pytest.approx(3.0, abs=1e-2)
    assert all(row.cohort_size == len(SIZES) for row in outcome.rounds)  # also whoever has no rows


def test_sizes_with_hardly_any_noise_are_those_that_there_are(federate):
    """The same bits as with sizes that are public; a hospital without rows then still counts as one."""
    full = federate([9, 4, 13])
    keys = {"noise_multiplier": 1.0}
    public = noisy(full, sizes="public", declared_public=("sizes", "metrics"), **keys)
    outcome = noisy(full, statistics={"sizes": {"epsilon": 1e6}}, **keys)
    assert (public.models == outcome.models).all()
    pooled = {"mode": "pooled", "rate": 1.0, "clip": 0.2, "noise_multiplier": 1.0}
    public = noisy(full, sizes="public", declared_public=("sizes", "metrics"), **pooled)
    assert (noisy(full, statistics={"sizes": {"epsilon": 1e6}}, **pooled).models == public.models).all()


@pytest.mark.parametrize("mode", ["pooled", "local"])
def test_a_divisor_uses_the_released_size(federate, mode):
    """With one patient more at a hospital that tells the same size, everybody else counts the same."""
    wide = federate([4, 1], [0, 5], features=3000)
    keys = {"mode": mode, "noise_multiplier": 3.0, "clip": 0.5, "statistics": {"sizes": {"epsilon": 1e6}}}
    job = {"rounds": 1, "learning_rate": 2.0, "batch_size": 0}
    models = noisy(wide, job=job, **keys | ({"rate": 1.0} if mode == "pooled" else {})).models[0]
    expected = 3.0 * 0.5 * 2.0 / 5 if mode == "pooled" else 3.0 * 0.5 * 2.0 * np.hypot(0.8 / 4, 0.2 / 1)
    assert models.std() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("mode", "origin"), [("pooled", "seeded"), ("local", "seeded"), ("local", "system")])
def test_a_run_resumes_with_the_released_sizes(federation, mode, origin):
    keys = {"mode": mode, "noise_multiplier": 1.0, "clip": 0.2, "noise": origin}
    keys |= {"rate": 1.0} if mode == "pooled" else {}
    keys |= {"sizes": "noisy", "declared_public": ("metrics",)}
    job = replace(job_of(federation, FedAvg(), rounds=4), privacy=section(**keys))
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    events = list(JobRun(pool, job).events(2))
    (stood,) = [event for event in events if isinstance(event, RunState) and event.round == 2]
    again, _ = decode(encode(stood, "print", job.strategy), job.strategy)
    assert again.guarantee["first"]["sizes"].tolist() == stood.guarantee["first"]["sizes"].tolist()
    *_, outcome = JobRun(pool, job, again).events()
    assert outcome.privacy == events[-1].privacy
    if origin == "seeded":
        assert (outcome.models == events[-1].models).all()


def test_the_bits_do_not_depend_on_how_many_actors_there_are(federation):
    keys = {"noise_multiplier": 1.0, "statistics": {"label_counts": {"noise_multiplier": 2.0}}}
    alone, several = (noisy(of_patients(federation, 2), ClustPsi(clusters=2), actors, **keys) for actors in (1, 4))
    assert (alone.models == several.models).all()
    assert alone.privacy == several.privacy


@pytest.mark.parametrize(
    ("strategy", "keys"),
    [
        (Newton(), {"mode": "pooled"}),
        (Clustered(clusters=2, recluster_every=1), {"declared_public": ("metrics", "signature", "loss")}),
    ],
    ids=["newton", "clusters by losses"],
)
def test_a_hospital_whose_rows_are_hidden_may_have_none(federation, strategy, keys):
    assert 0 in SIZES
    outcome = noisy(federation, strategy, noise_multiplier=1.0, **keys)
    assert np.isfinite(outcome.models).all()
    assert all(row.cohort_size == len(SIZES) for row in outcome.rounds)


# --- what it costs


def test_balanced_classes_are_weighed_by_noisy_counts(federation):
    job = replace(job_of(federation, FedAvg(), rounds=1), privacy=section(mode="local", clip=0.5, noise_multiplier=5.0))
    job = replace(job, work=replace(job.work, class_weights="balanced"))
    exact = run(federation, job, 1).privacy
    assert "label_counts" in exact.not_private
    assert job.privacy is not None
    statistics = {"label_counts": {"epsilon": 0.5}}
    noisy_run = replace(job, privacy=PrivacySection(**job.privacy.model_dump() | {"statistics": statistics}))
    outcome = run(federation, noisy_run, 1)
    assert outcome.privacy.covers == ("update", "label_counts")
    assert not (outcome.models == run(federation, job, 1).models).all()


@pytest.mark.parametrize("noise", [{"epsilon": 1e9}, {"noise_multiplier": 2.0}], ids=["laplace", "normal"])
def test_counts_that_weigh_classes_are_masked_where_sums_are(federation, noise):
    """To the same bits, by shares of normal noise, and with the bytes of the protocol."""
    private_section = section(mode="local", noise_multiplier=5.0, statistics={"label_counts": noise})
    job = replace(job_of(federation, FedAvg(), rounds=1), privacy=private_section)
    job = replace(job, work=replace(job.work, class_weights="balanced"))
    plain = run(federation, job, 1)
    model, execute = (run(federation, replace(job, secure=SecureSection(mode=m)), 2) for m in ("model", "execute"))
    np.testing.assert_array_equal(model.models, execute.models)
    assert model.setup == execute.setup
    (sent,) = [each for _, kind, _, each, _ in model.ledger.entries if kind == "label_counts"]
    assert (np.asarray(sent) == traffic.up(2, 5)).all()
    assert model.setup.down == 6 * traffic.down(5)
    assert model.privacy.covers == plain.privacy.covers
    if "epsilon" in noise:  # hardly any, so that plain counts are the same
        np.testing.assert_array_equal(model.models, plain.models)


def test_shares_of_normal_noise_hold_it_all():
    """Two thirds of seven hospitals but one are three; Laplace noise has no shares."""
    shares = Mechanism(Gaussian(6.0), "seeded").in_shares(7)
    assert shares.event == Gaussian(6.0 / 3**0.5)
    assert Mechanism(Gaussian(6.0), "seeded").in_shares(2).event == Gaussian(6.0)
    assert Mechanism(Laplace(6.0), "seeded").in_shares(7).event == Laplace(6.0)


@pytest.mark.parametrize("mode", ["pooled", "local"])
def test_released_statistics_are_charged_to_the_same_epsilon(federation, mode):
    statistics = {"sizes": {"epsilon": 0.25}, "label_counts": {"noise_multiplier": 8.0}}
    rate = {"rate": 1.0} if mode == "pooled" else {}  # whose cost has a closed form
    guaranteed = noisy(federation, mode=mode, statistics=statistics, epsilon=2.0, **rate).privacy
    assert guaranteed.epsilon <= 2.0 + 1e-2
    alone = noisy(
        federation, mode=mode, sizes="public", declared_public=("sizes", "metrics"), epsilon=2.0, **rate
    ).privacy

    def noise(of):
        return of.noise_multiplier if mode == "pooled" else of.by_hospital["most"][1]

    assert noise(guaranteed) > 1.1 * noise(alone)


@pytest.mark.parametrize("mode", ["pooled", "local"])
@pytest.mark.parametrize(
    ("strategy", "statistics", "job"),
    [
        (Clustered(clusters=2, signature=("size",), recluster_every=2), {"signature": {}, "loss": {}}, {"rounds": 9}),
        (ClustPsi(clusters=2), {"label_counts": {"epsilon": 0.5}}, {"class_weights": "balanced"}),
    ],
    ids=["losses every second round", "label counts of two uses"],
)
def test_a_repeated_release_is_charged_each_time(federation, mode, strategy, statistics, job):
    keys = {"mode": mode, "epsilon": 3.0, "statistics": statistics} | ({"rate": 1.0} if mode == "pooled" else {})
    keys |= {"sizes": "public", "declared_public": ("sizes", "metrics")}
    made = job_of(federation, strategy, rounds=job.get("rounds", 3), epochs=1, selection=All())
    work = replace(made.work, class_weights=job.get("class_weights", "none"))
    made = replace(made, privacy=section(**keys), work=work)
    statement = run(federation, made, 1).privacy
    assert statement.epsilon <= 3.0 * (1 + 1e-3)
    assert statement.epsilon == pytest.approx(guaranteed(made, federation).epsilon)


@pytest.mark.parametrize("mode", ["pooled", "local"])
def test_a_patient_at_two_hospitals_changes_a_secure_sum_by_two_bounds(federate, mode):
    """The noise of a sum hides one bound; two answers with all of the noise each cost less than half as much."""
    federation = federate([9] * 12)
    keys = {"mode": mode, "noise_multiplier": 1e4, "statistics": {"label_counts": {"noise_multiplier": 3.0}}}
    made = section(**keys | ({"rate": 1.0} if mode == "pooled" else {}))
    job = replace(job_of(federation, FedAvg(), rounds=1, selection=All()), privacy=made)
    job = replace(job, work=replace(job.work, class_weights="balanced"))
    clear, hidden = (run(federation, replace(job, secure=s), 1).privacy for s in (None, SecureSection()))
    assert clear.epsilon == hidden.epsilon
    bound = accountant.epsilon if mode == "pooled" else quick.epsilon_of
    assert clear.at_two_hospitals == pytest.approx(bound([Gaussian(3.0, count=2)], 1e-3), rel=1e-2)
    assert hidden.at_two_hospitals == pytest.approx(bound([Gaussian(3.0 / 2.0)], 1e-3), rel=1e-2)


def test_normal_noise_is_composed_with_training_and_not_added(federation):
    """Local: by divergences at once, below the sum of what each costs; the golden composition of a Gaussian beside."""
    steps = quick.epsilon(4.0, 1.0, 9, 1e-3)
    beside = quick.epsilon(3.0, 1.0, 1, 1e-3)
    both = quick.epsilon(4.0, 1.0, 9, 1e-3, 1 / 3.0**2)
    assert max(steps, beside) < both < steps + beside
    assert both == pytest.approx(quick.epsilon_of([Gaussian(4.0, 1.0, 9), Gaussian(3.0)], 1e-3))
    assert quick.epsilon(0.0, 1.0, 0, 1e-3, 1 / 9) == pytest.approx(beside)
    keys = {"noise_multiplier": 4.0, "sizes": "noisy", "statistics": {"sizes": {"noise_multiplier": 3.0}}}
    outcome = noisy(federation, job={"rounds": 9, "batch_size": 0}, **keys)
    assert outcome.privacy.epsilon == pytest.approx(both)


@pytest.mark.usefixtures("usual_steps")
def test_the_golden_composition_of_laplace_normal_and_sampled_noise():
    events: list[Event] = [Laplace(2.0), Gaussian(10.0), Gaussian(2.0, 0.1, 50)]
    assert accountant.by_distributions(events, 1e-5) == pytest.approx(2.120586, abs=1e-4)
    assert by_divergences(events, 1e-5) == pytest.approx(2.314327, abs=1e-4)
    each = [accountant.epsilon([event], 1e-5) for event in events]
    assert sum(each) == pytest.approx(2.493152, abs=1e-4)


# --- what is refused


REFUSED = [
    ({"unit": "hospital", "sizes": "noisy"}, r"privacy.sizes: noisy .*privacy.unit is hospital"),
    ({"unit": "hospital", "statistics": {"label_counts": {}}}, r"privacy.statistics.label_counts: .*unit: hospital"),
    ({"statistics": {"predictions": {}}}, r"privacy.statistics.predictions: .*never released with noise"),
    ({"statistics": {"update": {}}}, r"privacy.statistics.update: .*never released with noise"),
    ({"statistics": {"sizes": {"epsilon": 1.0}}}, r"privacy.statistics.sizes: needs privacy.sizes: noisy"),
    ({"sizes": "noisy", "declared_public": ("sizes",)}, r"privacy.declared_public: 'size' .*privacy.statistics.size"),
    (
        {"statistics": {"label_counts": {"epsilon": 1.0, "noise_multiplier": 1.0}}},
        r"privacy.statistics.label_counts.noise_multiplier: 1 sets normal noise, and epsilon: 1",
    ),
    (
        {"statistics": {"label_counts": {"epsilon": 2.0}}, "epsilon": 2.0},
        r"privacy.statistics.label_counts.epsilon: 2 leaves nothing of privacy.epsilon: 2",
    ),
]


@pytest.mark.parametrize(("keys", "line"), REFUSED)
def test_noise_that_contradicts_another_key_is_refused(keys, line):
    with pytest.raises(ConfigError, match=line):
        section(**keys)


def test_normal_noise_that_leaves_nothing_for_training_is_refused(federation):
    for mode in ("pooled", "local"):
        keys = {
            "mode": mode,
            "epsilon": 1.0,
            "sizes": "public",
            "statistics": {"label_counts": {"noise_multiplier": 0.5}},
        }
        with pytest.raises(ConfigError, match=r"privacy.statistics: .*leaves nothing of privacy.epsilon: 1 "):
            noisy(federation, **keys)


def test_answers_that_are_no_sums_are_refused(federation):
    class Largest(Statistic):
        name = "largest"
        sent = Send((3,), "largest", how="each")

        def value(self, at):
            return at.rows.X.max(axis=0)

    class Curious(FedAvg):
        def setup(self, view):
            statistics_of(view, Largest())
            return super().setup(view)

    with pytest.raises(ConfigError, match=r"privacy.statistics.largest: .*do not send this kind as sums over rows"):
        noisy(federation, Curious(), statistics={"largest": {}}, noise_multiplier=1)
    strategy = ClustPsi(clusters=2, privacy_epsilon=1.0)
    with pytest.raises(ConfigError, match=r"privacy.statistics.label_counts: strategy.privacy_epsilon"):
        noisy(federation, strategy, statistics={"label_counts": {}}, noise_multiplier=1.0)

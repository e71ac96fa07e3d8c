"""What hospitals tell with noise beside updates: sizes and counts, what they cost, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.plugins import completed
from raysim.config.privacy import PrivacySection
from raysim.config.reading import checked
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.coordinator import Coordinator
from raysim.engine.hospitals import HospitalGroup
from raysim.engine.job import Outcome, RunState
from raysim.engine.job_checks import check_job
from raysim.engine.messages import Inquiry, StatisticNoise
from raysim.engine.updates.contributions import drawn
from raysim.engine.updates.noisy_answers import noisy_answer, without_rows
from raysim.privacy import accountant, quick
from raysim.privacy.events import Event, Gaussian, Laplace
from raysim.privacy.noisy_sums import Bounds, Mechanism, clipped_sum, told
from raysim.storage.checkpoints import decode, encode
from raysim.strategies.base import HospitalRows, MeanLoss, Size
from raysim.strategies.hospital_clusters.clust_psi import ClustPsi
from raysim.strategies.hospital_clusters.clustered import Clustered
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.fedper import FedPer
from raysim.strategies.personal.fine_tuning import FineTuning
from raysim.strategies.references.local import Local
from raysim.strategies.selections.fedcls import LabelPresence
from raysim.strategies.shared.feature_bins import FeatureCounts, FeatureQuantiles
from raysim.strategies.shared.label_counts import LabelCounts
from raysim.strategies.shared.signatures import Signature
from tests.conftest import MakeFederation, job_of, run, with_patients
from tests.privacy.test_patient import of_patients, private, section

SIZES = [9, 4, 13, 7, 0, 6]


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def noisy(federation: Federation, strategy=None, actors: int = 1, job=None, **keys) -> Outcome:
    settings = {"rounds": 3, "epochs": 1, **(job or {})}
    plain = {"mode": "local", "clip": 0.5, "sizes": "noisy", "declared_public": ("metrics",)}
    return private(federation, strategy, actors, settings, **plain | keys)


# --- clipped sums


@pytest.mark.parametrize(
    ("event", "rows", "expected"),
    [
        (Laplace(1.0), [[3.0, -1.0], [0.0, 0.0], [0.5, 0.0]], [0.75 + 0.5, -0.25]),
        (Gaussian(1.0), [[3.0, -4.0], [0.0, 0.0], [0.5, 0.0]], [0.6 + 0.5, -0.8]),
    ],
)
def test_each_unit_is_clipped_by_the_norm_of_its_noise(event: Event, rows, expected):
    how, bounds = Mechanism(event, "seeded"), Bounds(1.0, 1.0)
    assert clipped_sum(np.array(rows), np.arange(3), how, bounds) == pytest.approx(expected, abs=1e-9)


def test_rows_of_a_unit_are_added_before_they_are_clipped():
    rows, how = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), Mechanism(Laplace(1.0), "seeded")
    # 2 and 1 of the first unit are clipped to 2/3 and 1/3, and the second unit stays.
    assert clipped_sum(rows, np.array([0, 0, 0, 1]), how, Bounds(1.0, 1.0)) == pytest.approx([5 / 3, 1 / 3])
    assert clipped_sum(rows[:0], np.zeros(0, dtype=np.int64), how, Bounds(1.0, 1.0)).tolist() == [0.0, 0.0]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=2, max_size=2))
def test_whatever_a_unit_adds_the_sum_moves_by_at_most_the_bound(entries):
    with np.errstate(all="ignore"):
        for event in (Laplace(1.0), Gaussian(1.0)):
            moved = clipped_sum(np.array([entries]), np.arange(1), Mechanism(event, "seeded"), Bounds(3.0, 2.0))
            assert np.abs(moved).sum() <= 3.0
            assert isinstance(event, Laplace) or np.linalg.norm(moved) <= 2.0


@pytest.mark.parametrize(("event", "deviation"), [(Laplace(4.0), 4.0 * 2**0.5 * 3.0), (Gaussian(4.0), 4.0 * 2.0)])
@pytest.mark.parametrize("origin", ["seeded", "system"])
def test_noise_has_the_deviation_of_its_multiplier_times_the_bound(event: Event, deviation, origin):
    rows, unit = np.zeros((1, 40_000)), np.zeros(1, dtype=np.int64)
    drawn = told(rows, unit, Mechanism(event, origin), Bounds(3.0, 2.0), 7, "dp test", 0)
    assert drawn.std() == pytest.approx(deviation, rel=0.03)
    assert drawn.mean() == pytest.approx(0.0, abs=5 * deviation / 200)


# --- answers of hospitals


def test_a_count_with_noise_is_of_patients_each_counted_once(federate):
    """Forty hospitals of two patients with four rows each: rows of a patient add one together."""
    wide = of_patients(federate([8] * 40, [0] * 40), 4)
    noise = StatisticNoise("patient", 4, Mechanism(Laplace(1e-9), "seeded"))
    group, work = HospitalGroup(np.arange(40), pools=False, device="cpu"), job_of(wide, FedAvg()).work
    for question in (Size(), LabelCounts()):
        answers = np.stack(group.ask(Inquiry(work, question, 0, noise=noise)))
        assert answers.sum(axis=1) == pytest.approx(np.full(40, 2.0), abs=1e-6)


def test_at_most_so_many_rows_of_a_patient_are_looked_at(federate):
    crowd = of_patients(federate([40]), 40)
    group, work = HospitalGroup(np.arange(1), pools=False, device="cpu"), job_of(crowd, FedAvg()).work
    noise = StatisticNoise("patient", 3, Mechanism(Gaussian(1e-9), "seeded"))
    loose = replace(LabelCounts())
    object.__setattr__(loose, "bounds", lambda rows: (99.0, 99.0))
    (counts,) = group.ask(Inquiry(work, loose, 0, noise=noise))
    assert counts.sum() == pytest.approx(3, abs=1e-6)


def test_one_row_each_gives_the_exact_answer_but_for_the_noise(federate):
    federation = federate([9, 4, 0])
    group, work = HospitalGroup(np.arange(3), pools=False, device="cpu"), job_of(federation, FedAvg()).work
    edges = np.array([[-0.5, 0.5], [0.0, 1.0], [-1.0, 0.0]])
    for question in (Size(), LabelCounts(), FeatureCounts(edges)):
        exact = np.stack(group.ask(Inquiry(work, question, 0)))
        for event in (Laplace(1e-12), Gaussian(1e-12)):
            noise = StatisticNoise("example", 1, Mechanism(event, "seeded"))
            assert np.stack(group.ask(Inquiry(work, question, 0, noise=noise))) == pytest.approx(exact, abs=1e-8)


def test_each_time_that_a_kind_is_told_in_a_round_it_gets_noise_of_its_own(federation):
    asked: list[np.ndarray] = []

    class Twice(FedAvg):
        def setup(self, view):
            asked.extend(np.stack(view.ask(LabelCounts())) for _ in range(2))
            return super().setup(view)

    told_twice = noisy(federation, Twice(), statistics={"label_counts": {"epsilon": 0.5}}, noise_multiplier=9.0)
    assert (asked[0] != asked[1]).any()
    assert told_twice.privacy is not None
    once = noisy(federation, ClustPsi(clusters=2), statistics={"label_counts": {"epsilon": 0.5}}, noise_multiplier=9.0)
    assert told_twice.privacy.epsilon == pytest.approx(once.privacy.epsilon + 0.5)


# --- what answers are made of sums


def rows_of(n: int, columns: int, seed: int = 0, classes: int = 2) -> HospitalRows:
    rng = np.random.default_rng(seed)
    observed = rng.random((n, columns)) < 0.8
    X = np.where(observed, rng.normal(size=(n, columns)), 0.0)
    y, losses = rng.integers(classes, size=n), rng.random((2, n))
    return HospitalRows(X=X, y=y, observed=observed, classes=classes, losses=losses, rng=rng)


def edges_of(columns: int) -> np.ndarray:
    return np.tile([-1.0, 0.0, 1.0], (columns, 1))


QUESTIONS: list[Any] = [
    Size(),
    LabelCounts(),
    LabelPresence(),
    MeanLoss(),
    FeatureCounts(edges_of(4)),
    Signature(),
    Signature(("size", "prevalence")),
    Signature(("missingness",)),
    Signature(("mean", "size")),
]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("question", QUESTIONS, ids=repr)
def test_sums_without_noise_give_the_answer(question, classes):
    rows = rows_of(50, 4, classes=classes)
    exact = question.answer(rows)
    summed = question.from_sums(question.added(rows).sum(axis=0), without_rows(rows))
    assert summed.shape == exact.shape
    there = ~np.isnan(summed)  # what the blocks of a signature do not need is not asked
    assert summed[there] == pytest.approx(exact[there], abs=1e-7)
    assert there.sum() >= 1 + (len(exact) - 1) * (question in (Signature(), Size()) or not hasattr(question, "blocks"))


def test_quantiles_out_of_fixed_bins_are_near_the_exact_ones():
    rows = rows_of(4000, 3)
    question = FeatureQuantiles(10)
    exact = question.answer(rows)
    summed = question.from_sums(question.added(rows).sum(axis=0), without_rows(rows))
    assert summed[:30] == pytest.approx(exact[:30], abs=0.08)  # a bin is 0.16 wide
    assert (summed[30:] == exact[30:]).all()
    none = question.from_sums(np.full(3 * 65, -1.0), without_rows(rows))
    assert np.isnan(none[:30]).all()
    assert (none[30:] == 0).all()


@pytest.mark.parametrize("question", [*QUESTIONS, FeatureQuantiles(5)], ids=repr)
def test_answers_out_of_noise_alone_are_answers(question):
    rows = rows_of(0, 4)
    for seed in range(20):
        noise = 50 * np.random.default_rng(seed).normal(size=question.added(rows).shape[1])
        answer = question.from_sums(noise, without_rows(rows))
        assert answer.shape == question.answer(rows).shape
        assert not np.isinf(answer).any()
        if isinstance(question, Signature):
            assert (answer[1] >= 0) & (answer[1] <= 1)
            assert answer[0] >= 0


@given(
    n=st.integers(1, 12),
    columns=st.integers(1, 5),
    classes=st.integers(2, 4),
    scale=st.sampled_from([0.1, 1.0, 30.0, 1e6]),
    seed=st.integers(0, 2**16),
)
def test_a_row_adds_no_more_than_its_question_says(n, columns, classes, scale, seed):
    rows = rows_of(n, columns, seed, classes)
    rows = replace(rows, X=rows.X * scale, losses=rows.losses * scale)
    for question in (*QUESTIONS, FeatureQuantiles(5), FeatureCounts(edges_of(columns))):
        if isinstance(question, FeatureCounts) and len(question.edges) != columns:
            continue
        added = question.added(rows)
        absolute, euclidean = question.bounds(without_rows(rows))
        assert np.abs(added).sum(axis=1).max() <= absolute * (1 + 1e-12)
        assert np.linalg.norm(added, axis=1).max() <= euclidean * (1 + 1e-12)


def test_signatures_with_noise_cluster_hospitals_and_are_covered(federation):
    keys = {"sizes": "public", "declared_public": ("sizes", "metrics"), "noise_multiplier": 3.0}
    told_noisily = noisy(federation, Clustered(clusters=2), statistics={"signature": {"noise_multiplier": 5.0}}, **keys)
    assert told_noisily.privacy.covers == ("update", "signature")
    assert told_noisily.privacy.not_private == ()
    features = ClustPsi(clusters=2, by=("attributes",))
    both = {"feature_quantiles": {"noise_multiplier": 5.0}, "feature_counts": {"epsilon": 1.0}}
    told_noisily = noisy(federation, features, statistics=both, **keys)
    assert told_noisily.privacy.covers == ("update", "feature_quantiles", "feature_counts")


def test_a_real_label_has_no_signature_with_noise(federation):
    rows = replace(rows_of(5, 2), classes=0)
    with pytest.raises(ConfigError, match=r"privacy.statistics.signature: .*a number"):
        noisy_answer(
            Signature(),
            rows,
            drawn(np.arange(5), np.arange(5), 1),
            StatisticNoise("example", 1, Mechanism(Laplace(1.0), "seeded")),
            0,
            0,
            0,
        )


def test_blocks_of_features_are_asked_for_with_noise_only_where_they_are_named():
    plain = {"unit": "patient", "epsilon": 4, "statistics": {"signature": {"epsilon": 1.0}}}
    for own, blocks in (({}, ["size", "prevalence"]), ({"signature": ["mean"]}, ["mean"])):
        config = checked({"strategy": {"name": "clustered", **own}, "privacy": plain})
        assert list(completed(config, ["strategy"]).strategy.own()["signature"]) == blocks
    config = checked({"strategy": "clustered", "privacy": plain | {"statistics": {}}})
    assert len(completed(config, ["strategy"]).strategy.own()["signature"]) == 5


# --- sizes


def test_sizes_are_told_with_noise_once_and_all_else_goes_by_them(federation):
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
    told = noisy(full, statistics={"sizes": {"epsilon": 1e6}}, **keys)
    assert (public.bank == told.bank).all()
    pooled = {"mode": "pooled", "rate": 1.0, "clip": 0.2, "noise_multiplier": 1.0}
    public = noisy(full, sizes="public", declared_public=("sizes", "metrics"), **pooled)
    assert (noisy(full, statistics={"sizes": {"epsilon": 1e6}}, **pooled).bank == public.bank).all()


@pytest.mark.parametrize("mode", ["pooled", "local"])
def test_a_divisor_is_of_the_size_that_was_told(federate, mode):
    """With one patient more at a hospital that tells the same size, everybody else counts the same."""
    wide = federate([4, 1], [0, 5], features=3000)
    keys = {"mode": mode, "noise_multiplier": 3.0, "clip": 0.5, "statistics": {"sizes": {"epsilon": 1e6}}}
    job = {"rounds": 1, "learning_rate": 2.0, "batch_size": 0}
    bank = noisy(wide, job=job, **keys | ({"rate": 1.0} if mode == "pooled" else {})).bank[0]
    expected = 3.0 * 0.5 * 2.0 / 5 if mode == "pooled" else 3.0 * 0.5 * 2.0 * np.hypot(0.8 / 4, 0.2 / 1)
    assert bank.std() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(("mode", "origin"), [("pooled", "seeded"), ("local", "seeded"), ("local", "system")])
def test_a_run_goes_on_with_the_sizes_that_were_told(federation, mode, origin):
    keys = {"mode": mode, "noise_multiplier": 1.0, "clip": 0.2, "noise": origin}
    keys |= {"rate": 1.0} if mode == "pooled" else {}
    keys |= {"sizes": "noisy", "declared_public": ("metrics",)}
    job = replace(job_of(federation, FedAvg(), rounds=4), privacy=section(**keys))
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    events = list(Coordinator(pool).run(job, every=2))
    (stood,) = [event for event in events if isinstance(event, RunState) and event.round == 2]
    again, _ = decode(encode(stood, "print", job.strategy), job.strategy)
    assert again.reception["first"]["sizes"].tolist() == stood.reception["first"]["sizes"].tolist()
    *_, outcome = Coordinator(pool).run(job, again)
    assert outcome.privacy == events[-1].privacy
    if origin == "seeded":
        assert (outcome.bank == events[-1].bank).all()


def test_the_bits_do_not_depend_on_how_many_actors_there_are(federation):
    keys = {"noise_multiplier": 1.0, "statistics": {"label_counts": {"noise_multiplier": 2.0}}}
    alone, several = (noisy(of_patients(federation, 2), ClustPsi(clusters=2), actors, **keys) for actors in (1, 4))
    assert (alone.bank == several.bank).all()
    assert alone.privacy == several.privacy


# --- figures


def figured(federation: Federation, strategy=None, job=None, **keys) -> Outcome:
    statistics = {"metrics": keys.pop("metrics", {"epsilon": 0.5})}
    public = {"sizes": "public", "declared_public": ("sizes",), "statistics": statistics}
    return noisy(federation, strategy, job=job, **public | keys)


def test_figures_with_hardly_any_noise_are_those_of_binned_scores(federate):
    full = federate([30, 40], [60, 80])
    exact = noisy(full, sizes="public", declared_public=("sizes", "metrics"), noise_multiplier=1.0)
    told_noisily = figured(full, metrics={"epsilon": 1e9}, noise_multiplier=1.0)
    assert told_noisily.figures["global"] == pytest.approx(exact.figures["global"], abs=0.05)
    assert (told_noisily.figures["global"][:, :2] == exact.figures["global"][:, :2]).all()
    assert told_noisily.metrics["global"]["pooled_auroc"] == pytest.approx(
        exact.metrics["global"]["pooled_auroc"], abs=0.02
    )
    assert told_noisily.metrics["global"].keys() == exact.metrics["global"].keys() - {
        name for name in exact.metrics["global"] if name.startswith("calibration") or "_gap" in name
    }
    assert (told_noisily.bank == exact.bank).all()


def test_every_evaluation_is_told_once_with_noise_of_its_own_and_paid_for(federation):
    outcome = figured(federation, job={"rounds": 4}, noise_multiplier=9.0, metrics={"epsilon": 0.5})
    assert outcome.privacy.covers == ("update", "metrics")
    assert outcome.privacy.not_private == ()
    silent = noisy(
        federation, sizes="public", declared_public=("sizes", "metrics"), noise_multiplier=9.0, job={"rounds": 4}
    )
    assert outcome.privacy.epsilon == pytest.approx(silent.privacy.epsilon + 4 * 0.5)
    assert [row.training_loss for row in outcome.rounds] == [None] * 4
    assert outcome.convergence is None
    # Hospitals without test rows tell noise too, and another one each time.
    rows = [row.metrics["global"]["log_loss"] for row in outcome.rounds]
    assert len(set(rows)) == 4
    once = figured(federation, job={"rounds": 4, "every": 0}, noise_multiplier=9.0)
    assert once.privacy.epsilon == pytest.approx(silent.privacy.epsilon + 0.5)


def test_models_that_stay_at_hospitals_are_not_evaluated_with_noise(federation):
    """They are made of patients without noise, who are then in all figures of them."""
    assert list(figured(federation, FineTuning(), noise_multiplier=1.0).figures) == ["global"]
    for strategy in (Local(), FedPer()):
        with pytest.raises(ConfigError, match=r"privacy.statistics.metrics: .*stay at hospitals.*declare metrics"):
            figured(federation, strategy, noise_multiplier=1.0)


def test_an_epsilon_pays_for_all_evaluations(federation):
    promised = figured(federation, epsilon=3.0, metrics={"epsilon": 0.25}).privacy
    assert promised.epsilon == pytest.approx(3.0, abs=1e-2)
    with pytest.raises(ConfigError, match=r"costs epsilon 6, metrics 3 times.*evaluation.every"):
        figured(federation, epsilon=3.0, metrics={"epsilon": 2.0})


def test_a_run_under_noisy_figures_goes_on_bit_for_bit(federation):
    keys = {"mode": "local", "noise_multiplier": 1.0, "clip": 0.2, "statistics": {"metrics": {"epsilon": 0.5}}}
    job = replace(job_of(federation, FedAvg(), rounds=4), privacy=section(**keys | {"declared_public": ("sizes",)}))
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    events = list(Coordinator(pool).run(job, every=2))
    (stood,) = [event for event in events if isinstance(event, RunState) and event.round == 2]
    again, _ = decode(encode(stood, "print", job.strategy), job.strategy)
    *_, outcome = Coordinator(pool).run(job, again)
    np.testing.assert_array_equal(outcome.figures["global"], events[-1].figures["global"])
    np.testing.assert_equal([row.metrics for row in outcome.rounds], [row.metrics for row in events[-1].rounds])
    assert outcome.privacy == events[-1].privacy


@pytest.mark.parametrize(
    ("keys", "classes", "line"),
    [
        ({"groups": ["sex"]}, 2, r"privacy.statistics.metrics: .*evaluation.groups: sex"),
        ({"predictions": True}, 2, r"privacy.statistics.metrics: .*evaluation.predictions"),
        ({}, 3, r"privacy.statistics.metrics: .*two classes"),
    ],
)
def test_figures_that_noisy_counts_do_not_give_are_refused(federate, keys, classes, line):
    federation = with_patients(federate(SIZES, classes=classes))
    job = job_of(federation, FedAvg(), **keys)
    job = replace(job, privacy=section(mode="local", statistics={"metrics": {}}, declared_public=("sizes",)))
    with pytest.raises(ConfigError, match=line):
        check_job(job, federation)


# --- what it costs


def test_balanced_classes_are_weighed_by_noisy_counts(federation):
    job = replace(job_of(federation, FedAvg(), rounds=1), privacy=section(mode="local", clip=0.5, noise_multiplier=5.0))
    job = replace(job, work=replace(job.work, class_weights="balanced"))
    exact = run(federation, job, 1).privacy
    assert "label_counts" in exact.not_private
    assert job.privacy is not None
    statistics = {"label_counts": {"epsilon": 0.5}}
    told_noisily = replace(job, privacy=PrivacySection(**job.privacy.model_dump() | {"statistics": statistics}))
    outcome = run(federation, told_noisily, 1)
    assert outcome.privacy.covers == ("update", "label_counts")
    assert not (outcome.bank == run(federation, job, 1).bank).all()


@pytest.mark.parametrize("mode", ["pooled", "local"])
def test_what_is_told_is_paid_for_out_of_the_same_epsilon(federation, mode):
    statistics = {"sizes": {"epsilon": 0.25}, "label_counts": {"noise_multiplier": 8.0}}
    rate = {"rate": 1.0} if mode == "pooled" else {}  # whose cost has a closed form
    promised = noisy(federation, mode=mode, statistics=statistics, epsilon=2.0, **rate).privacy
    assert promised.epsilon <= 2.0 + 1e-2
    alone = noisy(
        federation, mode=mode, sizes="public", declared_public=("sizes", "metrics"), epsilon=2.0, **rate
    ).privacy

    def noise(of):
        return of.noise_multiplier if mode == "pooled" else of.by_hospital["most"][1]

    assert noise(promised) > 1.1 * noise(alone)


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


def test_the_golden_composition_of_laplace_normal_and_sampled_noise():
    events: list[Event] = [Laplace(2.0), Gaussian(10.0), Gaussian(2.0, 0.1, 50)]
    assert accountant.by_distributions(events, 1e-5) == pytest.approx(2.120586, abs=1e-4)
    assert accountant.by_divergences(events, 1e-5) == pytest.approx(2.314327, abs=1e-4)
    each = [accountant.epsilon([event], 1e-5) for event in events]
    assert sum(each) == pytest.approx(2.493152, abs=1e-4)


# --- what is refused


REFUSED = [
    ({"unit": "hospital", "sizes": "noisy"}, r"privacy.sizes: noisy .*privacy.unit: hospital"),
    ({"unit": "hospital", "statistics": {"label_counts": {}}}, r"privacy.statistics.label_counts: .*unit: hospital"),
    ({"statistics": {"predictions": {}}}, r"privacy.statistics.predictions: .*never told with noise"),
    ({"statistics": {"update": {}}}, r"privacy.statistics.update: .*never told with noise"),
    ({"statistics": {"sizes": {"epsilon": 1.0}}}, r"privacy.statistics.sizes: is for privacy.sizes: noisy"),
    ({"sizes": "noisy", "declared_public": ("sizes",)}, r"privacy.declared_public: 'size' .*privacy.statistics.size"),
    (
        {"statistics": {"label_counts": {"epsilon": 1.0, "noise_multiplier": 1.0}}},
        r"privacy.statistics.label_counts.noise_multiplier: 1 is normal noise, and epsilon: 1",
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
    class Largest:
        kind = "largest"

        def answer(self, rows):
            return rows.X.max(axis=0)

    class Curious(FedAvg):
        def setup(self, view):
            view.ask(Largest())
            return super().setup(view)

    with pytest.raises(ConfigError, match=r"privacy.statistics.largest: .*no sum over rows"):
        noisy(federation, Curious(), statistics={"largest": {}}, noise_multiplier=1)
    strategy = ClustPsi(clusters=2, privacy_epsilon=1.0)
    with pytest.raises(ConfigError, match=r"privacy.statistics.label_counts: strategy.privacy_epsilon"):
        noisy(federation, strategy, statistics={"label_counts": {}}, noise_multiplier=1.0)

"""Attacks and robust rules in runs: what stays as it is, what changes, and what cannot be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from raysim.adversaries.who import LEVELS, bad_hospitals
from raysim.cluster.pool import LocalPool
from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.core import registry
from raysim.core.errors import ConfigError
from raysim.data.build import build
from raysim.data.sources.table import Table
from raysim.data.split import Split
from raysim.engine.attacks.checks import warnings
from raysim.engine.attacks.own_attacks import FeatureScale, OwnAttack
from raysim.engine.job import Outcome
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.engine.server.update_pipeline import UpdatePipeline
from raysim.storage.encoding import decode, encode
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.hospital_clusters.clust_psi import ClustPsi
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import job_of, run

RULES = [
    {"name": name}
    for name in ("median", "krum", "multi_krum", "geometric_median", "centred_clipping", "norm_bound", "trimmed_mean")
] + [
    {"name": "fltrust", "root": "h3"},
    {"name": "median", "before": "nnm"},
    {"name": "trimmed_mean", "before": "bucketing"},
    {"name": "bulyan", "assumed": 0.1},
    {"name": "geometric_median", "weights": "capped", "cap": 12},
]


def made(name):
    return registry.load("strategies", name, "strategy.name")()


@pytest.fixture
def federation(federate):
    return federate([12, 9, 14, 10, 11, 13, 8, 10, 12, 9])


def attacked(federation, strategy, attack=None, rule=None, **settings):
    """A job with an attack by 30 % and a rule."""
    adversary = None if attack is None else AdversarySection(**{"share": 0.3, **attack})
    aggregation = None if rule is None else AggregationSection(**{"assumed": 0.3, **rule})
    job = replace(job_of(federation, strategy, **settings), adversary=adversary, aggregation=aggregation)
    check_job(job, federation)
    return job


def attack_of(name):
    return {"attack": name} | ({"feature": "x1"} if name in ("units", "backdoor") else {})


def same(one: Outcome, other: Outcome):
    assert np.array_equal(one.models, other.models)
    assert repr(one.metrics) == repr(other.metrics)
    assert [row.bytes_up for row in one.rounds] == [row.bytes_up for row in other.rounds]


@pytest.mark.parametrize("strategy", ["fedavg", "scaffold", "chip", "cfl", "qfedavg", "fedsoft", "ditto", "kfed"])
def test_without_bad_hospitals_nothing_changes(federation, strategy):
    plain = run(federation, job_of(federation, made(strategy)), 1)
    job = attacked(federation, made(strategy), {"attack": "alie", "share": 0.0})
    same(run(federation, job, 2), plain)


def test_single_updates_make_the_same_sums(federation):
    """Bad hospitals that copy a bad one's honest update, of which there is one alone, change nothing."""
    plain = run(federation, job_of(federation, FedAvg()), 1)
    job = attacked(federation, FedAvg(), {"attack": "alie", "share": 0.1})
    same(run(federation, job, 2), plain)


@pytest.mark.parametrize("attack", sorted(set(LEVELS) - {"signature_lie"}))
def test_every_attack_moves_the_average_whatever_process_serves_whom(federation, attack):
    plain = run(federation, job_of(federation, FedAvg(), rounds=2), 1)
    job = attacked(federation, FedAvg(), attack_of(attack), rounds=2)
    one, three = run(federation, job, 1), run(federation, job, 3)
    same(one, three)
    assert np.abs(one.models - plain.models).max() > 1e-6
    assert one.bad.tolist() == bad_hospitals(1, 10, 0.3).tolist()
    assert [row.bytes_up for row in one.rounds] == [row.bytes_up for row in plain.rounds]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: "-".join(map(str, rule.values())))
def test_every_rule_stands_for_the_average(federation, rule):
    job = attacked(federation, FedAvg(), {"attack": "scale", "factor": 1e6}, rule)
    outcome, plain = run(federation, job, 2), run(federation, attacked(federation, FedAvg(), None), 1)
    same(outcome, run(federation, job, 1))
    # Where one update is multiplied by a million, the average is lost; a rule stays within the size of honest models.
    if rule["name"] not in ("norm_bound", "centred_clipping", "fltrust"):
        assert np.linalg.norm(outcome.models) < 10 * np.linalg.norm(plain.models) + 1
    assert not np.array_equal(outcome.models, plain.models)


def test_a_rule_is_what_it_says(federation):
    """One round of the median from zeros: the coordinate median of the hospitals' own updates."""
    updates = []

    class Watching(FedAvg):
        def problem(self, view, state, ids):
            problem = super().problem(view, state, ids)
            return replace(problem, upload=replace(problem.upload, single=True))

        def aggregate(self, view, state, update):
            updates.append(update.deltas)
            return super().aggregate(view, state, update)

    start = run(federation, job_of(federation, FedAvg(), rounds=0), 1).models
    run(federation, job_of(federation, Watching(), rounds=1), 2)
    ruled = run(federation, attacked(federation, FedAvg(), None, {"name": "median"}, rounds=1), 2)
    np.testing.assert_allclose(ruled.models - start, np.median(updates[0], axis=0)[None], atol=1e-12)


def test_rules_work_in_each_cluster_by_itself(federation):
    """A cluster without bad hospitals is what it is without attack: harm stays inside."""
    strategy = Chip(clusters=3, alpha=1.0, mu=0.0)
    job = attacked(federation, strategy, {"attack": "sign_flip", "factor": 5.0, "share": 0.1}, rounds=3)
    outcome, plain = run(federation, job, 2), run(federation, replace(job, adversary=None), 1)
    assert np.array_equal(outcome.cluster, plain.cluster)
    bad_clusters = np.unique(plain.cluster[outcome.bad])
    others = [row for row in np.unique(plain.cluster) if row not in bad_clusters]
    assert others
    for row in others:
        assert np.array_equal(outcome.models[row], plain.models[row])
    for row in bad_clusters:
        assert not np.array_equal(outcome.models[row], plain.models[row])
    ruled = replace(job, aggregation=AggregationSection(name="median", assumed=0.3))
    without = run(federation, replace(ruled, adversary=None), 1)
    for row in others:
        assert np.array_equal(run(federation, ruled, 2).models[row], without.models[row])


@pytest.mark.parametrize("strategy", ["fedprox", "fedavgm", "fedadam", "clustered", "hierarchical", "ifca", "ditto"])
def test_rules_compose_with_strategies_that_average(federation, strategy):
    job = attacked(federation, made(strategy), {"attack": "ipm"}, {"name": "trimmed_mean"}, rounds=2)
    outcome = run(federation, job, 2)
    assert np.isfinite(outcome.models).all()
    assert not np.array_equal(outcome.models, run(federation, replace(job, aggregation=None), 1).models)


def test_rejecting_is_counted(federation):
    job = attacked(federation, FedAvg(), {"attack": "scale", "factor": 1e5}, {"name": "multi_krum"})
    facts = run(federation, job, 1).facts
    assert facts["rejecting_precision"] == facts["rejecting_recall"] == 1.0
    assert facts["bad_share_admitted"] == 0.0
    assert facts["largest_bad_share"] == 0.3
    assert facts["bad_hospitals"] == 3.0


@pytest.mark.parametrize("attack", ["scale", "ipm", "label_flip"])
def test_the_largest_share_of_bad_hospitals_is_known_without_a_rule(federation, attack):
    assert run(federation, attacked(federation, FedAvg(), {"attack": attack}), 1).facts["largest_bad_share"] == 0.3
    clusters = run(federation, attacked(federation, made("clustered"), {"attack": attack}), 1)
    bad = np.isin(np.arange(len(federation.hospitals)), clusters.bad)
    shares = [bad[clusters.cluster == row].mean() for row in np.unique(clusters.cluster)]
    assert clusters.facts["largest_bad_share"] == max(shares)


@pytest.mark.parametrize(
    ("attack", "rule"),
    [
        ("mimic", "centred_clipping"),
        ("gaussian", "multi_krum"),
        ("scale", "median"),
        ("label_flip", "trimmed_mean"),
        ("adaptive", "krum"),
    ],
)
def test_a_run_that_goes_on_ends_with_the_same_bits(federation, attack, rule):
    job = attacked(federation, FedAvg(), {"attack": attack}, {"name": rule}, rounds=4)
    from raysim.cluster.placement import Placement, balance

    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    *events, alone = JobRun(pool, job).events(1)
    standings = [event for event in events if isinstance(event, RunState)]
    assert len(standings) >= 3
    for standing in standings:
        read, _ = decode(encode(standing, "abc", job.strategy), job.strategy)
        *_, outcome = JobRun(pool, job, read).events()
        same(outcome, alone)
        assert outcome.facts == alone.facts or repr(outcome.facts) == repr(alone.facts)


def test_a_liar_enters_the_cluster_with_most_hospitals(federation):
    job = attacked(federation, Chip(clusters=3), {"attack": "signature_lie"}, rounds=1)
    outcome, honest = run(federation, job, 2), run(federation, replace(job, adversary=None), 1)
    among = np.setdiff1d(np.arange(10), outcome.bad)
    rows, sizes = np.unique(honest.cluster[among], return_counts=True)
    target = among[honest.cluster[among] == rows[np.argmax(sizes)]]
    assert len(np.unique(outcome.cluster[np.concatenate([outcome.bad, target])])) == 1
    with pytest.raises(ConfigError, match=r"adversary.attack: strategy .* makes no clusters"):
        run(federation, attacked(federation, FedAvg(), {"attack": "signature_lie"}), 1)


def test_hospitals_answer_once_although_liars_know_all_answers(federation, monkeypatch):
    """Noise of a second set-up would be a second release, and another clustering than without the attack."""
    received: list[np.ndarray] = []
    original = UpdatePipeline.answers
    monkeypatch.setattr(
        UpdatePipeline,
        "answers",
        lambda self, answers: received.append(answers.each["label_counts"]) or original(self, answers),
    )
    job = attacked(federation, ClustPsi(clusters=3, privacy_epsilon=0.5), {"attack": "signature_lie"}, rounds=1)
    outcome = run(federation, job, 1)
    run(federation, replace(job, adversary=None), 1)
    assert len(received) == 2
    honest = np.setdiff1d(np.arange(10), outcome.bad)
    np.testing.assert_array_equal(received[0][honest], received[1][honest])


@pytest.mark.parametrize(
    ("attack", "rule", "message"),
    [
        ({"share": 1.0}, None, "adversary.share: 1.0 makes all 10 hospitals Byzantine"),
        ({"attack": "units", "feature": "x9"}, None, "adversary.feature: 'x9' does not exist"),
        ({"attack": "units"}, None, "adversary.feature: attack 'units' changes a feature"),
        (
            {"attack": "backdoor", "feature": "x1", "label": 2},
            None,
            "adversary.label: 2 is not the number of a class; the label has 2 classes",
        ),
        ({"attack": "alie", "knowledge": "own"}, None, "adversary.knowledge: 'own' does not fit attack 'alie'"),
        ({"attack": "mimic", "hospital": "nobody"}, None, "adversary.hospital: 'nobody' does not exist"),
        ({}, {"name": "fltrust"}, "aggregation.root: 'fltrust' needs a hospital"),
        ({}, {"name": "fltrust", "root": "x"}, "aggregation.root: 'x' does not exist"),
        ({}, {"name": "krum", "weights": "capped"}, "aggregation.weights: 'capped' needs aggregation.name: median"),
    ],
)
def test_what_cannot_be_is_refused(federation, attack, rule, message):
    with pytest.raises(Exception, match=message):
        attacked(federation, FedAvg(), attack, rule)


def test_a_trusted_hospital_is_not_bad(federation):
    bad = bad_hospitals(1, 10, 0.3)[0]
    with pytest.raises(ConfigError, match=f"aggregation.root: 'h{bad}' is one of the hospitals that adversary.share"):
        attacked(federation, FedAvg(), {}, {"name": "fltrust", "root": f"h{bad}"})


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("fedsoft", "aggregation.name: strategy .* sends whole models"),
        ("qfedavg", "aggregation.name: strategy .* averages single updates by its own rule"),
        ("scaffold", "aggregation.name: strategy .* also averages further numbers .variate."),
    ],
)
def test_strategies_that_no_rule_fits(federation, strategy, message):
    with pytest.raises(ConfigError, match=message):
        run(federation, attacked(federation, made(strategy), None, {"name": "median"}), 1)


def test_what_a_rule_does_not_bear_is_said():
    bad, rule = AdversarySection(share=0.5), AggregationSection(name="krum", assumed=0.5)
    said = warnings(bad, rule, 10)
    assert said == [
        f"warning: {key}: 5 of 10 hospitals are more than 'krum' tolerates, which needs at least 2f + 3 hospitals for "
        "f Byzantine ones"
        for key in ("adversary.share", "aggregation.assumed")
    ]
    assert warnings(AdversarySection(share=0.2), AggregationSection(name="median", assumed=0.2), 10) == []
    assert (
        "above aggregation.assumed"
        in warnings(AdversarySection(share=0.3), AggregationSection(name="median", assumed=0.1), 10)[0]
    )
    assert warnings(bad, None, 10) == []


def test_buckets_that_are_too_few_for_the_rule_are_said():
    bad = AdversarySection(share=0.125)
    rule = AggregationSection(name="trimmed_mean", assumed=0.125, before="bucketing")
    assert warnings(bad, rule, 8) == [
        f"warning: {key}: 1 of 8 hospitals are more than 'trimmed_mean' tolerates, which needs more than 2f buckets "
        "for f Byzantine hospitals; bucketing makes 2"
        for key in ("adversary.share", "aggregation.assumed")
    ]
    assert warnings(bad, rule, 9) == [], "three buckets"
    # Two hospitals that are assumed make four buckets, too few for Krum also with one hospital that attacks.
    krum = AggregationSection(name="krum", assumed=0.25, before="bucketing")
    assert [line.split(": ")[1] for line in warnings(bad, krum, 8)] == ["adversary.share", "aggregation.assumed"]
    assert warnings(bad, AggregationSection(name="norm_bound", assumed=0.125, before="bucketing"), 8) == []


@pytest.mark.parametrize(("method", "flags"), [("standard", True), ("median", True), ("standard", False)])
def test_a_wrong_unit_is_that_of_recorded_values(tmp_path, monkeypatch, method, flags):
    """Creatinine in micromoles is scaled by the mean and deviation of what others have; a missing one stays missing."""
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path))
    creatinine = [1.0, 2.1, np.nan, 1.7, 0.4, 1.3, 3.6, np.nan]
    rows = pd.DataFrame({"hospital": ["a", "b"] * 4, "creatinine": creatinine, "died": [0, 1, 1, 0, 1, 0, 0, 1]})
    rows.to_csv(tmp_path / "t.csv", index=False)
    source = Table(path=tmp_path / "t.csv", silo="hospital", label="died")
    federation = build(source, Split(train=0.5, test=0.5), method, 1, missing_flags=flags)
    measured, X = FeatureScale.of(federation, 0), federation.X
    raw = X[:, 0] * federation.preprocessing.columns[0].scale + federation.preprocessing.columns[0].mean
    section = AdversarySection(attack="units", feature="creatinine", share=0.5)
    attack = OwnAttack(section, frozenset({0}), 1, 1, 2, 2, 0, measured)
    changed, _ = attack.rows(0, X, federation.y)
    seen = changed[:, 0] * federation.preprocessing.columns[0].scale + federation.preprocessing.columns[0].mean
    there = federation.observed[:, 0]
    assert there.sum() == 6
    assert seen[there] == pytest.approx(88.4 * raw[there], rel=1e-4)
    assert (changed[~there] == X[~there]).all()
    assert (attack.rows(1, X, federation.y)[0] == X).all()


def test_harm_is_what_honest_hospitals_lose(federation):
    from raysim.engine.attack_figures import attack_figures
    from raysim.storage.detail_tables import as_json, table
    from raysim.storage.run_tables import hospitals_table

    strategy = Chip(clusters=3, alpha=1.0, mu=0.0)
    job = attacked(federation, strategy, {"attack": "sign_flip", "factor": 9.0, "share": 0.1}, rounds=3)
    outcome, clean = run(federation, job, 2), run(federation, replace(job, adversary=None), 1)
    figures = attack_figures(job, outcome, clean, federation)
    assert figures.harm_out == 0.0
    model = list(outcome.figures)[-1]
    column = federation.task.figures.index("auroc")
    lost = clean.figures[model][:, column] - outcome.figures[model][:, column]
    beside = np.isin(outcome.cluster, outcome.cluster[outcome.bad])
    beside[outcome.bad] = False
    assert figures.harm_in == pytest.approx(np.nanmean(lost[beside]))
    assert figures.bad == ("h" + str(outcome.bad[0]),)
    honest = np.setdiff1d(np.arange(10), outcome.bad)
    whole = federation.task.summarise(outcome.figures[model][honest], federation.totals[honest])
    assert figures.honest["auroc"] == whole["auroc"]
    alone = attack_figures(job, outcome, None, federation)
    assert as_json(alone)["change"] == {"auroc": None, "worst_decile": None, "gini": None}
    rows = table(federation, outcome, figures)
    assert rows["bad"].sum() == 1
    np.testing.assert_array_equal(rows["harm"], lost)
    listed = hospitals_table(federation, outcome, "test").query("model == @model")
    assert rows["cluster"].tolist() == listed["cluster"].tolist() == (outcome.cluster - 1).tolist()


def test_the_weight_of_one_hospital_and_the_rules_coefficient_are_reported(federation):
    """All ten hospitals in one sum: caps of 12 rows, and f = 3 of 10 for Krum after NNM."""
    capped = {"name": "geometric_median", "weights": "capped", "cap": 12}
    facts = run(federation, attacked(federation, FedAvg(), None, capped, rounds=1), 1).facts
    sizes = np.minimum(federation.sizes("train"), 12)
    assert facts["largest_weight"] == pytest.approx(12 / sizes.sum())
    assert np.isnan(facts["kappa"]), "the coefficient is for equal weights"
    plain = run(federation, attacked(federation, FedAvg(), None, {"name": "krum", "before": "nnm"}, rounds=1), 1).facts
    assert np.isnan(plain["largest_weight"])
    assert plain["kappa"] == pytest.approx(8 * 3 / 7 * (6 * (1 + 3 / 4) + 1))
    for unknown in (
        {"name": "norm_bound"},
        {"name": "median", "before": "bucketing"},
        {"name": "krum", "assumed": 0.4},
    ):
        assert np.isnan(run(federation, attacked(federation, FedAvg(), None, unknown, rounds=1), 1).facts["kappa"])


def test_the_success_of_a_trigger(federation):
    from raysim.engine.attack_figures import attack_figures, trigger_rate

    attack = {"attack": "backdoor", "feature": "x1", "value": 20.0, "label": 1, "share": 0.3, "rows": 0.5}
    job = attacked(federation, FedAvg(), attack, rounds=8)
    outcome, clean = run(federation, job, 1), run(federation, replace(job, adversary=None), 1)
    honest = ~np.isin(np.arange(10), outcome.bad)
    before, after = trigger_rate(job, clean, federation, honest), trigger_rate(job, outcome, federation, honest)
    assert attack_figures(job, outcome, clean, federation).success == after - before
    # By hand, from the model: a row goes to class 1 where its margin with the trigger is positive.
    theta = outcome.models[0]
    sent = []
    for hospital in np.flatnonzero(honest):
        rows = federation.rows(hospital, "test")
        X, y = federation.X[rows].astype(float).copy(), federation.y[rows]
        X[:, 1] = 20.0
        sent += (X[y == 0] @ theta[:3] + theta[3] > 0).tolist()
    assert after == pytest.approx(np.mean(sent))

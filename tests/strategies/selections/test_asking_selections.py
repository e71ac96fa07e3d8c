"""Selections that remember and ask: identities 7, 8 and 23, and cohorts that follow from the rules by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.data.federation import Federation
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.strategies.base import POOLED, Draw, LocalProblem, RowGroups, Update
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.patient_clusters.kfed import KFed
from raysim.strategies.personal.ditto import Ditto
from raysim.strategies.selections.fedcls import FedCls, LabelPresence, place_in_group, presence_clusters
from raysim.strategies.selections.haccs import Haccs, label_clusters, latency, scores
from raysim.strategies.selections.power_of_choice import PowerOfChoice
from raysim.strategies.selections.sampling import All, Uniform
from raysim.strategies.selections.superquantile import Superquantile, weighted_quantile
from raysim.strategies.shared.label_counts import LabelCounts
from raysim.traffic.ledger import TO_EXPERIMENTER
from tests.conftest import MakeFederation, job_of, run_strategy
from tests.strategies.contexts import hospital, sent, view_of
from tests.strategies.selections.test_selections import cohorts
from tests.strategies.test_battery import same
from tests.strategies.test_identities import SIZES, assert_different, assert_same

RUN: dict[str, Any] = {"rounds": 3, "epochs": 2}
IDS = np.array([2, 3, 5, 7, 11, 13])


def draw(
    losses: list[float] | None = None, memory: Any = None, sizes: list[int] | None = None, seed: int = 0, ids: Any = IDS
) -> Draw:
    """A draw among ``ids``, the ``losses`` of which can be asked for once each, or not at all."""

    def ask(asked):
        assert losses is not None, "nobody need be asked"
        return np.array(losses)[np.searchsorted(ids, asked)]

    counts = np.full(len(ids), 4) if sizes is None else np.array(sizes)
    return Draw(ids, counts, np.random.default_rng(seed), memory, ask)


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def test_07_power_of_choice_of_all_among_all_is_uniform_fedavg(federation):
    everyone = PowerOfChoice(candidates=6, fraction=1.0)
    uniform = FedAvg(weights="uniform")
    assert_same(
        run_strategy(federation, uniform, selection=everyone, **RUN).models,
        run_strategy(federation, uniform, **RUN).models,
    )
    some = replace(everyone, fraction=0.5)
    assert_different(
        run_strategy(federation, uniform, selection=some, **RUN).models, run_strategy(federation, uniform, **RUN).models
    )


def test_power_of_choice_among_all_takes_the_largest_losses():
    losses = [0.3, 0.9, 0.1, 0.9, 0.5, 0.9]
    for count, expected in ((1, [3]), (2, [3, 7]), (3, [3, 7, 13]), (4, [3, 7, 11, 13])):
        how = PowerOfChoice(candidates=6, fraction=0.01, minimum=count)
        assert how.pick(draw(losses)).tolist() == expected
        assert how.pick(draw(losses, seed=9)).tolist() == expected


def test_power_of_choice_asks_nobody_where_all_candidates_take_part():
    for d, minimum in ((3, 3), (3, 5), (1, 1)):
        assert len(PowerOfChoice(candidates=d, fraction=0.01, minimum=minimum).pick(draw())) == d


def test_candidates_are_sampled_by_rows():
    """With d = 1 the chance of a hospital is its share of the rows."""
    picked = [
        int(PowerOfChoice(candidates=1).pick(draw(sizes=[1, 2, 3, 4, 10, 20], seed=seed))[0]) for seed in range(4000)
    ]
    shares = [picked.count(i) / len(picked) for i in IDS]
    assert shares == pytest.approx(np.array([1, 2, 3, 4, 10, 20]) / 40, abs=0.03)


def test_candidates_get_the_model_once_and_tell_a_loss(federation):
    outcome = run_strategy(federation, FedAvg(), selection=PowerOfChoice(candidates=4, fraction=0.5), **RUN)
    size = outcome.layout.size
    for row in outcome.rounds:
        assert row.cohort_size == 3
        assert row.bytes_down == 4 * 4 * size
        assert row.bytes_up == 4 * (4 + 3 * (size + 1))


@pytest.mark.parametrize("count", range(1, 7))
def test_superquantile_zero_is_the_uniform_sample(count, federation):
    uniform, tail = Uniform(0.01, count), Superquantile(0.0, 0.01, count)
    assert uniform.pick(draw()).tolist() == tail.pick(draw()).tolist()
    same(
        run_strategy(federation, FedAvg(), selection=uniform, **RUN),
        run_strategy(federation, FedAvg(), selection=tail, **RUN),
    )


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 7)), min_size=1, max_size=9),
    st.integers(0, 99),
)
def test_the_weighted_quantile_is_that_of_repeated_losses(hospitals, hundredths):
    losses, sizes = np.array([a / 3 for a, _ in hospitals]), np.array([n for _, n in hospitals])
    repeated = np.sort(np.repeat(losses, sizes))
    entry = max(-(-hundredths * len(repeated) // 100) - 1, 0)
    assert weighted_quantile(losses, sizes, hundredths / 100) == repeated[entry]


def test_superquantile_keeps_the_upper_tail_of_the_sample():
    """Rows 4 each: the 12th of 24 sorted losses is .3, the 13th .5; a hospital of many rows draws it to itself."""
    losses = [0.3, 0.9, 0.1, 0.7, 0.5, 0.2]
    assert Superquantile(0.5, 1.0).pick(draw(losses)).tolist() == [2, 3, 7, 11]
    assert Superquantile(0.51, 1.0).pick(draw(losses)).tolist() == [3, 7, 11]
    assert Superquantile(0.5, 1.0).pick(draw(losses, sizes=[1, 90, 1, 1, 1, 1])).tolist() == [3]


@pytest.mark.parametrize("tau", [1.0, 3.0])
@pytest.mark.parametrize("count", [1, 3, 6])
def test_08_fedcls_with_one_cluster_is_the_uniform_sample_bit_for_bit(tau, count, federation):
    uniform = run_strategy(federation, FedAvg(), selection=Uniform(0.01, count), **RUN)
    fedcls = run_strategy(federation, FedAvg(), selection=FedCls(tau, 0.01, count), **RUN)
    same(uniform, fedcls)
    assert cohorts(uniform) == cohorts(fedcls)


@pytest.mark.parametrize("selection", [FedCls(fraction=1.0), Haccs(fraction=1.0)])
def test_08_everybody_is_everybody(selection, federation):
    same(run_strategy(federation, FedAvg(), **RUN), run_strategy(federation, FedAvg(), selection=selection, **RUN))


def test_presence_is_sent_in_bits():
    assert sent(LabelPresence(3), hospital([7, 0, 1])).tolist() == [[1, 0, 1]]


def test_clusters_of_presence_grow_around_their_first_hospital():
    """Four classes: 1 and 2 differ from 0 in one class and from each other in two; 3 differs from 0 in three."""
    presence = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 0], [0, 0, 1, 0], [1, 0, 0, 0]], dtype=np.float64)
    assert presence_clusters(presence, 0.0).tolist() == [0, 1, 2, 3, 1]
    assert presence_clusters(presence, 0.25).tolist() == [0, 0, 0, 1, 0]
    assert presence_clusters(presence, 1.0).tolist() == [0] * 5
    chain = np.tri(4)  # each differs in one class from the next: the third is not near enough to the first
    assert presence_clusters(chain, 0.25).tolist() == [0, 0, 1, 1]
    assert presence_clusters(presence[::-1], 0.25).tolist() == [0, 1, 2, 0, 0]


def test_fedcls_samples_clusters_in_turn():
    memory = {"clusters": np.array([-1, -1, 0, 0, -1, 0, -1, 0, -1, -1, -1, 2, -1, 4])}
    for seed in range(20):
        for count, expected in ((3, [1, 1, 1]), (4, [2, 1, 1]), (5, [3, 1, 1])):
            ids = FedCls(fraction=0.01, minimum=count).pick(draw(memory=memory, seed=seed))
            _, sizes = np.unique(memory["clusters"][ids], return_counts=True)
            assert sizes.tolist() == expected
    first = {int(FedCls(fraction=0.01, minimum=1).pick(draw(memory=memory, seed=seed))[0]) for seed in range(60)}
    assert first == set(IDS.tolist()), "the order is fresh every round"


def test_fedcls_by_hand():
    """Hospitals in a drawn order, their clusters in another: the first of each cluster, then the second of each."""
    clusters = {2: 0, 3: 0, 5: 0, 7: 1, 11: 1, 13: 2}
    memory = {"clusters": np.array([clusters.get(i, -1) for i in range(14)])}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        order, turn = rng.permutation(IDS).tolist(), rng.permutation(3).tolist()
        queues = [[i for i in order if clusters[i] == turn.index(at)] for at in range(3)]
        taken = [queue[place] for place in range(3) for queue in queues if place < len(queue)]
        for count in range(1, 7):
            how = FedCls(fraction=0.01, minimum=count)
            assert how.pick(draw(memory=memory, seed=seed)).tolist() == sorted(taken[:count])


def test_labels_may_differ_in_a_share_of_the_classes():
    """In a quarter of four classes: in one of them."""
    assert presence_clusters(np.array([[1.0, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]]), 0.25).tolist() == [0, 0, 1]


def test_hospitals_without_rows_are_in_no_cluster():
    view = view_of([hospital([3, 0]), hospital([0, 0]), hospital([1, 0])])
    assert FedCls().setup(view)["clusters"].tolist() == [0, -1, 0]


def test_places_in_groups():
    assert place_in_group(np.array([1, 0, 1, 1, 0])).tolist() == [0, 0, 1, 2, 1]


def memory(clusters: list[int], losses: list[float], latencies: list[float]) -> dict[str, np.ndarray]:
    """HACCS's memory of hospitals ``IDS`` among fourteen."""
    remembered = {"clusters": np.full(14, -1), "losses": np.full(14, np.nan), "latencies": np.full(14, 99.0)}
    for key, values in zip(remembered, (clusters, losses, latencies), strict=True):
        remembered[key][IDS] = values
    return remembered


def test_haccs_with_one_cluster_takes_the_fastest():
    remembered = memory([0] * 6, [0.5] * 6, [3.0, 1.0, 2.0, 1.0, 9.0, 0.5])
    for rho, seed in itertools.product((0.0, 0.95, 1.0), range(4)):
        for count, expected in ((1, [13]), (2, [3, 13]), (3, [3, 7, 13]), (4, [3, 5, 7, 13])):
            how = Haccs(rho=rho, fraction=0.01, minimum=count)
            assert how.pick(draw(memory=remembered, seed=seed)).tolist() == expected


def test_scores_by_hand():
    """Latencies 1, 4 and 2 in the mean; losses .25, 1 and .75, which sum to 2."""
    cluster = np.array([0, 0, 1, 2])
    shares = scores(cluster, np.array([0.2, 0.3, 1.0, 0.75]), np.array([0.5, 1.5, 4.0, 2.0]), rho=0.8)
    assert shares == pytest.approx([0.8 * 0.75 + 0.2 * 0.125, 0.2 * 0.5, 0.8 * 0.5 + 0.2 * 0.375])


def test_scores_do_not_depend_on_the_units_of_latencies_or_losses():
    cluster, losses, latencies = np.array([0, 0, 1, 2]), np.array([0.2, 0.3, 1.0, 0.75]), np.array([0.5, 1.5, 4.0, 2.0])
    expected = scores(cluster, losses, latencies, rho=0.8)
    assert scores(cluster, losses / 64, latencies / 64, rho=0.8).tolist() == expected.tolist()


def test_clusters_are_sampled_by_their_scores():
    """Equal latencies leave losses: sums of .1 and .3 make chances 1/4 and 3/4; squared, 1/10 and 9/10."""
    remembered = memory([0, 0, 0, 1, 1, 1], [0.1] * 3 + [0.3] * 3, [1.0] * 6)
    for power, chance in ((1.0, 0.75), (2.0, 0.9)):
        how = Haccs(fraction=0.01, minimum=1, loss_power=power)
        picked = [int(how.pick(draw(memory=remembered, seed=seed))[0]) for seed in range(2000)]
        assert set(picked) == {2, 7}, "the smaller id of equals"
        assert picked.count(7) / len(picked) == pytest.approx(chance, abs=0.03)


def test_the_slowest_cluster_waits_until_the_others_are_used_up():
    """With rho = 1 its score is 0; a hospital that cannot be had is replaced by the next of its cluster."""
    remembered = memory([0, 0, 0, 1, 1, 1], [0.5] * 6, [1.0, 2.0, 3.0, 9.0, 8.0, 9.0])
    how = Haccs(rho=1.0, fraction=0.01, minimum=4)
    assert how.pick(draw(memory=remembered)).tolist() == [2, 3, 5, 11]
    assert replace(how, minimum=2).pick(draw(memory=remembered, ids=IDS[1:])).tolist() == [3, 5]


def test_of_three_clusters_each_gives_its_fastest_first():
    """All losses but those of one cluster are 0, and latency does not count: it is used up before any other is."""
    for full in range(3):
        losses = [float(c == full) for c in (0, 0, 1, 1, 2, 2)]
        remembered = memory([0, 0, 1, 1, 2, 2], losses, [2.0, 1.0] * 3)
        first, second = IDS[2 * full + 1], IDS[2 * full]
        for seed in range(4):
            picked = [
                Haccs(rho=0.0, fraction=0.01, minimum=count).pick(draw(memory=remembered, seed=seed)).tolist()
                for count in (1, 2, 6)
            ]
            assert picked == [[first], [second, first], IDS.tolist()]


def test_haccs_learns_losses_of_participants_only(federation):
    hospitals = [hospital([4, 0]), hospital([0, 0]), hospital([1, 3])]
    view = view_of([replace(rows, losses=np.full((1, 4), 0.25 * (1 + i))) for i, rows in enumerate(hospitals)])
    remembered = Haccs().setup(view)
    assert remembered["clusters"].tolist() == [0, -1, 0]
    assert remembered["losses"].tolist() == pytest.approx([0.25, np.nan, 0.75], nan_ok=True)
    later = Haccs().observe(remembered, Update(np.array([2]), np.zeros((1, 2)), losses=np.array([0.1])))
    assert later["losses"].tolist() == pytest.approx([0.25, np.nan, 0.1], nan_ok=True)
    assert remembered["losses"][2] == 0.75, "what it remembered is not written on"


def test_haccs_remembers_nothing_new_without_losses_or_of_all_rows_together():
    remembered = memory([0] * 6, [0.5] * 6, [1.0] * 6)
    for update in (Update(IDS, np.zeros((1, 2))), Update(np.array([POOLED]), np.zeros((1, 2)), losses=np.ones(1))):
        assert Haccs().observe(remembered, update) is remembered


def test_haccs_remembers_the_mean_by_rows_of_a_hospitals_groups():
    remembered = memory([0] * 6, [0.5] * 6, [1.0] * 6)
    ids = np.array([3, 3, 3, 7])
    groups = RowGroups(ids, np.arange(4), np.array([6, 3, 1, 4]))
    problem = LocalProblem(start=np.array([1, 2, 3, 1]), groups=groups)
    entries = Update(ids, np.zeros((3, 2)), losses=np.array([0.1, 0.2, 0.6, 0.4]), problem=problem)
    assert Haccs().observe(remembered, entries)["losses"][IDS] == pytest.approx([0.5, 0.18, 0.5, 0.4, 0.5, 0.5])


def test_clusters_of_patients_say_of_how_many_rows_each_loss_is(federation):
    """With one cluster what is remembered is what federated averaging remembers, to the last bit."""
    run = {**RUN, "selection": Haccs(fraction=0.5, minimum=1)}
    assert_same(
        run_strategy(federation, KFed(clusters=1), **run).models[1], run_strategy(federation, FedAvg(), **run).models[0]
    )


def test_a_loss_of_each_group_of_its_rows_travels(federation):
    """One scalar more for each model that a hospital trains, and none for the number of rows, which it has sent."""
    plain, haccs = (
        run_strategy(federation, KFed(clusters=2), selection=how, **RUN)
        for how in (All(), Haccs(fraction=1.0, minimum=1))
    )
    models = sum(int(sent.sum()) for t, kind, _, sent, _ in plain.ledger.entries if (t, kind) == (1, "update"))
    models //= 4 * plain.layout.size
    assert models > len(SIZES) - 1
    assert [a.bytes_up - b.bytes_up for a, b in zip(haccs.rounds, plain.rounds, strict=True)] == [4 * models] * 3


def test_participants_send_their_loss_beside_the_update(federation):
    outcome = run_strategy(federation, FedAvg(), selection=Haccs(fraction=0.5, minimum=1), **RUN)
    size = outcome.layout.size
    scalars = {
        kind: int(sent[0]) // 4
        for t, kind, _, sent, _ in outcome.ledger.entries
        if t == 0 and kind not in TO_EXPERIMENTER
    }
    assert scalars == {"size": 1, "label_counts": 2, "loss": 1}
    assert [row.bytes_up for row in outcome.rounds] == [4 * 3 * (size + 2)] * 3


def test_hospitals_with_alike_labels_are_a_cluster():
    counts = np.array([[9.0, 1, 0], [0, 1, 9], [18, 2, 0], [0, 2, 17], [8, 1, 0], [0, 1, 8.0]])
    assert label_clusters(counts, "hellinger").tolist() == [0, 1, 0, 1, 0, 1]
    assert label_clusters(counts, "euclidean").tolist() == [0, 1, 0, 1, 0, 1]


def test_what_is_noise_is_a_cluster_of_its_own():
    counts = np.array([[9.0, 1, 0], [0, 9, 1], [9, 1, 0], [9, 1, 0], [0, 0, 9.0]])
    assert label_clusters(counts, "euclidean").tolist() == [0, 1, 0, 0, 2]
    assert label_clusters(counts[:1], "hellinger").tolist() == [0]
    assert label_clusters(np.zeros((3, 2)), "hellinger").tolist() == [0, 0, 0]


def test_hospitals_at_a_quarter_of_euclids_distance_are_one_cluster_and_beyond_it_two():
    """Shares of 100 rows that move by d from one class to the other are d sqrt(2) apart: .2404 and .2546."""
    for moved, labels in ((17, [0, 0, 1]), (18, [0, 1, 2])):
        counts = np.array([[50, 50], [50 - moved, 50 + moved], [100, 0]], dtype=np.float64)
        assert label_clusters(counts, "euclidean").tolist() == labels


def test_two_hospitals_and_parts_of_rows_are_clustered_like_any_others():
    counts = np.array([[9.0, 0.0], [0.0, 9.0]])
    assert label_clusters(counts, "euclidean").tolist() == [0, 1]
    noisy = np.array([[0.25, 0.25], [50, 50], [0, 100.0]])
    assert label_clusters(noisy, "euclidean").tolist() == [0, 0, 1]


def test_haccs_gives_each_hospital_the_cluster_of_its_own_labels():
    rows = [replace(hospital(counts), losses=np.ones((1, 9))) for counts in ([9, 0], [9, 0], [0, 9], [9, 0], [0, 9])]
    first, second, third, fourth, fifth = Haccs().setup(view_of(rows))["clusters"]
    assert first == second == fourth != third == fifth


@pytest.mark.parametrize("privacy_epsilon", [None, 0.25])
def test_haccs_clusters_by_counts_with_the_noise_that_is_asked_for(privacy_epsilon):
    """Thirty hospitals with the same labels are a cluster, and with noise they are several."""
    rows = [replace(hospital([10, 10]), losses=np.ones((1, 20))) for _ in range(30)]
    view, asked = view_of(rows), []
    answers = view.call
    object.__setattr__(view, "call", lambda call: asked.append(call.program) or answers(call))
    labels = set(Haccs(privacy_epsilon=privacy_epsilon).setup(view)["clusters"].tolist())
    assert asked[0] == LabelCounts(2, privacy_epsilon=privacy_epsilon)
    assert (labels == {0}) == (privacy_epsilon is None)


def test_haccs_uses_the_loss_of_the_received_model(federation):
    """With Ditto a hospital's own model is trained after the received one; what is sent is of the received one, before
    it is trained: in round t that of round t - 1.
    """
    run = {"batch_size": 0, "learning_rate": 0.5, "epochs": 3}
    everybody = Haccs(fraction=1.0, minimum=1)
    received = np.zeros(4)
    for t in (1, 2, 3):
        for strategy in (Ditto(lam=0.0, epochs=9), FedAvg()):
            job = job_of(federation, strategy, selection=everybody, rounds=t, **run)
            pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
            standing = [event for event in JobRun(pool, job).events(1) if isinstance(event, RunState)][-1]
            assert standing.round == t
            expected = [log_loss(federation, h, received) for h in range(len(SIZES))]
            assert standing.memory["losses"] == pytest.approx(expected, abs=1e-12)
        received = run_strategy(federation, FedAvg(), rounds=t, **run).models[0]
    assert expected[0] < np.log(2) - 0.05, "what is sent changes from round to round"


def log_loss(federation: Federation, h: int, theta: np.ndarray) -> float:
    """The mean logistic loss of a hospital's training rows."""
    rows = federation.rows(h, "train")
    z = federation.X[rows].astype(np.float64) @ theta[:-1] + theta[-1]
    return float(np.mean(np.log1p(np.exp(z)) - federation.y[rows] * z))


def test_the_hellinger_distance_is_euclids_of_roots():
    """Golden: shares (.5, .3, .2) and (.1, .6, .3) are .3273838103 apart."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.6, 0.3])
    assert np.linalg.norm(np.sqrt(p / 2) - np.sqrt(q / 2)) == pytest.approx(0.3273838103, abs=1e-10)


def test_latencies_follow_their_classes():
    """Means: compute 10 * (.6 * .25 + .2 * .75 + .14 * 1.25 + .06 * 1.75) = 5.8; P(compute < 5) = .6."""
    seconds = np.array([latency(np.random.default_rng(seed)) for seed in range(6000)])
    transfer = sum(
        odds * 80 * np.log(high / low) / (high - low)
        for odds, (low, high) in zip((0.6, 0.2, 0.14, 0.06), ((75, 100), (50, 75), (25, 50), (1, 25)), strict=True)
    )
    assert seconds.min() > 0.02 + 0.8
    assert seconds.mean() == pytest.approx(5.8 + 0.11 + transfer, abs=0.25)


def test_equal_latencies_leave_losses_alone_even_where_no_time_passes():
    cluster, losses = np.array([0, 0, 1]), np.array([0.1, 0.3, 0.6])
    expected = scores(cluster, losses, np.full(3, 5.0), rho=0.95)
    assert expected == pytest.approx([0.05 * 0.25, 0.05 * 0.75])
    assert scores(cluster, losses, np.zeros(3), rho=0.95).tolist() == expected.tolist()


def test_latencies_are_sampled_where_no_time_passes():
    def latencies(seconds: np.ndarray | None) -> list[float]:
        hospitals = [replace(hospital([2, 2]), losses=np.ones((1, 4))) for _ in range(3)]
        view = replace(view_of(hospitals), round_seconds=seconds)
        return Haccs().setup(view)["latencies"].tolist()

    drawn = latencies(None)
    assert len(set(drawn)) == 3
    assert latencies(np.zeros(3)) == drawn
    assert latencies(np.array([0.0, 2.0, 0.0])) == [0, 2, 0], "some take time: those that do not are fast"


def test_a_hospitals_latency_does_not_depend_on_the_others():
    def latencies(count: int) -> list[float]:
        hospitals = [replace(hospital([2, 2]), losses=np.ones((1, 4))) for _ in range(count)]
        return Haccs().setup(view_of(hospitals))["latencies"].tolist()

    assert latencies(5)[:3] == latencies(3)


@pytest.mark.parametrize(
    ("method", "bad"),
    [
        (PowerOfChoice, {"candidates": 0}),
        (PowerOfChoice, {"fraction": 0.0}),
        (Superquantile, {"level": 1.0}),
        (Superquantile, {"minimum": 0}),
        (FedCls, {"tau": -0.1}),
        (Haccs, {"rho": 1.1}),
        (Haccs, {"metric": "cosine"}),
        (Haccs, {"privacy_epsilon": 0.0}),
        (Haccs, {"loss_power": -1.0}),
    ],
)
def test_impossible_settings_are_refused_by_name(method, bad):
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: "):
        method(**bad)


def test_all_needs_neither_losses_nor_memory():
    assert All().pick(draw()).tolist() == IDS.tolist()


@pytest.mark.parametrize("metric", ["hellinger", "euclidean"])
def test_haccs_measures_roots_of_shares_or_shares(monkeypatch, metric):
    given = []

    class Optics:
        def __init__(self, **_):
            self.labels_ = np.zeros(2)

        def fit(self, rows):
            given.append(rows)
            return self

    monkeypatch.setattr("sklearn.cluster.OPTICS", Optics)
    label_clusters(np.array([[1.0, 3.0], [4.0, 0.0]]), metric)
    measured = np.square(given[0]) if metric == "hellinger" else given[0]
    np.testing.assert_allclose(measured / measured[1, 0], [[0.25, 0.75], [1.0, 0.0]], rtol=1e-12)

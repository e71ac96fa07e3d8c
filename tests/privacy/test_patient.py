"""Guarantees for patients: identities, who is drawn, how far one patient can move a sum, noise, and refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.config.sections.system import SystemSection
from raysim.core.errors import ConfigError
from raysim.data.contribution import choose_rows
from raysim.data.federation import Federation
from raysim.engine.job import Outcome
from raysim.engine.messages.plan import ModelSpec
from raysim.engine.server.job_checks import check_job
from raysim.privacy import accountant, quick
from raysim.privacy.events import Gaussian
from raysim.strategies.fairness.qfedavg import QFedAvg
from raysim.strategies.hospital_clusters.clust_psi import ClustPsi
from raysim.strategies.hospital_clusters.ifca import Ifca
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.one_model.fedavgm import FedAvgM
from raysim.strategies.one_model.fedprox import FedProx
from raysim.strategies.one_model.moon import Moon
from raysim.strategies.one_model.scaffold import Scaffold
from raysim.strategies.personal.fedrep import FedRep
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.selections.sampling import All, Poisson
from tests.conftest import MLP, MakeFederation, job_of, run, run_and_resumed, store
from tests.training.families import Normed

SIZES = [9, 4, 13, 7, 0, 6]


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def of_patients(federation: Federation, rows: int) -> Federation:
    """The federation in which so many rows in a row are one patient."""
    np.save(federation.folder / "people.npy", np.arange(len(federation.y)) // rows)
    return Federation.open(federation.folder)


def section(**keys) -> PrivacySection:
    plain = {"unit": "patient", "delta": 1e-3, "declared_public": ("sizes", "metrics")}
    return PrivacySection(**plain | ({} if "epsilon" in keys else {"noise_multiplier": 0.0}) | keys)


def private(federation: Federation, strategy=None, actors: int = 1, job=None, **keys) -> Outcome:
    settings = {"rounds": 3, "epochs": 2} | (job or {})
    made = job_of(federation, strategy or FedAvg(), selection=All(), **settings)
    return run(federation, replace(made, privacy=section(**keys)), actors)


def test_pooled_without_noise_clip_and_sampling_is_gradient_descent_on_all_rows(federation):
    pooled = private(federation, mode="pooled", rate=1, clip=1e9, job={"rounds": 5}).models
    central = run(federation, job_of(federation, Centralized(), rounds=5, batch_size=0), 1).models
    assert pooled == pytest.approx(central, abs=1e-10)
    averaged = run(federation, job_of(federation, FedAvg(), rounds=5, batch_size=0), 1).models
    assert pooled == pytest.approx(averaged, abs=1e-10)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("model", [None, MLP])
def test_local_steps_without_noise_clip_and_sampling_are_full_batch_steps(federation, optimizer, model):
    one = {"rounds": 3, "epochs": 1, "batch_size": 0, "optimizer": optimizer, "model": model}
    strategy = FedProx(mu=0.3)
    local = private(federation, strategy, mode="local", clip=1e9, job=one).models
    assert local == pytest.approx(run(federation, job_of(federation, strategy, **one), 1).models, abs=1e-10)


@pytest.mark.parametrize("model", [None, MLP])
@pytest.mark.parametrize(
    ("strategy", "keys"),
    [
        (FedProx(mu=0.3, straggler_epochs={"h0": 1, "h2": 0}), {}),
        (Ifca(clusters=2, averaging="gradient"), {"declared_public": ("sizes", "metrics", "choice")}),
    ],
    ids=["stragglers", "one epoch of all"],
)
def test_local_steps_are_of_the_epochs_that_a_strategy_asks_for(federation, model, strategy, keys):
    one = {"rounds": 2, "epochs": 3, "batch_size": 0, "model": model}
    local = private(federation, strategy, mode="local", clip=1e9, job=one, **keys).models
    assert local == pytest.approx(run(federation, job_of(federation, strategy, **one), 1).models, abs=1e-10)


def test_more_epochs_than_the_noise_is_made_for_are_refused(federation):
    strategy = FedProx(straggler_epochs={"h1": 3})
    with pytest.raises(ConfigError, match=r"trains for more epochs than training.local_epochs"):
        private(federation, strategy, mode="local", noise_multiplier=1.0)


@pytest.mark.parametrize("mode", ["pooled", "local"])
def test_patients_of_one_row_each_are_examples_bit_for_bit(federation, mode):
    keys = {"mode": mode, "noise_multiplier": 1.0, "clip": 0.5} | ({"rate": 0.4} if mode == "pooled" else {})
    patients, examples = (private(federation, unit=unit, **keys) for unit in ("patient", "example"))
    assert (patients.models == examples.models).all()


@pytest.mark.parametrize("mode", ["pooled", "local"])
def test_the_bits_do_not_depend_on_how_many_actors_there_are(federation, mode):
    pairs = of_patients(federation, 2)
    keys = {"mode": mode, "noise_multiplier": 1.0, "clip": 0.5}
    alone, several = (private(pairs, FedAvgM(), actors=actors, **keys) for actors in (1, 4))
    assert (alone.models == several.models).all()
    assert alone.privacy == several.privacy


def test_at_most_rows_per_patient_are_sampled_and_keep_their_order():
    people = np.array([7, 7, 3, 7, 3, 9, 7])
    order = np.array([6, 0, 4, 2, 1, 5, 3])
    drawn_rows = choose_rows(people, order, 2)
    assert drawn_rows.rows.tolist() == [0, 6, 2, 4, 5]  # of 7 the first two in the random order: 6 and 0
    assert drawn_rows.patient.tolist() == [0, 0, 1, 1, 2]
    assert drawn_rows.patients == 3
    assert choose_rows(people, order, 9).rows.tolist() == [0, 1, 3, 6, 2, 4, 5]
    assert choose_rows(people[:0], order[:0], 2).patients == 0


@pytest.mark.parametrize("rows", [1, 3])
def test_one_patient_moves_a_pooled_sum_by_at_most_twice_the_clip(federation, tmp_path, rows):
    """In place of a patient's rows others: both contribute at most the clip, the others the same."""
    models = []
    for name, factor in (("here", 1.0), ("there", -40.0)):
        (tmp_path / name).mkdir()
        X = federation.X.copy()
        X[:rows] *= factor
        each = of_patients(store(tmp_path / name, X, federation.y, federation.bounds), rows)
        models.append(private(each, mode="pooled", rate=1, clip=0.2, job={"rounds": 1, "learning_rate": 1.0}).models[0])
    units = (
        sum(-(-size // rows) for size in SIZES) if rows == 1 else len(models and np.unique(units_of(federation, rows)))
    )
    moved = np.linalg.norm(models[0] - models[1]) * units
    assert 0.01 < moved <= 2 * 0.2 * (1 + 1e-9)


def units_of(federation: Federation, rows: int) -> np.ndarray:
    """Hospital and patient of each training row."""
    codes = np.arange(len(federation.y)) // rows
    pairs = [h * 1000 + code for h in range(len(SIZES)) for code in np.unique(codes[federation.rows(h, "train")])]
    return np.array(pairs)


def test_pooled_noise_arrives_with_the_configured_deviation(federate):
    wide = federate([4, 4, 4], features=4000)
    keys = {"mode": "pooled", "rate": 1e-3, "clip": 0.5, "noise_multiplier": 3.0}
    models = private(wide, job={"rounds": 1, "learning_rate": 2.0}, **keys).models[0]
    deviation = 3.0 * 0.5 * 2.0 / (1e-3 * 12)
    assert models.std() == pytest.approx(deviation, rel=0.05)


def test_a_local_step_of_nobody_is_a_step_of_noise(federate):
    wide = federate([4], features=4000)
    models = private(
        wide, mode="local", clip=0.5, noise_multiplier=3.0, job={"rounds": 1, "epochs": 1, "learning_rate": 2.0}
    ).models[0]
    assert models.std() == pytest.approx(3.0 * 0.5 * 2.0 / 4, rel=0.05)


def test_local_noise_is_calibrated_for_each_hospital_so_that_all_patients_have_the_same_epsilon(federate):
    unequal = federate([8, 40, 200])
    statement = private(unequal, mode="local", epsilon=2.0, clip=0.5, job={"rounds": 4, "batch_size": 8}).privacy
    least, most = statement.by_hospital["least"], statement.by_hospital["most"]
    assert least[0] == pytest.approx(2.0, abs=1e-2)
    assert most[0] <= 2.0
    assert most[1] > 2 * least[1]
    assert statement.epsilon == most[0]
    same = private(
        unequal, mode="local", epsilon=2.0, clip=0.5, equal_epsilon=False, job={"rounds": 4, "batch_size": 8}
    )
    assert same.privacy.by_hospital["least"][0] < 1.5
    assert same.privacy.epsilon == pytest.approx(2.0, abs=1e-2)


def test_the_quick_bound_is_above_the_accountant(federation):
    from raysim.privacy.accountant import epsilon
    from raysim.privacy.events import Gaussian

    for multiplier, rate, steps in ((1.0, 0.1, 100), (5.0, 1.0, 20), (2.0, 0.5, 40)):
        bound, exact = quick.epsilon(multiplier, rate, steps, 1e-5), epsilon([Gaussian(multiplier, rate, steps)], 1e-5)
        assert exact < bound < 1.3 * exact
    assert quick.epsilon(5.0, 1.0, 20, 1e-5) == pytest.approx(4.161624, abs=2e-2)
    assert quick.epsilon(quick.calibrated(2.0, 0.2, 30, 1e-5), 0.2, 30, 1e-5) == pytest.approx(2.0, abs=2e-3)
    assert math.isinf(quick.epsilon(0.0, 0.1, 1, 1e-5))
    assert quick.epsilon(1.0, 0.1, 0, 1e-5) == 0.0


@pytest.mark.usefixtures("usual_steps")
def test_pooled_is_accounted_as_sampled_noise_against_an_outsider_and_less_against_others(federation):
    statement = private(federation, mode="pooled", noise_multiplier=2.0, delta=1e-5, job={"rounds": 200}).privacy
    assert statement.epsilon == pytest.approx(1.560605, abs=1e-4)
    assert statement.epsilon < statement.epsilons["peer"] < statement.epsilons["server"]
    assert statement.at_two_hospitals > statement.epsilon
    assert (statement.mode, statement.covers, statement.not_private) == ("pooled", ("update",), ())


def test_a_patient_at_two_hospitals_has_the_epsilon_of_both_releases(federation):
    """Steps of all patients: two hospitals make twice as many, whichever they are."""
    keys = {"mode": "local", "noise_multiplier": 3.0, "delta": 1e-5, "job": {"rounds": 7, "epochs": 1, "batch_size": 0}}
    statement = private(federation, **keys).privacy
    assert statement.epsilon == pytest.approx(quick.epsilon(3.0, 1.0, 7, 1e-5))
    assert statement.at_two_hospitals == pytest.approx(quick.epsilon(3.0, 1.0, 14, 1e-5))
    assert statement.as_json()["epsilon_at_two_hospitals"] == statement.at_two_hospitals
    counts = {"sizes": "noisy", "statistics": {"sizes": {"epsilon": 0.25}}, "declared_public": ("metrics",)}
    assert private(federation, **keys, **counts).privacy.at_two_hospitals == pytest.approx(
        statement.at_two_hospitals + 0.5
    )
    assert private(federation, **keys, unit="example").privacy.at_two_hospitals is None


def test_statistics_released_with_pooled_gradients_count_at_both_hospitals(federation):
    keys = {"mode": "pooled", "noise_multiplier": 2.0, "delta": 1e-5, "job": {"rounds": 20}}
    plain = private(federation, **keys).privacy
    counts = {"sizes": "noisy", "statistics": {"sizes": {"epsilon": 0.25}}, "declared_public": ("metrics",)}
    assert private(federation, **keys, **counts).privacy.at_two_hospitals == pytest.approx(plain.at_two_hospitals + 0.5)
    normal = counts | {"statistics": {"sizes": {"noise_multiplier": 1.0}}}
    both_hospitals = private(federation, **keys, **normal).privacy.at_two_hospitals
    assert (
        (alone := accountant.epsilon([Gaussian(1.0, 1.0, 2)], 1e-5)) < both_hospitals < plain.at_two_hospitals + alone
    )


@given(
    hospitals=st.lists(
        st.tuples(st.floats(0.7, 9.0), st.sampled_from([0.1, 0.5, 1.0]), st.integers(0, 9)), min_size=1, max_size=5
    )
)
def test_the_bound_for_two_hospitals_holds_for_the_worst_pair(hospitals):
    bound = quick.epsilon_at_several(hospitals, 2, 1e-5)
    for i, one in enumerate(hospitals):
        for other in hospitals[i + 1 :]:
            pair = [Gaussian(*each) for each in (one, other) if each[2]]
            assert bound >= (quick.epsilon_of(pair, 1e-5) if pair else 0.0) - 1e-12


@pytest.mark.parametrize("mode", ["pooled", "local"])
def test_a_run_goes_on_bit_for_bit(federation, mode):
    job = replace(job_of(federation, FedAvgM(), rounds=4), privacy=section(mode=mode, noise_multiplier=1.0, clip=0.2))
    whole, resumed = run_and_resumed(federation, job)
    assert (resumed.models == whole.models).all()
    assert resumed.privacy == whole.privacy


def counting(federation: Federation, counts: float, **keys) -> Outcome:
    statistics = {"label_counts": {"epsilon": counts}}
    strategy = ClustPsi(clusters=2)
    return private(federation, strategy, mode="local", statistics=statistics, clip=0.5, **keys)


def test_counts_with_noise_are_covered_and_paid_for(federation):
    statement = counting(federation, 0.5, epsilon=2.0).privacy
    assert statement.covers == ("update", "label_counts")
    assert statement.not_private == ()
    assert statement.epsilon == pytest.approx(2.0, abs=1e-2)
    dearer = counting(federation, 1.5, epsilon=2.0).privacy
    assert dearer.epsilon == pytest.approx(2.0, abs=1e-2)
    assert dearer.by_hospital["most"][1] > statement.by_hospital["most"][1]


REFUSED = [
    ({"strategy": Scaffold()}, {}, r"strategy.name: .*control variates.*privacy.unit: patient"),
    ({"strategy": QFedAvg()}, {}, r"strategy.name: .*privacy.mode: pooled"),
    ({"selection": Poisson()}, {}, r"selection.name: 'Poisson'.*privacy.mode: pooled"),
    ({"optimizer": "adam"}, {}, r"training.optimizer: adam.*privacy.mode: pooled"),
    ({"system": SystemSection()}, {}, r"system: .*privacy.mode: pooled"),
    ({}, {"delta": 0.1}, r"privacy.delta: 0.1 must be below 1 / 39 .*; lower it"),
    ({}, {"epsilon": 2.0, "noise_multiplier": 1.0}, r"privacy.noise_multiplier: 1 .*privacy.epsilon is 2"),
]


@pytest.mark.parametrize(("job", "keys", "line"), REFUSED)
def test_impossible_guarantees_are_refused_in_a_line(federation, job, keys, line):
    settings = {"strategy": FedAvg(), "selection": All()} | job
    refused = replace(job_of(federation, **settings), privacy=section(mode="pooled", **keys))
    with pytest.raises(ConfigError, match=line):
        check_job(refused, federation)


@pytest.mark.parametrize(
    ("strategy", "mode", "line"),
    [(Moon(), "pooled", "contrastive"), (FedRep(), "local", "privacy.unit: patient")],
)
def test_steps_that_cannot_be_made_noisy_are_refused_when_they_are_asked_for(federation, strategy, mode, line):
    with pytest.raises(ConfigError, match=line):
        private(federation, strategy, mode=mode, job={"model": MLP})


def test_contrastive_steps_are_clipped_by_the_perceptron_alone(federation):
    """Without noise and clips they are the plain ones, and a network of other layers is refused."""
    one = {"epochs": 1, "batch_size": 0, "model": MLP}
    plain = run(federation, job_of(federation, Moon(mu=2.0), rounds=3, **one), 1).models
    assert private(federation, Moon(mu=2.0), mode="local", clip=1e9, job=one).models == pytest.approx(plain, abs=1e-10)
    with pytest.raises(ConfigError, match="contrastive"):
        private(federation, Moon(mu=2.0), mode="local", job={"model": of_class(Perceptron)})


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"unit": "hospital", "mode": "pooled"}, "privacy.mode: pooled is not for privacy.unit: hospital"),
        ({"mode": "central"}, "privacy.mode: central is not for privacy.unit: patient"),
        ({"mode": "local", "rate": 0.1}, "privacy.rate: 0.1"),
        ({"weights": "capped", "cap": 3}, "privacy.weights: capped"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(keys, line):
    with pytest.raises(ConfigError, match=line):
        section(**keys)


def test_rows_divided_by_another_column_have_no_patients(federation):
    (federation.folder / "people.npy").unlink()
    with pytest.raises(ConfigError, match=r"privacy.unit: patient, but data.split.by"):
        private(Federation.open(federation.folder), mode="pooled")


def test_a_source_that_knows_patients_keeps_them(tmp_path: Path):
    from raysim.data.build import build
    from raysim.data.sources.table import Table
    from raysim.data.split import Split

    lines = ["hospital,patient,x,y"]
    lines += [f"h{i % 2},p{i // 3},{i % 7},{i % 2 if i % 5 else 1 - i % 2}" for i in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    source = Table(path=tmp_path / "rows.csv", silo="hospital", label="y", group="patient")
    built = build(source, Split(), seed=0)
    people = np.array([int(lines[1 + row].split(",")[1][1:]) for row in built.source_rows])
    assert len(np.unique(built.people)) == 20
    for person in np.unique(built.people):
        assert len(np.unique(people[built.people == person])) == 1
    by_row = build(source, Split(by="row"), seed=0)
    assert len(np.unique(by_row.people)) == 20
    unknown = source.model_copy(update={"group": None})
    for each, known in (
        (built, True),
        (build(source, Split(), seed=1), True),
        (build(unknown, Split(), seed=1), False),
    ):
        # The same number for the same patient, or row, however rows are divided.
        expected = built.people[np.argsort(built.source_rows)][each.source_rows] if known else each.source_rows
        np.testing.assert_array_equal(each.identities, expected)
    (by_row.folder / "people.npy").unlink()
    np.testing.assert_array_equal(Federation.open(by_row.folder).identities, by_row.source_rows)


class Perceptron(nn.Module):
    """A network of anybody's."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.last = nn.Linear(n_features, n_outputs)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        return self.last(X)


def of_class(cls: type[nn.Module]) -> ModelSpec:
    return ModelSpec(None, f"{cls.__module__}.{cls.__qualname__}", {}, "zeros")


@pytest.mark.parametrize("mode", ["pooled", "local"])
def test_any_network_learns_under_a_guarantee_for_patients(federation, mode):
    """A linear network by gradients of rows is the perceptron without hidden layers."""
    pairs = of_patients(federation, 2)
    keys = {"mode": mode, "noise_multiplier": 0.5, "clip": 0.3}
    layers = ModelSpec("mlp", None, {"hidden": []}, "zeros")
    models = [private(pairs, job={"model": model}, **keys).models for model in (of_class(Perceptron), layers)]
    assert models[0] == pytest.approx(models[1], abs=1e-9)


@pytest.mark.parametrize("mode", ["pooled", "local"])
def test_a_network_with_batch_statistics_is_refused(federation, mode):
    made = job_of(federation, FedAvg(), selection=All(), model=of_class(Normed))
    with pytest.raises(ConfigError, match="because this model normalises by the rows of a batch, so"):
        check_job(replace(made, privacy=section(mode=mode)), federation)


@pytest.mark.parametrize("mode", ["pooled", "distributed"])
def test_the_same_entries_of_all_noisy_messages_are_those_of_their_sum(federate, mode):
    """Compressed after the noise, so that it costs nothing: k of P entries of the noisy sum, P / k times as large."""
    federation = federate([9, 4, 13, 7, 5, 6])
    keys = {"unit": "patient", "rate": 0.5} if mode == "pooled" else {"unit": "hospital", "mode": "distributed"}
    guarantee = PrivacySection(noise_multiplier=1.0, delta=1e-3, clip=0.5, **keys)
    strategy = FedAvg() if mode == "pooled" else FedAvg(weights="uniform")
    whole = replace(job_of(federation, strategy, selection=All(), rounds=1), privacy=guarantee, secure=SecureSection())
    half = replace(whole, compression=CompressionSection(name="random_k", ratio=0.5))
    for job in (whole, half):
        check_job(job, federation)
    uncompressed, compressed = (run(federation, job, 2) for job in (whole, half))
    moved, sent = (outcome.models[0] for outcome in (uncompressed, compressed))
    size = uncompressed.layout.size
    kept = sent != 0
    assert kept.sum() == math.ceil(size / 2)
    assert sent[kept] == pytest.approx(moved[kept] * size / kept.sum(), rel=1e-6, abs=1e-9)
    assert compressed.privacy.epsilon == uncompressed.privacy.epsilon
    own_indices = replace(half, compression=CompressionSection(name="random_k", ratio=0.5, indices="own"))
    with pytest.raises(ConfigError, match=r"compression.name: 'random_k'"):
        check_job(own_indices, federation)
    with pytest.raises(ConfigError, match=r"compression.name: 'grid' .*random_k with common indices, and grid without"):
        check_job(replace(half, compression=CompressionSection(name="grid", feedback="ef")), federation)

"""Where patients go beyond the nearest centre of all: k-FED's inheritance, and CBFL's encoder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from raysim.core.errors import ConfigError
from raysim.core.streams import stream
from raysim.data.federation import Federation
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.patient_clusters.cbfl import Cbfl
from raysim.strategies.patient_clusters.cluster_models import LocalLabels, nearest_centres
from raysim.strategies.patient_clusters.encoding import encoded, load_encoder
from raysim.strategies.patient_clusters.kfed import KFed, local_centres, server_centres
from raysim.strategies.selections.sampling import All, Uniform
from raysim.strategies.shared.encoders import patient_encoder
from tests.conftest import MakeFederation, run_strategy, store
from tests.strategies.contexts import hospital, view_of
from tests.strategies.test_battery import same

RUN = {"rounds": 3, "epochs": 2, "batch_size": 4}
SIZES = [14, 3, 0, 25, 1, 9]
HERE = __name__


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 7, 8, 4, 3], features=2)


# --- k-FED: patients inherit ----------------------------------------------------------------------------------------


def test_a_patient_goes_where_the_nearest_centre_of_their_hospital_went():
    """Centres 0 and 10 of one hospital, 4 and 12 of another: the server's are 2 and 11, with 6.5 between them."""
    by_hospital = [np.array([[0.0], [10.0]]), np.array([[4.0], [12.0]])]
    labels, centres = server_centres(by_hospital, 2)
    assert (labels.tolist(), centres[:, 0].tolist()) == ([0, 1, 0, 1], [2.0, 11.0])
    plain = nearest_centres(np.arange(1), centres)
    local = LocalLabels(np.array([0, 0, 1, 1]), np.concatenate(by_hospital), labels, hospitals=3)
    clusters = replace(plain, local=local)
    X, observed = np.array([[5.4], [7.5], [4.9], [-9.0], [99.0]]), np.ones((5, 1), dtype=bool)
    assert [plain.assign(X, observed, h).tolist() for h in range(3)] == [[0, 1, 0, 0, 1]] * 3
    assert clusters.assign(X, observed, 0).tolist() == [1, 1, 0, 0, 1], "5 is in the middle of 0 and 10"
    assert clusters.assign(X, observed, 1).tolist() == [0, 0, 0, 0, 1], "8 is in the middle of 4 and 12"
    assert clusters.assign(X, observed, 2).tolist() == [0, 1, 0, 0, 1], "without centres, as the server has it"
    assert clusters.scalars.tolist() == [2, 2, 1 + 2]
    assert clusters.count == 2


def test_centres_of_a_cluster_that_is_left_out_go_to_the_nearest_that_is_left():
    plain = nearest_centres(np.arange(1), np.array([[0.0], [10.0], [14.0]]))
    local = LocalLabels(np.array([0, 0, 0]), np.array([[1.0], [9.0], [15.0]]), np.array([0, 1, 2]), 1)
    left = replace(plain, local=local).only(np.array([0, 2]))
    X, observed = np.array([[2.0], [8.0], [16.0]]), np.ones((3, 1), dtype=bool)
    assert left.assign(X, observed, 0).tolist() == [0, 1, 1]
    assert left.count == 2


def test_patients_of_a_run_are_divided_as_a_loop_over_hospitals_says(federation):
    outcome = run_strategy(federation, KFed(clusters=3, local_clusters=2, inherit=True), **RUN)
    ids = [h for h, n in enumerate(SIZES) if n]
    by_hospital = {
        h: local_centres(federation.X[federation.rows(h, "train")].astype(float), 2, stream(1, "local_centres", 0, h))
        for h in ids
    }
    labels, centres = server_centres(list(by_hospital.values()), 3)
    expected, plain, at = np.zeros((6, 3), dtype=int), np.zeros((6, 3), dtype=int), 0
    for h in ids:
        theirs, at = labels[at : at + len(by_hospital[h])], at + len(by_hospital[h])
        for x in federation.X[federation.rows(h, "train")].astype(float):
            plain[h, nearest := ((centres - x) ** 2).sum(axis=1).argmin()] += 1
            if len(theirs):
                nearest = theirs[((by_hospital[h] - x) ** 2).sum(axis=1).argmin()]
            expected[h, nearest] += 1
    assert outcome.clusters_of_patients is not None
    assert outcome.clusters_of_patients.tolist() == expected.tolist()
    assert expected.tolist() != plain.tolist(), "or it would not matter"
    assert (outcome.figures["cluster"][:, 0] == [5, 6, 7, 8, 4, 3]).all(), "every test patient is served"


def test_one_cluster_that_is_inherited_is_fedavg(federation):
    for selection in (All(), Uniform(0.5, 2)):
        run = RUN | {"selection": selection}
        one, fedavg = (
            run_strategy(federation, KFed(clusters=1, inherit=True), **run),
            run_strategy(federation, FedAvg(), **run),
        )
        np.testing.assert_array_equal(one.models, np.repeat(fedavg.models, 2, axis=0))


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_placement_changes_nothing(precision, federation):
    run = RUN | {"precision": precision, "selection": Uniform(0.6, 2)}
    alone = run_strategy(federation, KFed(inherit=True), **run)
    for actors in (2, 6):
        same(alone, run_strategy(federation, KFed(inherit=True), actors=actors, **run))


def test_hospitals_of_few_rows_and_of_rows_all_alike(tmp_path: Path):
    train, test = [1, 2, 5, 8, 0], [2, 2, 2, 2, 3]
    stops = np.cumsum([[a, 0, b] for a, b in zip(train, test, strict=True)])
    bounds = np.column_stack([np.concatenate([[0], stops.reshape(-1, 3)[:-1, 2]]), stops.reshape(-1, 3)])
    X = np.random.default_rng(0).normal(size=(stops[-1], 3))
    X[bounds[1, 0] : bounds[1, 1]] = X[bounds[3, 0] : bounds[3, 1]] = 0.5
    federation = store(tmp_path, X, np.arange(len(X)) % 2, bounds)
    outcome = run_strategy(federation, KFed(inherit=True), **RUN)
    assert outcome.clusters_of_patients is not None
    assert outcome.clusters_of_patients.sum(axis=1).tolist() == train
    assert np.count_nonzero(outcome.clusters_of_patients[3]) == 1, "they are all alike"
    assert (outcome.figures["cluster"][:, 0] == test).all()


# --- CBFL: an encoder -----------------------------------------------------------------------------------------------


@patient_encoder
def same_values(values: np.ndarray) -> np.ndarray:
    return values


@patient_encoder
def second(values: np.ndarray) -> list[list[float]]:
    return [[row[1]] for row in values.tolist()]


@patient_encoder
def summed(values: np.ndarray) -> np.ndarray:
    return values.sum(axis=1)


def test_the_encoder_decides_what_is_near():
    """By the first column hospitals are 0, 0, 50, 50; by the second, which the encoder keeps, 1, 9, 1, 9."""
    X = [np.array([[a - 1.0, b - 0.1], [a, b], [a + 1.0, b + 0.1]]) for a, b in ((0, 1), (0, 9), (50, 1), (50, 9))]
    view = view_of([hospital([2, 1], rows) for rows in X])
    assert Cbfl(clusters=2).setup(view).rows.tolist() == [[3, 0], [3, 0], [0, 3], [0, 3]]
    state = Cbfl(clusters=2, encoder=f"{HERE}.second").setup(view)
    assert state.rows.tolist() == [[3, 0], [0, 3], [3, 0], [0, 3]]
    assert state.clusters.means.tolist() == [[1.0], [9.0]]
    assert state.clusters.scalars == 2 + 2 * 1, "two columns, and two centres of one number"


def test_an_encoder_that_changes_nothing_changes_nothing(federation):
    plain, encoder = (
        run_strategy(federation, Cbfl(), **RUN),
        run_strategy(federation, Cbfl(encoder=f"{HERE}.same_values"), **RUN),
    )
    same(plain, encoder)
    assert (plain.setup, plain.clusters_of_patients.tolist()) == (encoder.setup, encoder.clusters_of_patients.tolist())


def test_what_is_encoded_are_the_chosen_columns():
    X = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert encoded(X, np.array([1, 3]), None).tolist() == [[1, 3], [5, 7], [9, 11]]
    assert encoded(X, np.array([1, 3]), f"{HERE}.second").tolist() == [[3], [7], [11]]
    assert load_encoder(f"{HERE}.second") is second


@pytest.mark.parametrize(
    ("encoder", "said"),
    [
        ("nowhere.at_all", "cannot be imported"),
        ("numpy.no_such_function", "cannot be imported"),
        ("abs", "cannot be imported"),
        ("", "cannot be imported"),
        ("numpy.pi", "is not an encoder"),
        ("numpy.abs", "is not an encoder"),
        ("pickle.loads", "is not an encoder; mark the function that encodes rows with @patient_encoder"),
    ],
)
def test_an_encoder_that_is_none_is_refused_at_once(encoder, said):
    with pytest.raises(ValueError, match=f"^encoder: .*{said}"):
        Cbfl(encoder=encoder)


def test_an_encoder_that_loses_rows_is_refused_before_hospitals_run_it(federation):
    with pytest.raises(
        ConfigError, match=r"^strategy\.encoder: .*summed returned an array of shape \(1,\) for rows of"
    ):
        run_strategy(federation, Cbfl(encoder=f"{HERE}.summed"), rounds=1)


def test_patients_do_not_inherit_unless_it_is_said():
    assert not KFed().inherit

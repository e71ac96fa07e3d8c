"""A model that nobody has trained has no figures, wherever it serves: in tables, means, pairs, groups and files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.engine.measuring.untrained import Rows, padded, same, trained_on_one_class
from raysim.metrics.labels import CLASSIFICATION
from raysim.storage.run_tables import hospitals_table
from raysim.strategies.base import Strategy
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.hospital_clusters.ifca import Ifca
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.strategies.personal.ditto import Ditto
from raysim.strategies.personal.fedper import FedPer
from raysim.strategies.personal.fedrep import FedRep
from raysim.strategies.personal.fine_tuning import FineTuning
from raysim.strategies.references.local import Local
from raysim.strategies.selections.sampling import Uniform
from tests.conftest import MLP, run_strategy, store, with_patients

TRAIN, TEST = [9, 0, 13, 8], [30, 40, 20, 0]
COLUMN = {name: i for i, name in enumerate(CLASSIFICATION.figures)}
COUNTS = ("n", *CLASSIFICATION.counts)


def test_training_alone_says_nothing_at_a_hospital_without_training_rows(federate):
    federation = with_patients(federate(TRAIN, TEST))
    outcome = run_strategy(federation, Local(), actors=2, predictions=True)
    assert outcome.untrained["personal"].tolist() == [False, True, False, False]
    figures, metrics = outcome.figures["personal"], outcome.metrics["personal"]
    for name, i in COLUMN.items():
        assert np.isfinite(figures[1, i]) == (name in COUNTS), name
    assert figures[1, COLUMN["n"]] == 40
    # Means are those of the two hospitals that it has a model for; the other is counted.
    tested = [0, 2]
    for name in ("auroc", "log_loss", "brier", "accuracy"):
        column = figures[tested, COLUMN[name]]
        assert metrics[name] == pytest.approx(np.average(column, weights=[30, 20])), name
    assert (metrics["hospitals"], metrics["undefined"]) == (2, 1)
    assert outcome.pairs["personal"].judged.tolist() == [True, False, True, False]
    assert np.isnan(outcome.sketches["personal"][1]).all()
    assert outcome.scores["personal"].rows.tolist() == [30, 0, 20, 0]
    within, together = outcome.groups["personal"]["sex"]
    assert within[1, :, COLUMN["n"]].sum() == 0
    assert together[:, COLUMN["n"]].sum() == 50
    theirs = slice(federation.bounds[1, 0], federation.bounds[1, 3])
    assert np.isnan(outcome.predictions["personal"][theirs]).all()
    assert np.isfinite(np.delete(outcome.predictions["personal"], np.r_[theirs])).all()
    table = hospitals_table(federation, outcome, "test")
    assert table["trained"].tolist() == ["yes", "no", "yes", "yes"]


def test_only_counted_hospitals_enter_the_pooled_figure(federate):
    """The rows of the untrained hospital are in no histogram: pooled AUROC is that of the other hospitals' rows."""
    from raysim.metrics.measures import pooled_auroc, score_histogram

    federation = federate(TRAIN, TEST)
    outcome = run_strategy(federation, Local(), predictions=True)
    rows = np.concatenate([np.arange(len(federation.y))[federation.rows(h, "test")] for h in (0, 2)])
    expected, _ = pooled_auroc([score_histogram(outcome.predictions["personal"][rows], federation.y[rows])])
    assert outcome.metrics["personal"]["pooled_auroc"] == expected


@pytest.mark.parametrize(
    ("strategy", "model", "untrained"),
    [
        # Heads: whoever never trained one has none. Without rows of its own no hospital has.
        (FedPer(), "personal", "not stored"),
        (FedRep(), "personal", "not stored"),
        # Ditto's own model begins at the common start; without training rows the federated model serves.
        (Ditto(), "personal", "not stored, with rows"),
        # The federated model is everybody's until a hospital has its own.
        (FineTuning(), "personal", "nobody"),
        (FineTuning(), "global", "nobody"),
        (FedAvg(), "global", "nobody"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_who_is_untrained_under_which_strategy(strategy: Strategy, model, untrained, precision, federate):
    federation = federate([9, 7, 0, 8, 6])
    settings = {"selection": Uniform(0.2, 1), "rounds": 2, "model": MLP, "precision": precision}
    outcome = run_strategy(federation, strategy, **settings)
    has, sizes = np.isin(np.arange(5), list(outcome.own_models)), federation.sizes("train")
    expected = {"not stored": ~has, "not stored, with rows": ~has & (sizes > 0), "nobody": np.zeros(5, bool)}[untrained]
    assert outcome.untrained[model].tolist() == expected.tolist()
    assert np.isnan(outcome.figures[model][:, COLUMN["log_loss"]]).tolist() == expected.tolist()


@pytest.mark.parametrize("strategy", [FedAvg(), Ifca(clusters=3), Chip(clusters=2)], ids=lambda s: type(s).__name__)
def test_without_training_no_model_has_figures(strategy, federate):
    """A learning rate of 0 leaves every model as it began, those of IFCA at three starts."""
    outcome = run_strategy(federate([9, 7, 6, 8]), strategy, learning_rate=0.0)
    for model in set(outcome.serve) & {"global", "cluster"}:
        assert outcome.untrained[model].all()
        assert np.isnan(outcome.metrics[model]["log_loss"])
        assert outcome.metrics[model]["hospitals"] == 0


def test_a_cluster_that_was_never_sampled_is_untrained(federate):
    outcome = run_strategy(federate([9, 7, 8, 6, 9, 8]), Ifca(clusters=3), rounds=1, selection=Uniform(0.1, 1))
    (trained,) = {k for k in range(1, 4) if k in outcome.serve["cluster"]} & set(
        np.flatnonzero([not outcome.untrained["cluster"][outcome.serve["cluster"] == k].all() for k in range(4)])
    )
    assert outcome.untrained["cluster"].tolist() == (outcome.serve["cluster"] != trained).tolist()


def test_one_class_in_training_is_marked_where_the_model_is_the_hospitals_own(tmp_path):
    y = [0, 0, 0, 0, 1, 0, 1, 0, 1, 1, 1, 0]
    bounds = [[0, 2, 2, 5], [5, 7, 7, 8], [8, 11, 11, 12]]
    X = np.random.default_rng(0).normal(size=(12, 3))
    federation = store(tmp_path, X, y, bounds)
    assert trained_on_one_class(federation).tolist() == [True, False, True]
    local, fedavg = (hospitals_table(federation, run_strategy(federation, s), "test") for s in (Local(), FedAvg()))
    assert local["trained"].tolist() == ["one class", "yes", "one class"]
    assert local["log_loss"].notna().all(), "it is served"
    assert fedavg["trained"].tolist() == ["yes"] * 3


@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    which=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_rows_of_hospitals_that_are_left_out(lengths, which):
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    n, trained = int(offsets[-1]), np.array(which[: len(lengths)])
    rows = Rows(np.arange(n) * 1.0, np.arange(n) % 2, offsets).of(trained)
    for h, there in enumerate(trained):
        theirs = rows.outputs[rows.offsets[h] : rows.offsets[h + 1]]
        assert theirs.tolist() == (np.arange(offsets[h], offsets[h + 1]).tolist() if there else [])
    figures = np.ones((int(trained.sum()), 2, len(CLASSIFICATION.figures)))
    whole = padded(figures, trained, CLASSIFICATION)
    assert (whole[trained] == 1).all()
    assert (whole[~trained][..., [COLUMN[name] for name in COUNTS]] == 0).all()
    assert np.isnan(whole[~trained][..., COLUMN["auroc"]]).all()


def test_models_that_are_still_a_start():
    models = np.array([[0.0, 0.1], [0.1, 0.0], [0.5, 0.5]], np.float32)
    assert same(models, np.array([[0.1, 0.0], [0.5, 0.5001]])).tolist() == [False, True, False]

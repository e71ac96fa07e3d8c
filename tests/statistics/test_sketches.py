"""What hospitals send for the covariance of models: against DeLong's, and against the rows of several seeds."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from raysim.statistics.discrimination import sketches as module
from raysim.statistics.discrimination.auroc import Placements, delong, placements
from raysim.statistics.discrimination.sketches import SUMS, patient_part, sketches
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import MakeFederation, run_strategy
from tests.equality import same_models
from tests.statistics.patients import patient_covariance, patient_sums


def hospitals(rng: np.random.Generator, sizes: list[int], shift: float = 0.0) -> tuple[np.ndarray, ...]:
    """Scores of two models ``[2, n]`` with correlation .9, labels and offsets."""
    y = np.concatenate([np.arange(size) % 5 == 0 for size in sizes]).astype(np.int64)
    common, separate = rng.normal(size=len(y)), rng.normal(size=(2, len(y)))
    scores = 0.949 * common + 0.316 * separate + y * np.array([[1.2], [1.2 + shift]])
    return scores, y, np.concatenate([[0], np.cumsum(sizes)])


def sent(scores: np.ndarray, y: np.ndarray, offsets: Any, ids: Any, patients: Any = None) -> np.ndarray:
    """The sketches of one model, each row of a patient of its own unless they are given."""
    who = np.arange(len(y)) if patients is None else patients
    return sketches(placements(scores, y, offsets), ids, who)


def test_the_sums_say_delong_s_covariance() -> None:
    scores, y, offsets = hospitals(np.random.default_rng(0), [40, 200, 1000])
    exact = delong(placements(scores, y, offsets)).covariance
    for first, second in ((0, 0), (0, 1)):
        products = [
            (a.astype(float) * b).mean(axis=1)
            for draw in range(60)
            for a, b in [[sent(scores[k], y, offsets, np.arange(3) + 3 * draw) for k in (first, second)]]
        ]
        # 6000 products: a variance is off by 2 %, which is a standard deviation of sqrt(2 / 6000).
        assert np.allclose(np.mean(products, axis=0), exact[:, first, second], rtol=0.08)


def test_a_hospital_s_sums_are_its_own_whoever_is_computed_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, y, offsets = hospitals(np.random.default_rng(1), [30, 50, 0, 17])
    who = np.arange(1000, 1097)
    both = sent(scores[0], y, offsets, [2, 9, 4, 1], who)
    assert both.shape == (4, SUMS)
    np.testing.assert_array_equal(both[1:2], sent(scores[0][30:80], y[30:80], [0, 50], [9], who[30:80]))
    assert np.isnan(both[2]).all(), "no row"
    assert not np.allclose(both[1], sent(scores[0], y, offsets, [2, 8, 4, 1], who)[1]), "numbers of another hospital"
    assert not np.allclose(both[1], sent(scores[0], y, offsets, [2, 9, 4, 1], who + 1)[1]), "of other patients"
    monkeypatch.setattr(module, "ROWS", 7)
    cut = sent(scores[0], y, offsets, [2, 9, 4, 1], who)
    np.testing.assert_allclose(cut, both, rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(cut[1:2], sent(scores[0][30:80], y[30:80], [0, 50], [9], who[30:80]))


def test_the_order_of_rows_does_not_matter() -> None:
    scores, y, offsets = hospitals(np.random.default_rng(3), [80])
    order = np.random.default_rng(4).permutation(80)
    shuffled = sent(scores[0][order], y[order], offsets, [0], order)
    np.testing.assert_allclose(shuffled, sent(scores[0], y, offsets, [0]), rtol=1e-3, atol=1e-6)


def one_number_a_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each patient's numbers are 0 but for one, so that sums say patients' own influences."""
    monkeypatch.setattr(
        module, "normals", lambda seed, purpose, keys, count: np.eye(count, dtype=np.float32)[keys[:, 1]]
    )


def test_influences_are_corrected_as_a_sample_variance_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 events by the root of 2, 5 others by that of 5/4."""
    one_number_a_patient(monkeypatch)
    y = np.array([0, 1, 0, 0, 1, 0, 0])
    scores = np.array([0.1, 0.5, 0.2, 0.6, 0.7, 0.3, 0.8])
    placed = placements(scores, y, [0, 7])
    expected = placed.influence[0] * np.where(placed.event, np.sqrt(2), np.sqrt(5 / 4))
    assert expected.any()
    assert sent(scores, y, [0, 7], [0])[0, :7] == pytest.approx(expected, rel=1e-6)


def test_models_that_order_rows_alike_send_the_same() -> None:
    scores, y, offsets = hospitals(np.random.default_rng(2), [60])
    one, other = (sent(s, y, offsets, [0]) for s in (scores[0], np.exp(scores[0])))
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(patient_part([one], [other], [[60]]), [0.0])


def test_what_is_undefined() -> None:
    y = np.array([1, 0, 0, 0, 1, 1, 0, 0, 1, 1])
    scores = np.array([0.3, 0.1, 0.2, 0.4, 0.9, 0.8, 0.1, 0.2, 0.5, 0.6])
    sums = sent(scores, y, [0, 4, 8, 10], [0, 1, 2])
    assert np.isfinite(sums[0]).all(), "one event: its own influence is 0, that of the others is reported"
    assert (sums[1] == 0).all(), "a perfect AUROC does not vary"
    assert np.isnan(sums[2]).all(), "one class"
    with pytest.raises(ValueError, match="9 numbers were given for 10 rows"):
        sent(scores, y, [0, 4, 8, 10], [0, 1, 2], np.arange(9))


def several_seeds(rng: np.random.Generator, seeds: int) -> tuple[list[Placements], list[np.ndarray], np.ndarray]:
    """Placements of two models at 30 hospitals of 10 to 38 patients, of whom each seed tests half: with the patients
    and the rows of each hospital."""
    home = np.repeat(np.arange(30), 10 + np.arange(30) % 29)
    y, patient = rng.random(len(home)) < 0.3, rng.normal(size=(2, len(home)))
    placed, ids = [], []
    for _ in range(seeds):
        tested = np.flatnonzero(rng.random(len(home)) < 0.5)
        scores = patient[:, tested] + y[tested] + 0.5 * rng.normal(size=(2, len(tested)))
        placed.append(placements(scores, y[tested].astype(int), np.searchsorted(home[tested], np.arange(31))))
        ids.append(tested)
    return placed, ids, np.array([np.diff(each.offsets) for each in placed])


def parts(placed: list[Placements], ids: list[np.ndarray], rows: np.ndarray) -> np.ndarray:
    """The patients' part of the two models' difference, from sketches."""
    each = [
        [sketches(dataclasses.replace(p, auroc=p.auroc[k : k + 1], influence=p.influence[k : k + 1]), range(30), who)]
        for k in (0, 1)
        for p, who in zip(placed, ids, strict=True)
    ]
    both = np.array(each).reshape(2, len(placed), 30, SUMS)
    return patient_part(both[0], both[1], rows)


def test_seeds_that_share_patients_add_up_as_from_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    placed, ids, rows = several_seeds(np.random.default_rng(5), 3)
    exact = patient_sums(patient_covariance(placed, ids), 0, 1)
    found = parts(placed, ids, rows)
    # The 30 hospitals' draws are independent: the sum is off by 14 % over the root of their effective number.
    assert found.sum() == pytest.approx(exact.sum(), rel=0.1)
    independent = sum(
        patient_sums(patient_covariance([p], [who]), 0, 1).sum() for p, who in zip(placed, ids, strict=True)
    )
    assert exact.sum() > 1.2 * independent, "shared patients are no independent evidence"
    # Numbered within their hospital, all patients have a number of their own: then nothing is left to chance.
    one_number_a_patient(monkeypatch)
    home = np.repeat(np.arange(30), 10 + np.arange(30) % 29)
    within = np.arange(len(home)) - np.searchsorted(home, home)
    np.testing.assert_allclose(SUMS * parts(placed, [within[who] for who in ids], rows), exact, rtol=1e-4)


def test_the_part_is_right_on_average_over_draws() -> None:
    placed, ids, rows = several_seeds(np.random.default_rng(6), 2)
    exact = patient_sums(patient_covariance(placed, ids), 0, 1)
    draws = np.mean([parts(placed, [who + 10_000 * draw for who in ids], rows) for draw in range(40)], axis=0)
    assert draws == pytest.approx(exact, rel=0.12, abs=1e-9)


def test_where_hospitals_are_placed_changes_no_bit(federate: MakeFederation) -> None:
    federation = federate([12, 8, 20, 0, 14], [30, 12, 25, 9, 40])
    one, *others = (run_strategy(federation, FedAvg(), actors=actors) for actors in (1, 3, 5))
    assert np.isfinite(one.sketches["global"]).all()
    for other in others:
        same_models(one, other)

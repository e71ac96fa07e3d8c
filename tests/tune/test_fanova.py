"""Functional analysis of variance: by hand, and against Optuna's."""

from __future__ import annotations

import numpy as np
import optuna
import pytest
from optuna.importance import FanovaImportanceEvaluator, get_param_importances

from raysim.tune.page import importance
from raysim.tune.page.importance import shares

BOX = np.array([[0.0, 1.0], [0.0, 4.0]])


def test_one_step_is_due_to_the_coordinate_that_it_is_on():
    points = np.array([[0.2, 1.0], [0.4, 3.0], [0.6, 1.0], [0.8, 3.0]] * 4)
    response = (points[:, 0] > 0.5).astype(float)
    assert shares(points, response, BOX, [[0], [1]]).tolist() == [1.0, 0.0]
    assert shares(points, response, BOX, [[1], [0]]).tolist() == [0.0, 1.0]


def test_coordinates_that_explain_nothing_share_equally():
    points = np.array([[0.2, 1.0], [0.4, 3.0], [0.6, 1.0]])
    assert shares(points, np.ones(3), BOX, [[0], [1]]).tolist() == [0.5, 0.5]


def test_a_tree_on_a_grid_by_hand():
    # Half of the box is 0, the rest 1 and 5, a quarter of it each.
    leaves = np.array([[[0, 0.5], [0, 4]], [[0.5, 1], [0, 2]], [[0.5, 1], [2, 4]]], dtype=float)
    values = np.array([0.0, 1.0, 5.0])
    assert importance._marginal(values, leaves, BOX, [0]) == 1.5**2  # 0 and 3
    assert importance._marginal(values, leaves, BOX, [1]) == 1.0  # 0.5 and 2.5
    assert importance._marginal(values, leaves, BOX, [0, 1]) == (2 * 1.5**2 + 0.5**2 + 3.5**2) / 4  # all of it
    uneven = np.array([[[0, 0.5], [0, 4]], [[0.5, 1], [0, 3]], [[0.5, 1], [3, 4]]], dtype=float)
    assert importance._marginal(np.array([0.0, 0.0, 8.0]), uneven, BOX, [1]) == 3.0  # 0, and 4 on a quarter


@pytest.mark.parametrize("seed", [1, 2])
def test_figures_are_those_of_optuna(seed):
    rng = np.random.default_rng(seed)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    for _ in range(30):
        trial = study.ask()
        a, b = trial.suggest_float("a", 1e-3, 10, log=True), trial.suggest_int("b", 2, 11)
        c = trial.suggest_categorical("c", [0, 1, 2])
        study.tell(trial, float(np.log(a) + 0.1 * b + (c == 1) * 2 + rng.normal()))
    expected = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0), params=["a", "b", "c"])
    trials = study.get_trials()
    points = np.array([[t.params["a"], t.params["b"], *(t.params["c"] == i for i in range(3))] for t in trials])
    box = np.array([[1e-3, 10], [2, 11], *[[0, 1]] * 3])
    said = shares(points, np.array([t.value for t in trials]), box, [[0], [1], [2, 3, 4]])
    np.testing.assert_allclose(said, [expected[key] for key in "abc"], rtol=1e-9)

"""The synthetic sets of CS-RCFL as a federation."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from raysim.core.errors import DataError
from raysim.core.streams import stream
from raysim.data.build import build
from raysim.data.sources.coalitions import Coalitions, coalition_sets
from raysim.data.split import Split

SAMPLED = Split(column="part")


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("covariance", ["wishart", "identity"])
def test_a_federation_has_the_sampled_sets(task, covariance):
    source = Coalitions(task=task, covariance=covariance, hospitals=11, features=4, tests=3, test_rows=7, seed=2)
    federation = build(source, SAMPLED, "none")
    drawn = coalition_sets(
        stream(2, "coalitions"), task, hospitals=11, features=4, tests=3, test_rows=7, covariance=covariance
    )
    assert federation.hospitals == tuple(f"hospital_{h + 1}" for h in range(11))
    assert federation.classes == (("negative", "positive") if task == "classification" else ())
    for h in range(11):
        train, test = federation.rows(h, "train"), federation.rows(h, "test")
        assert federation.X[train] == pytest.approx(drawn.train[h][0], rel=1e-6)
        assert federation.y[train] == pytest.approx(drawn.train[h][1])
        assert federation.y[test] == pytest.approx(np.concatenate([rows[h][1] for rows in drawn.tests]))
    assert federation.attributes["group"] == [f"group_{g + 1}" for g in drawn.groups]


def test_identity_covariances_are_that():
    sets = coalition_sets(
        np.random.default_rng(0), "regression", features=3, tests=1, test_rows=20_000, covariance="identity"
    )
    for X, _ in sets.tests[0]:
        assert np.cov(X.T) == pytest.approx(np.eye(3), abs=0.05)


def test_what_is_no_set_is_refused():
    with pytest.raises(ValidationError, match="groups: 3 is more than the 2 hospitals; lower it"):
        Coalitions(hospitals=2)
    with pytest.raises(DataError, match=r"data.split.column: 'fold' does not exist; use 'part'"):
        build(Coalitions(), Split(column="fold"))
    with pytest.raises(DataError, match=r"data.split.by: 'patient', but these rows have no groups"):
        build(Coalitions(), Split(by="patient"))

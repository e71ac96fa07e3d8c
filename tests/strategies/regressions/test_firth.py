"""Firth's regression of local rows, against another program (firthmodels) and its own definition."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from raysim.strategies.problem import Floats
from raysim.strategies.regressions import firth
from raysim.strategies.regressions.families import LOGISTIC
from raysim.strategies.regressions.firth import Point, firth_fit
from raysim.strategies.regressions.newton_steps import firth_gradient
from tests.strategies.regressions.tables import SEPARATED, table_t

T = table_t()


def rare_flags(rows: int, columns: int) -> tuple[Floats, Floats]:
    """A table of an intercept and flags, half of them rare and with one class alone, and one that is always 0."""
    rng = np.random.default_rng(7)
    flags = rng.random((rows, columns)) < np.where(np.arange(columns) % 2, 0.05, 0.4)
    y = (rng.random(rows) < 0.3) | flags[:, 1]
    return np.column_stack([np.ones(rows), flags, np.zeros(rows)]).astype(np.float64), y.astype(np.float64)


def point(X: Floats, y: Floats, beta: Floats) -> Point:
    found = Point.at(X, y, beta)
    assert found is not None
    return found


def test_fits_of_all_rows_and_of_hospitals() -> None:
    assert_allclose(firth_fit(T.X, T.y).beta, (0.1810072179, 1.5914945346, -1.1323131879), atol=1e-9)
    golden = [
        (-0.2842513784, 1.0889808768, -0.5873116843),
        (-0.0511620907, 1.5778160894, -1.8628036131),
        (0.7967688422, 1.4212826366, -0.6575800502),
    ]
    assert_allclose([firth_fit(*T.of(h)).beta for h in range(3)], golden, atol=1e-9)


def test_separated_classes() -> None:
    X, y = SEPARATED
    fit = firth_fit(X, y)
    assert fit.status == "converged"
    assert_allclose(fit.beta, np.linalg.solve(X, np.log(3) * (2 * y - 1)), atol=1e-9)
    assert_allclose(fit.beta, (3.4789389141, 3.6620409622, -5.1268573471), atol=1e-9)


@pytest.mark.parametrize("rows", [5, 36])
def test_derivatives_are_those_of_the_loss(rows: int) -> None:
    X, y, beta = T.X[:rows], T.y[:rows], np.array([0.4, -0.7, 0.2])
    here = point(X, y, beta)
    moved = [(point(X, y, beta + 1e-5 * e), point(X, y, beta - 1e-5 * e)) for e in np.eye(3)]
    assert_allclose(here.gradient, [(below.loss - above.loss) / 2e-5 for above, below in moved], atol=1e-8)
    information = LOGISTIC.sums(X, y, beta).hessian
    hats = firth_gradient(LOGISTIC, X, y, beta, information, np.ones(3, dtype=np.bool_))
    assert_allclose(here.gradient, hats, atol=1e-12)
    # A part of the second derivatives is in single precision.
    slopes = [(below.gradient - above.gradient) / 2e-5 for above, below in moved]
    assert_allclose(here.curvature(X), slopes, atol=1e-6)


@pytest.mark.parametrize(("rows", "columns"), [(60, 40), (300, 12)])
def test_rare_flags_fit_to_the_last_digits_with_and_without_second_derivatives(
    monkeypatch: pytest.MonkeyPatch, rows: int, columns: int
) -> None:
    X, y = rare_flags(rows, columns)
    fit = firth_fit(X, y)
    assert fit.status == "converged"
    assert fit.keep is not None
    assert not fit.keep[-1]
    found = point(X[:, fit.keep], y, fit.beta[fit.keep])
    assert np.abs(found.gradient).max() < 1e-9
    curvature = found.curvature(X[:, fit.keep])
    assert curvature is not None
    assert np.linalg.eigvalsh(curvature)[0] > 0
    monkeypatch.setattr(firth, "PRODUCTS", 0)
    without = firth_fit(X, y)
    assert len(without.losses) > len(fit.losses)
    assert_allclose(without.beta, fit.beta, atol=1e-8)

"""Losses of rows, their derivatives and which loss a label has, against numbers worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from raysim.core.errors import ConfigError
from raysim.training.losses import choose, default_rate, residual, row_losses


def test_losses_of_rows_by_hand() -> None:
    z, y = np.array([2.5, -1.0, 4.0], np.float32), np.array([1.0, 3.0, 4.0])
    assert row_losses("squared", z, y).tolist() == [1.125, 8.0, 0.0]
    assert row_losses("absolute", z, y).tolist() == [1.5, 4.0, 0.0]


def test_the_log_loss_is_the_negative_logarithm_of_the_labels_probability() -> None:
    """Odds of 3 give probabilities 3/4 and 1/4; logits log 1, log 2, log 5 give eighths."""
    margins = np.log([3.0, 3.0, 1 / 3])
    expected = -np.log([1 / 4, 3 / 4, 3 / 4])
    np.testing.assert_allclose(row_losses("log_loss", margins, np.array([0, 1, 0])), expected, rtol=1e-14)
    logits = np.log([[1.0, 2.0, 5.0], [5.0, 1.0, 2.0]])
    expected = -np.log([2 / 8, 5 / 8])
    np.testing.assert_allclose(row_losses("log_loss", logits, np.array([1, 0])), expected, rtol=1e-14)


def test_residuals_replace_predictions() -> None:
    for loss, expected in (("squared", [1.5, -4.0, 0.0]), ("absolute", [1.0, -1.0, 0.0])):
        z = np.array([2.5, -1.0, 4.0])
        residual(loss, z, np.array([1.0, 3.0, 4.0]))
        assert z.tolist() == expected


def test_only_the_squared_loss_of_a_real_label_has_the_small_rate() -> None:
    assert [default_rate(loss, real_label=True) for loss in (None, "squared", "absolute")] == [0.005, 0.005, 0.1]
    assert default_rate(None, real_label=False) == 0.1


def test_a_label_has_a_loss_that_fits_it() -> None:
    assert [choose(None, 2), choose("log_loss", 3)] == ["log_loss", "log_loss"]
    assert [choose(None, 0), choose("absolute", 0)] == ["squared", "absolute"]
    with pytest.raises(ConfigError, match=r"^model.loss: 'squared' is for a real-valued label"):
        choose("squared", 2)
    with pytest.raises(ConfigError, match=r"^model.loss: 'log_loss' is no loss of a real-valued label"):
        choose("log_loss", 0)


def test_the_log_loss_of_a_row_is_the_same_bits_whichever_rows_are_beside_it():
    rng = np.random.default_rng(3)
    z, y = rng.normal(0, 20, 70), rng.integers(0, 2, 70)
    together = row_losses("log_loss", z, y)
    np.testing.assert_allclose(together, np.logaddexp(0.0, z) - y * z, rtol=1e-13, atol=1e-14)
    alone = [row_losses("log_loss", z[i : i + 1], y[i : i + 1])[0] for i in range(70)]
    assert together.tolist() == alone
    assert together[5:38].tolist() == row_losses("log_loss", z[5:38], y[5:38]).tolist()

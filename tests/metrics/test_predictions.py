"""What is written of a model's outputs."""

import numpy as np
import pytest
from scipy.special import softmax

from raysim.metrics.predictions import predictions


def test_one_output_is_the_logit_of_the_second_class():
    (column,) = predictions(np.array([0.0, np.log(3), -np.log(4), -800.0]), ["no", "yes"]).items()
    assert column[0] == "probability"
    np.testing.assert_allclose(column[1], [0.5, 0.75, 0.2, 0.0], atol=1e-15)


def test_several_outputs_are_a_probability_each():
    outputs = np.array([[0.0, 1.0, 2.0], [5.0, 5.0, 1.0]])
    written = predictions(outputs, ["a", "b", "c"])
    shares = softmax(outputs, axis=1)
    assert list(written["prediction"]) == ["c", "a"]
    np.testing.assert_allclose(written["probability"], shares.max(axis=1))
    for k, name in enumerate("abc"):
        np.testing.assert_allclose(written[f"probability_{name}"], shares[:, k])


def test_outputs_of_thousands_have_probabilities():
    written = predictions(np.array([[1e4, 0.0], [-1e4, 0.0]]), ["a", "b"])
    assert [written[f"probability_{name}"].tolist() for name in "ab"] == [[1.0, 0.0], [0.0, 1.0]]


def test_a_real_label_is_the_output():
    written = predictions(np.array([1.5, -2.0], np.float32), [])
    assert list(written) == ["prediction"]
    assert written["prediction"].tolist() == pytest.approx([1.5, -2.0])

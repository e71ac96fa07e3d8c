"""Small pooled data sets that come with scikit-learn and need no file, for first experiments."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.data.sources.pooled import Pooled


class Digits(Pooled):
    """scikit-learn's digits: 1,797 images of 8 x 8, 10 classes."""

    predicts: ClassVar[str] = "handwritten digit"
    tabular: ClassVar[bool] = False

    def pool(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str]:
        from sklearn.datasets import load_digits

        return _table(load_digits(), "digits")


class BreastCancer(Pooled):
    """scikit-learn's breast cancer data: 569 tumours, 30 measurements, malignant (class 1) or benign."""

    predicts: ClassVar[str] = "malignant tumour"

    def pool(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str]:
        from sklearn.datasets import load_breast_cancer

        features, y, classes, note = _table(load_breast_cancer(), "breast cancer")
        return features, 1 - y, classes[::-1], note


def _table(bunch: Any, name: str) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str]:
    features = pd.DataFrame(bunch.data.astype(np.float32), columns=[str(name) for name in bunch.feature_names])
    classes = tuple(str(name) for name in bunch.target_names)
    return features, bunch.target.astype(np.int64), classes, f"scikit-learn's {name}: {len(features):,} rows"

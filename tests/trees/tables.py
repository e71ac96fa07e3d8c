"""Small tables by formula, whose trees are known to the digits."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_breast_cancer

from raysim.trees.settings import TreeSettings, TreeTask


def table_r():
    """24 rows of three columns, one with missing values, and labels of two classes."""
    r = np.arange(24)
    x2 = np.where(r % 5 == 4, np.nan, (2 * r**2 + r + 1) % 11)
    X = np.column_stack([(5 * r + 3) % 23, x2, 3 * r % 7]).astype(np.float32)
    y = ((X[:, 0] > 11) ^ ((X[:, 2] > 3) & ((r + 1) % 3 > 0))) | (r % 5 == 4)
    return X, y.astype(np.int64)


def task_r(**settings):
    """The task whose trees are known."""
    given = {"trees": 3, "depth": 2, "rate": 0.3, "min_rows": 1, "bins": 64, "edges": "exact"} | settings
    return TreeTask(TreeSettings(**given), (0, 0, 0), 2)


def table_c():
    """Tumours, malignant as class 1: training rows and test rows ``(X, y, X, y)``."""
    data = load_breast_cancer()
    X, y = data.data.astype(np.float32), 1 - data.target
    test = np.arange(len(y)) % 4 == 0
    return X[~test], y[~test], X[test], y[test]

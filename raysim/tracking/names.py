"""Names of metrics in MLflow, which groups metrics by the part of their names before a slash."""

from __future__ import annotations

import re
from collections.abc import Mapping

TOP = ("auroc", "mae", "worst_decile", "observed_over_expected", "hypervolume")

GROUPS = {
    "seconds": "time",
    "virtual_seconds": "time",
    "asked": "time",
    "staleness": "time",
    "cohort_size": "traffic",
    "training_loss": "loss",
    "validation_loss": "loss",
    "delta": "privacy",
}
"""The groups of some metrics that are not computed over hospitals, by the name of the metric."""


def metric_name(name: str) -> str:
    """Return the name of a metric in MLflow: ``name`` with the prefix of its group, if it has one.

    >>> [metric_name(name) for name in ("auroc", "gini", "bytes_up", "training_loss", "auroc_std", "test_auroc")]
    ['auroc', 'hospitals/gini', 'traffic/bytes_up', 'loss/training_loss', 'spread/auroc', 'test/auroc']
    """
    if name in TOP or "/" in name:
        return name
    if name.startswith("bytes"):
        return f"traffic/{name}"
    if name.startswith("epsilon_"):
        return f"privacy/{name}"
    if name.startswith("test_"):
        return f"test/{name.removeprefix('test_')}"
    if name.endswith("_std"):
        return f"spread/{name.removesuffix('_std')}"
    if "_target_" in name:
        return f"target/{name}"
    return f"{GROUPS.get(name, 'hospitals')}/{name}"


def metric_label(label: str) -> str:
    """Replace the characters of a label that MLflow does not accept in the name of a metric."""
    return re.sub(r"[^\w.:\- ]", "_", label)


def named(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return ``metrics`` with their names in MLflow as keys."""
    return {metric_name(name): value for name, value in metrics.items()}

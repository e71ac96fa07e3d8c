"""The section ``study`` of a study's file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import field_validator

from raysim.config.checking import validated
from raysim.config.sections.plugin_sections import StrategySection
from raysim.core.defaults import default
from raysim.core.errors import ConfigError, nearest
from raysim.core.section import Section, Seed
from raysim.data.heterogeneity import label_metrics
from raysim.strategies.shared.psi import Smoothing, check_smoothing

REPEATED = "emd_l1"
"""The metric that is excluded by default: it is twice ``emd_pooled``, and would halve that metric's importance."""


class Study(Section):
    """The section ``study``: the grid, and the quantity that is predicted.

    - ``alphas``, ``clients`` (numbers of clients), ``seeds``: every combination is a Dirichlet partition.
    - ``min_size``: the smallest number of rows that a client may have.
    - ``metrics``: the metrics from which the skew is predicted; None: all except :data:`REPEATED`.
    - ``target``: the predicted quantity, the logarithm of alpha or alpha itself.
    - ``epsilon``: how WPSI smooths shares, a number or ``counts`` (:data:`raysim.strategies.shared.psi.Smoothing`).
    - ``strategy``: the strategy that chooses clusters from label counts; None: no clusters.
    """

    alphas: tuple[float, ...] = default("study.alphas")
    clients: tuple[int, ...] = default("study.clients")
    seeds: tuple[Seed, ...] = default("study.seeds")
    min_size: int = default("study.min_size", ge=0)
    metrics: tuple[str, ...] | None = default("study.metrics")
    target: Literal["log_alpha", "alpha"] = default("study.target")
    epsilon: Smoothing = default("study.epsilon")
    strategy: StrategySection | None = default("study.strategy")

    @field_validator("alphas", "clients", "seeds")
    @classmethod
    def _no_repeats(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(values)) < len(values):
            raise ValueError(f"{list(values)} repeats a value; name each once")
        return values

    @field_validator("alphas")
    @classmethod
    def _comparable(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if len(values) < 2:
            raise ValueError(f"{list(values)} are too few to compare; name at least two")
        for value in values:
            if not 0 < value < np.inf:
                raise ValueError(f"{value:g} is not a finite number above 0")
        return values

    @field_validator("clients")
    @classmethod
    def _several_clients(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if not values or min(values) < 2:
            raise ValueError(f"{list(values)} must name numbers of at least 2; one client has no skew")
        return values

    @field_validator("seeds")
    @classmethod
    def _seeds_to_hold_out(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if len(values) < 2:
            raise ValueError(
                f"{list(values)} are too few; name at least two, because models are fitted on some seeds and tested on "
                "others"
            )
        return values

    @field_validator("epsilon")
    @classmethod
    def _a_smoothing(cls, value: Smoothing) -> Smoothing:
        check_smoothing(value)
        return value

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, values: tuple[str, ...] | None) -> tuple[str, ...] | None:
        metrics = metric_names()
        for name in values or ():
            if name not in metrics:
                raise ValueError(f"'{name}' is not a metric; {nearest(name, metrics)}")
        if values == ():
            raise ValueError("[] names no metric; remove the key to use all")
        return values

    @property
    def candidates(self) -> tuple[str, ...]:
        """The names of the metrics from which the skew is predicted."""
        return self.metrics or tuple(name for name in metric_names() if name != REPEATED)


def metric_names() -> tuple[str, ...]:
    """Return the names of all metrics of label skew."""
    return tuple(label_metrics(np.ones((2, 2))))


def read_study(tree: Mapping[str, Any]) -> Study:
    """Read and check the section ``study`` of a configuration ``tree``. Raises ``ConfigError`` if it is invalid."""
    if "study" not in tree:
        raise ConfigError("study: missing; add this section, which defines how the data are divided (docs/study.md)")
    return validated(Study, tree["study"] or {}, "study")

"""Hospitals whose speed and presence a test gives by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raysim.config.sections.system import SystemSection
from raysim.engine.job import Outcome

SIZES = [9, 4, 13, 7, 1, 6]
MODEL = 4 * 4
"""Bytes of logistic regression on three features."""


def system(**values: Any) -> SystemSection:
    return SystemSection.model_validate(values)


def seconds(*by_hospital: float, **values: Any) -> SystemSection:
    """Hospitals whose rounds of one epoch take so long."""
    rates = {f"h{i}": {"rows_per_second": SIZES[i] / s} for i, s in enumerate(by_hospital)}
    return system(hospitals=rates, **values)


def trace(folder: Path, *lines: str) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join(["hospital,from,to", *lines]) + "\n")
    return path


def moments(outcome: Outcome) -> list[float]:
    return [row.virtual_seconds for row in outcome.rounds if row.virtual_seconds is not None]


CONFIG = """
name: unreliable
seeds: [1]
data: {source: synthetic, hospitals: 8, rows: 800}
training: {rounds: 4, learning_rate: 0.5}
selection: {name: inverse_sqrt, fraction: 0.5, minimum: 3}
strategies: [fedavg, {name: fedbuff, buffer: 2, concurrency: 3}, centralized]
tracking: {uri: "sqlite:///mlflow.db"}
system:
  rows_per_second: {lognormal: [50, 1]}
  latency: 0.1
  rounds: {deadline: 30}
  target: {auroc: 0.6, log_loss: 0.0001}
"""

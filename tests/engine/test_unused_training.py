"""Which keys of local training change a run, for each strategy: those that it does not declare unused, and no others.

Also a hospital whose rows turn into values that are not finite: every strategy ends, and names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from raysim.core import registry
from raysim.core.errors import ConfigError, HospitalFailed, StrategyError, TrainingDiverged
from raysim.data.federation import Federation
from raysim.engine.job import Job
from raysim.strategies.base import OF_STEPS
from raysim.strategies.fairness.afl import AgnosticFL
from raysim.strategies.patient_clusters.fedgmc import FedGmc
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.references.local import Local
from tests.conftest import MakeFederation, fitting, job_of, run, with_patients
from tests.equality import same_models

STRATEGIES: dict[str, Any] = {
    **{name: registry.load("strategies", name, "strategy.name")() for name in sorted(registry.entries("strategies"))},
    "fedgmc": FedGmc(clusters=3),  # without a search of the number, which takes long
    "afl, models": AgnosticFL(averaging="model"),
    "afl, own rate": AgnosticFL(learning_rate=0.3),
    "local, solved": Local(solve=True),
    "centralized, solved": Centralized(solve=True),
}


def stepping(**changes: Any) -> Callable[[Job], Job]:
    return lambda job: replace(job, work=replace(job.work, optimizer=replace(job.work.optimizer, **changes)))


CHANGES: dict[str, Callable[[Job], Job]] = {
    "learning_rate": stepping(learning_rate=0.03),
    "batch_size": stepping(batch_size=2),
    "weight_decay": stepping(weight_decay=0.5),
    "optimizer": stepping(name="momentum"),
    "local_epochs": lambda job: replace(job, work=replace(job.work, epochs=2)),
}
assert CHANGES.keys() == OF_STEPS


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return with_patients(federate([9, 6, 13, 8, 7], validation=[3] * 5))


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_key_changes_the_models_or_is_declared_unused(federation: Federation, name: str) -> None:
    strategy = STRATEGIES[name]
    # No decay moves weights of 0, which is all that the first round of AFL has.
    rounds = 2 if isinstance(strategy, AgnosticFL) else 1
    job = fitting(job_of(federation, strategy, rounds=rounds), federation)
    base, unused = run(federation, job, 1), set()
    for key, changed in CHANGES.items():
        try:
            outcome = run(federation, fitting(changed(job), federation), 1)
        except ConfigError:  # the strategy is defined for plain SGD alone
            continue
        try:
            same_models(outcome, base)
        except AssertionError:
            continue
        unused.add(key)
    assert unused == strategy.unused_training() - {"rounds"}


@pytest.mark.parametrize(("part", "value"), [("train", np.nan), ("test", np.inf)])
@pytest.mark.parametrize("name", [name for name in registry.entries("strategies") if not STRATEGIES[name].takes_trees])
def test_rows_that_are_not_finite_end_a_run_with_the_hospitals_name(
    federation: Federation, name: str, part: str, value: float
) -> None:
    """For trees such values are missing, or beyond the last edge."""
    job = fitting(job_of(federation, STRATEGIES[name], rounds=2), federation)
    X = np.array(federation.X)
    X[federation.rows(2, part), 0] = value
    np.save(federation.folder / "X.npy", X)
    damaged = Federation.open(federation.folder)
    with pytest.raises((HospitalFailed, StrategyError, TrainingDiverged)) as raised:
        run(damaged, job, 1)
    said = str(raised.value)
    assert "hospital 'h2'" in said or (name == "centralized" and "pooled rows" in said)
    assert "\n" not in said

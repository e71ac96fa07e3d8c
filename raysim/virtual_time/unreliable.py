"""The scheduler of a job, and checks that unreliable hospitals can make progress at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from raysim.config.sections.system import SystemSection
from raysim.config.sizes import enlarged
from raysim.core.errors import ConfigError
from raysim.strategies.base import Caller, FederationView, Floats, Ids, Selection, Strategy
from raysim.traffic.ledger import SCALAR_BYTES
from raysim.virtual_time.asynchronous import AsynchronousScheduler
from raysim.virtual_time.clock import Clock
from raysim.virtual_time.hospitals import System, resolve
from raysim.virtual_time.scheduling import CohortScheduler, Exchanged, PerfectScheduler
from raysim.virtual_time.synchronous import SynchronousScheduler


def scheduler(
    strategy: Strategy,
    section: SystemSection | None,
    view: FederationView,
    seed: int,
    exchanged: Exchanged,
    measure: Caller,
    clock: Clock | None,
) -> tuple[CohortScheduler, FederationView]:
    """Return the scheduler of a run, resumed at ``clock`` (None: from the beginning), and the server's view from now
    on."""
    asynchrony = strategy.asynchrony()
    if section is None and asynchrony is None:
        return PerfectScheduler(strategy), view
    system = resolve(section or SystemSection(), view.names, seed)
    if section is not None:
        seconds = usual_seconds(system, view)
        view = replace(view, round_seconds=seconds, selection=enlarged(view.selection, section.rounds.over_selection))
    rest = (
        strategy,
        section or SystemSection(),
        system,
        seed,
        exchanged,
        measure,
        clock or Clock.zero(view.initial.size),
    )
    if asynchrony is None:
        return SynchronousScheduler(*rest), view
    return AsynchronousScheduler(asynchrony, len(view.trainable), *rest), view


def usual_seconds(system: System, view: FederationView) -> Floats:
    """Return the time of a round of federated averaging for each hospital, ``[N]``."""
    everyone, model = np.arange(len(view.sizes)), np.full(len(view.sizes), float(SCALAR_BYTES * view.initial.size))
    return system.seconds(everyone, (view.local_epochs * view.sizes).astype(float), model, model + SCALAR_BYTES)


def check_system(section: SystemSection, selection: Selection, names: Sequence[str], sizes: Ids, seed: int) -> None:
    """Raise ``ConfigError`` for settings that this federation of ``sizes [N]`` rows cannot have."""
    resolve(section, names, seed)
    enlarged(selection, section.rounds.over_selection)
    trainable, needed = int((sizes > 0).sum()), section.rounds.minimum_cohort
    if needed > trainable:
        raise ConfigError(
            f"system.rounds.minimum_cohort: {needed} is more than the {trainable} hospitals that have training rows"
        )


def check_progress(cohorts: Sequence[int], clock: Clock | None, section: SystemSection) -> None:
    """Raise ``ConfigError`` if a run's rounds, with these ``cohorts`` until ``clock``, never used an update."""
    if clock is not None and clock.waits and not any(cohorts):
        raise ConfigError(
            f"system.rounds: none of {len(cohorts)} rounds brought {section.rounds.minimum_cohort} updates; lower "
            "minimum_cohort, raise deadline, or make hospitals more reliable"
        )

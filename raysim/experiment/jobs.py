"""Makes the job of one run: the training that a configuration describes, on a federation stored in a folder.

The processes that run the trials of a sweep import this module, so it imports little.
"""

from __future__ import annotations

from pathlib import Path

from raysim.config import plugins
from raysim.config.schema import Config
from raysim.config.sections.secure import SecureSection
from raysim.data.federation import Federation
from raysim.engine.job import Job
from raysim.engine.messages.plan import ModelSpec, Work
from raysim.strategies.base import Selection, Strategy
from raysim.training.base import Optimizer
from raysim.training.losses import default_rate


def make_job(
    config: Config, strategy: Strategy, selection: Selection, federation: Path, seed: int, *, tests_groups: bool = False
) -> Job:
    """Make the job of one run: train ``strategy`` with ``config`` on the federation in the folder ``federation``.

    ``tests_groups``: whether the run tests the differences between groups of patients.
    """
    training, rate = config.training, learning_rate(config, federation)
    return Job(
        work=Work(
            federation=str(federation),
            model=ModelSpec.of(config.model),
            optimizer=Optimizer(training.optimizer, rate, training.batch_size, training.weight_decay),
            epochs=training.local_epochs,
            seed=seed,
            precision=training.precision,
            class_weights=training.class_weights,
        ),
        strategy=strategy,
        selection=selection,
        rounds=plugins.rounds(config),
        evaluation=config.evaluation,
        system=config.system,
        label=plugins.label(config.strategy),
        stop=training.stop,
        adversary=config.adversary,
        aggregation=config.aggregation,
        compression=config.compression,
        privacy=config.privacy,
        secure=_secure(config, strategy),
        tests_groups=tests_groups,
        last=plugins.build_last_steps(config.strategy),
    )


def _secure(config: Config, strategy: Strategy) -> SecureSection | None:
    """Return the settings of secure aggregation for a run; None if the server receives the updates themselves.

    A strategy that requires secure aggregation gets the default settings if ``secure`` is not configured. Under a
    privacy guarantee, the default applies only if each hospital adds a share of the noise, because the server must not
    see an update with so little noise.
    """
    in_shares = config.privacy is None or config.privacy.effective_mode in ("pooled", "distributed")
    return SecureSection() if config.secure is None and in_shares and strategy.hides_sums() else config.secure


def learning_rate(config: Config, federation: Path) -> float:
    """Return the configured learning rate, or the default for the model's loss and the federation's label."""
    if config.training.learning_rate is not None:
        return config.training.learning_rate
    return default_rate(config.model.options().get("loss"), real_label=Federation.of_real_label(federation))

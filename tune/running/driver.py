"""Run a plan's trials with Ray Tune on hospitals that are already set up."""

from __future__ import annotations

import logging
import math
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from raysim.config.schema import Config
from raysim.core import host
from raysim.core.importing import search_path
from raysim.tune.journal import Journal
from raysim.tune.plan import SweepPlan, draw_seed
from raysim.tune.running.heartbeat import Heartbeats
from raysim.tune.running.places import Places
from raysim.tune.running.watch import TrialCallback, TrialListener
from raysim.tune.search import ProposalSource, make_source
from raysim.tune.settings import Pbt

SCRATCH = ".tune"
"""The folder of Ray Tune's temporary files. It is removed afterwards."""

ALIVE = "alive"
"""The folder for the heartbeats of trials, within :data:`SCRATCH`."""

QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # a sweep is resumed from the journal instead
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "1",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "3600",
    "RAY_AIR_NEW_OUTPUT": "0",
}
"""Settings that turn off Ray Tune's logging, saving and warnings, which take longer than a trial."""


CAUGHT = (signal.SIGINT, signal.SIGUSR1)
"""The signals for which Ray Tune installs handlers that it does not remove."""

SPECK = 0.001
"""The amount of a resource of the driver's node that each trial requests.

The request makes Ray run trials on this node, from which rows are sent to the actors.
"""


def drive(
    plan: SweepPlan,
    config: Config,
    places: Places,
    journal: Journal,
    folder: Path,
    listeners: Sequence[TrialListener],
    silence: float,
) -> None:
    """Run the trials that are missing in the journal in ``places``.

    Return when all are done, or after one Ctrl-C. A trial that ends no round for ``silence`` seconds is considered
    lost. Raises ``OSError`` if the journal cannot be written.
    """
    numbers = [number for number in range(1, plan.trials() + 1) if number not in journal.trials]
    if not numbers:
        return
    from ray import tune

    from raysim.tune.running.trainable import MEMORY, TrialProcess
    from raysim.tune.schedulers import make_scheduler

    space = plan.space
    source = make_source(plan.sweep, space, draw_seed(config), journal.trials.values())
    at_once, hospitals = places.at_once, places.hospitals
    scratch = (folder / SCRATCH).absolute()
    (alive := scratch / ALIVE).mkdir(parents=True, exist_ok=True)
    heartbeats = Heartbeats(alive, silence)
    watch = TrialCallback(journal, list(listeners), heartbeats)
    quiet = QUIET | {"TUNE_MAX_PENDING_TRIALS_PG": str(at_once)}
    # Ray's errors are also silenced: the journal has failed trials with their reasons.
    silenced = host.quiet("ray.tune", "ray.train", "ray.air", level=logging.CRITICAL)
    with host.environment(quiet), silenced, host.signals(*CAUGHT):
        trainable = tune.with_resources(
            tune.with_parameters(TrialProcess, plan=plan, hospitals=hospitals, folders=search_path(), alive=alive),
            tune.PlacementGroupFactory([{"CPU": hospitals.cpus, "memory": MEMORY, _here(): SPECK}]),
        )
        listed: dict[str, Any] = {}
        search = Proposals(source, numbers, plan.sweep.names)
        if isinstance(plan.sweep.scheduler, Pbt):  # accepts no searcher; it gets the whole list of trials
            listed = {"trial": tune.grid_search([{"number": n, "params": source.propose(n)} for n in numbers])}
        tuner = tune.Tuner(
            trainable,
            param_space=listed,
            tune_config=tune.TuneConfig(
                search_alg=None if listed else search,
                scheduler=make_scheduler(plan.sweep, space, plan.rounds(), draw_seed(config) + len(journal.trials)),
                num_samples=1 if listed else len(numbers),
                max_concurrent_trials=at_once,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: f"trial-{trial.trial_id}",
            ),
            run_config=tune.RunConfig(
                name="trials",
                storage_path=str(scratch),
                callbacks=[heartbeats, watch],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=plan.sweep.retries),
                verbose=0,
                log_to_file=False,
            ),
        )
        try:
            tuner.fit()
        except Exception:
            if watch.unwritten is not None:
                raise watch.unwritten from None
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _here() -> str:
    """Return the name of the resource by which Ray identifies this process's node."""
    import ray

    return f"node:{ray.util.get_node_ip_address()}"


class Proposals(Searcher):  # type: ignore[misc]
    """A searcher that passes the trials of ``numbers`` to Ray Tune in order, as ``{trial: {number, params}}``."""

    def __init__(self, source: ProposalSource, numbers: Sequence[int], names: Sequence[str]) -> None:
        super().__init__()
        self._source = source
        self._left = list(numbers)
        self._names = names
        self._running: dict[str, int] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str:
        if not self._left:
            finished: str = Searcher.FINISHED
            return finished
        number = self._left.pop(0)
        self._running[trial_id] = number
        return {"trial": {"number": number, "params": self._source.propose(number)}}

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        failed = error or not result or bool(result.get("failed"))
        values = None if failed or result is None else [float(result.get(name, math.nan)) for name in self._names]
        self._source.learn(self._running.pop(trial_id), values)

    def __getstate__(self) -> dict[str, Any]:
        """Return no state. Ray Tune writes its searcher to disk, but a resumed sweep uses the journal instead."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Save nothing, because a resumed sweep uses the journal."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing, because a resumed sweep uses the journal."""

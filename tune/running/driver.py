"""Run a sweep's trials with Ray Tune."""

from __future__ import annotations

import logging
import math
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ray.tune import Callback
from ray.tune.search import Searcher

from raysim.config.schema import Config
from raysim.core import host
from raysim.core.importing import search_path
from raysim.engine.job import Round
from raysim.tune.journal import Finished, Journal, Status
from raysim.tune.plan import SweepPlan, draw_seed
from raysim.tune.running.heartbeat import Heartbeats
from raysim.tune.running.places import Places
from raysim.tune.search import ProposalSource, make_source
from raysim.tune.settings import Pbt
from raysim.tune.trial import Report, continued


class TrialListener(Protocol):
    """An object that is notified when trials start and end."""

    def started(self, number: int) -> None:
        """Handle the start of trial ``number``."""

    def finished(self, trial: Finished) -> None:
        """Handle the end of a trial, which is already in the journal."""


class TrialCallback(Callback):  # type: ignore[misc]
    """A Ray Tune callback that writes trials to the journal when they end and then notifies ``listeners``.

    If the journal cannot be written, ``unwritten`` is the error, and the sweep ends.
    """

    def __init__(self, journal: Journal, listeners: list[TrialListener], heartbeats: Heartbeats) -> None:
        self.unwritten: OSError | None = None
        self._journal = journal
        self._heartbeats = heartbeats
        self._listeners = listeners
        self._rounds: dict[str, dict[int, list[Round]]] = {}
        self._seconds: dict[str, float] = {}
        self._numbers: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return no state, because the journal has all results."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        # Stored at the first start, because population-based training copies configurations between trials.
        number = self._numbers.setdefault(trial.trial_id, trial.config["trial"]["number"])
        for listener in self._listeners:
            listener.started(number)

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        # Removed from the result: Tune would store it, and write it with the state of all trials.
        report: Report = result.pop("report")
        rounds = self._rounds.setdefault(trial.trial_id, {})
        for seed, news in report.rounds.items():
            # A process that died and was restarted reports the same rounds again.
            rounds[seed] = continued(rounds.get(seed, []), news)
        self._seconds[trial.trial_id] = self._seconds.get(trial.trial_id, 0.0) + report.seconds
        if result.get("done"):
            self._end(trial, report, "failed" if report.error else "completed" if report.done else "stopped")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if self._number(trial) in self._journal.trials:  # its process died after its last report
            return
        error = self._heartbeats.reason(trial.trial_id) or trial.get_pickled_error() or trial.get_error()
        text = " ".join(str(error).split()) or "its process died"
        self._end(trial, Report(0, done=True, error=text[-500:]), "failed")

    def _number(self, trial: Any) -> int:
        number: int = self._numbers.get(trial.trial_id, trial.config["trial"]["number"])
        return number

    def _end(self, trial: Any, report: Report, status: Status) -> None:
        rounds = self._rounds.pop(trial.trial_id, {})
        finals = report.finals
        if status == "stopped":
            finals = {seed: rows[-1].metrics for seed, rows in rounds.items() if rows} | report.finals
        finished = Finished(
            number=self._number(trial),
            params=dict(trial.config["trial"]["params"]),
            status=status,
            error=report.error,
            attempts=report.attempts,
            seconds=self._seconds.pop(trial.trial_id, 0.0),
            rounds=rounds,
            finals=finals,
        )
        try:
            self._journal.add(finished)
        except OSError as error:
            self.unwritten = error  # Ray Tune would turn it into a text with a traceback
            raise
        for listener in self._listeners:
            listener.finished(finished)


SCRATCH = ".tune"
"""The folder of Ray Tune's temporary files, which is removed at the end."""

ALIVE = "alive"
"""The folder within :data:`SCRATCH` in which trials touch files as heartbeats."""

QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # a sweep is resumed from the journal instead
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "1",
    "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S": "3600",
    "RAY_AIR_NEW_OUTPUT": "0",
}
"""Environment variables that turn off Ray Tune's slow logging, saving and warnings."""


CAUGHT = (signal.SIGINT, signal.SIGUSR1)
"""The signals whose handlers Ray Tune replaces and does not restore."""

SPECK = 0.001
"""A trial requests this amount of a resource that only the driver's node has, so that Ray runs the trial on this node,
where the rows are."""


def drive(
    plan: SweepPlan,
    config: Config,
    places: Places,
    journal: Journal,
    folder: Path,
    listeners: Sequence[TrialListener],
    silence: float,
) -> None:
    """Run the trials that are not in the journal, in the processes of ``places``.

    Return when all have ended, or after one Ctrl-C. A trial that completes no round for ``silence`` seconds is ended
    and tried again. Raises ``OSError`` if the journal cannot be written.
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
    import ray

    return f"node:{ray.util.get_node_ip_address()}"


class Proposals(Searcher):  # type: ignore[misc]
    """A searcher that passes trials ``{trial: {number, params}}`` to Ray Tune, in the order of ``numbers``.

    The hyper-parameters come from ``source``.
    """

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
        """Return no state, because a resumed sweep uses the journal."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Do nothing, because a resumed sweep uses the journal."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing, because a resumed sweep uses the journal."""

"""The driver's handling of running trials: their reports go to the journal, to MLflow and to the terminal."""

from __future__ import annotations

from typing import Any, Protocol

from ray.tune import Callback

from raysim.engine.job import Round
from raysim.tune.journal import Finished, Journal, Status
from raysim.tune.running.heartbeat import Heartbeats
from raysim.tune.trial import Report, continued


class TrialListener(Protocol):
    """An object that is notified when trials start and finish."""

    def started(self, number: int) -> None:
        """Handle the start of a trial."""

    def finished(self, trial: Finished) -> None:
        """Handle the end of a trial, which is already in the journal."""


class TrialCallback(Callback):  # type: ignore[misc]
    """A callback that collects the reports of trials, writes ended trials to the journal and notifies the
    ``listeners``.

    ``unwritten`` is the error of writing the journal, which ends the sweep.
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
        """Return no state. Ray Tune writes its callbacks to disk, but all results of this callback are in the
        journal."""
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

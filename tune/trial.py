"""One trial: a configuration that is run with every seed, on hospitals that trials may share.

A trial leaves no state at hospitals, so its results do not depend on other trials.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from raysim.engine.job import Job, Outcome, Round
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.pool import Pool
from raysim.tune.settings import TRAFFIC

Metrics = dict[str, dict[str, float]]
"""The metrics over all hospitals, by model and metric; the strategy's most personal model is last."""


@dataclass(repr=False)  # Ray Tune would format each result as a text that is never read
class Report:
    """The results of a trial: its ``rounds`` since the previous report, and its ``finals`` and ``attempts`` so far."""

    round: int
    """The last round that the runs of all seeds have reached."""
    rounds: dict[int, list[Round]] = field(default_factory=dict)
    finals: dict[int, Metrics] = field(default_factory=dict)
    done: bool = False
    error: str | None = None
    attempts: int = 1
    seconds: float = 0.0
    """The seconds in which the trial ran since the previous report."""

    def latest(self) -> list[dict[str, float]]:
        """Return each seed's latest metrics of the headline model (the strategy's most personal model)."""
        evaluated = {seed: rounds[-1].metrics for seed, rounds in self.rounds.items() if rounds}
        return [headline(metrics) for metrics in {**evaluated, **self.finals}.values()]


def _no_heartbeat() -> None:
    """Do nothing: the default of ``beat`` in :class:`Trial`."""


class Trial:
    """A trial in execution: the runs ``jobs``, one for each seed, on the hospitals in ``pool``.

    A call of :meth:`step` executes all runs to their end or, if ``paced``, up to their next evaluated round. ``beat``
    is called after every round. If a run fails, all runs are started again, up to ``retries`` times in the trial.
    """

    def __init__(
        self, pool: Pool, jobs: Sequence[Job], *, paced: bool, retries: int, beat: Callable[[], None] = _no_heartbeat
    ) -> None:
        self._beat = beat
        self._pool = pool
        self.jobs = jobs
        self._paced = paced
        self._retries = retries
        self._attempts = 1
        self._round = 0
        self._finals: dict[int, Metrics] = {}
        self._since: Sequence[RunState | None] = [None] * len(jobs)
        self._start()

    def states(self) -> list[RunState | None]:
        """Return the state of each seed's run; see :meth:`JobRun.state_after_round`."""
        return [run.state_after_round() for run in self._runs]

    def go_on(self, states: Sequence[RunState | None]) -> None:
        """Continue from ``states``, which may be those of another trial."""
        self._since = states
        self._round = min((state.round if state else 0) for state in states)
        self._start()

    def _start(self) -> None:
        self._runs = [JobRun(self._pool, job, since) for job, since in zip(self.jobs, self._since, strict=True)]
        self._events: list[Iterator[Round | Outcome]] = [run.run() for run in self._runs]
        self._finals = {}

    def step(self) -> Report:
        """Execute the trial up to its next report, and return the report; only the last report has ``done`` set.

        If runs still fail after all retries, the last report contains the error; no exception is raised.
        """
        began = time.perf_counter()
        while True:
            try:
                report = self._advance()
                break
            except Exception as error:
                if self._attempts > self._retries:
                    text = " ".join(f"{type(error).__name__}: {error}".split())
                    report = Report(self._round, done=True, error=text)
                    break
                self._attempts += 1
                self._start()
        report.attempts, report.seconds = self._attempts, time.perf_counter() - began
        return report

    def _advance(self) -> Report:
        report = Report(self._round)
        reached = [self._run(job, events, report) for job, events in zip(self.jobs, self._events, strict=True)]
        self._round = report.round = min(reached)
        # The run of one seed may stop earlier than another's.
        report.done = len(self._finals) == len(self.jobs)
        report.finals = dict(self._finals)
        return report

    def _run(self, job: Job, events: Iterator[Round | Outcome], report: Report) -> int:
        seed, reached = job.work.seed, self._round
        if seed in self._finals:
            return job.rounds
        rounds = report.rounds.setdefault(seed, [])
        for event in events:
            self._beat()
            if isinstance(event, Outcome):
                self._finals[seed] = event.metrics
                return job.rounds
            if event.round <= self._round:  # run again after an error
                continue
            reached = event.round
            rounds.append(event)
            if self._paced and event.metrics and event.round < job.rounds:
                return reached
        return reached


def continued(rounds: Sequence[Round], news: Sequence[Round]) -> list[Round]:
    """Return the ``rounds`` before the first round of ``news``, followed by ``news``."""
    return [row for row in rounds if not news or row.round < news[0].round] + list(news)


def headline(metrics: Metrics) -> dict[str, float]:
    """Return the metrics of the headline model: the most personal model, which is last in ``metrics``."""
    return list(metrics.values())[-1] if metrics else {}


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the sample standard deviation of ``values``, one for each seed.

    Both are NaN if a value is NaN. With one seed, the standard deviation is NaN.
    """
    array = np.asarray(values, dtype=np.float64)
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else float("nan")


def figures(per_seed: Sequence[dict[str, float]], rounds: dict[int, list[Round]]) -> dict[str, tuple[float, float]]:
    """Return the mean and the standard deviation over seeds of every metric and of the traffic.

    ``per_seed`` has the metrics of each seed, and ``rounds`` the rounds over which each seed's traffic is summed.
    """
    names = per_seed[0] if per_seed else {}
    result = {name: mean_and_spread([m.get(name, float("nan")) for m in per_seed]) for name in names}
    for name in TRAFFIC if per_seed and rounds else ():
        result[name] = mean_and_spread([float(sum(getattr(row, name) for row in rows)) for rows in rounds.values()])
    return result

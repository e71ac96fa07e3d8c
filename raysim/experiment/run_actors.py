"""Runs that execute concurrently: each actor executes whole runs, as ``--in-process`` does.

The results are the same, bit for bit, as those of consecutive runs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raysim.cluster.answers import cause_of, first_answers
from raysim.cluster.room import await_room
from raysim.config.sections.resources import ResourcesSection
from raysim.core import host
from raysim.core.errors import ResourceError
from raysim.core.importing import search_only, search_path
from raysim.core.package import cache_folder
from raysim.data.federation import Federation
from raysim.engine.job import Result, Round
from raysim.experiment.one_run import Run
from raysim.experiment.session import ACTOR_START_SECONDS, RESTARTS, InProcess, longest_silence
from raysim.strategies.base import Ids

PATIENCE = 10.0
"""Largest number of seconds that an actor waits while another process uses a run's folder."""

GONE_SECONDS = 5.0
"""Largest number of seconds to wait for a killed process to end."""

PAUSE = 0.2
"""Smallest number of seconds between two messages of a run, except for its last message."""


@dataclass(frozen=True)
class Begun:
    """Event: a run has started, or was resumed (``again``). ``ticket`` is the id in the run's ``resume.json``."""

    ticket: str
    again: bool


@dataclass(frozen=True)
class Failed:
    """Event: a run has ended with an error."""

    error: Exception


@dataclass(frozen=True)
class Ended:
    """Event: a run has ended successfully."""


Spared = type[Exception] | tuple[()]
"""Types of errors that are returned in place of a run's result, so that other runs continue."""

Event = Begun | Round | str | Failed | Ended
"""An event of a run. A ``str`` is a line for the user."""


class RunActor:
    """A Ray actor that executes whole runs, one after the other. ``rows [N]`` are the hospitals' numbers of rows."""

    def __init__(self, folders: Sequence[str], here: str, cache: str, rows: Ids, resources: ResourcesSection) -> None:
        """Start the actor in the working directory ``here``, with the cache folder ``cache``. The user's modules are
        imported from ``folders``.
        """
        search_only(folders)
        os.chdir(here)
        os.environ["RAYSIM_CACHE"] = cache  # a Ray that was started before may have another
        host.limit_threads(1)
        self._session = InProcess(rows, resources.model_copy(update={"device": "cpu"}))

    def ready(self) -> int:
        """Return the actor's process id."""
        return os.getpid()

    def run(self, run: Run, again: bool) -> Iterator[list[Event]]:
        """Execute a run, or resume it if ``again``, and write its files.

        Yields lists of new events until the run ends.
        """
        run.prepare()
        federation = Federation.open(run.data)
        with run.opened(federation, again=again, patience=PATIENCE) as opened:
            yield [Begun(opened.ticket.id, opened.again)]
            events: list[Event] = []
            sent = time.monotonic()
            try:
                for event in run.run(federation, opened, self._session, events.append):
                    if isinstance(event, Result):
                        opened.finish(event.outcome, models=bool(run.held))
                    else:
                        events.append(event)
                    if time.monotonic() - sent >= PAUSE:
                        yield events
                        events, sent = [], time.monotonic()
            except Exception:
                yield events
                raise
            yield events


class RunActors:
    """``count`` Ray actors on this node, each of which executes whole runs; see :class:`RunActor`."""

    def __init__(self, count: int, rows: Ids, resources: ResourcesSection) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.count = count
        self.where = f"{count} runs at a time, each in one actor"
        self._silence = longest_silence(resources)
        await_room(count * (resources.cpus_per_actor or 1))
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = ray.remote(num_cpus=resources.cpus_per_actor or 1, scheduling_strategy=here)(RunActor)
        self._start: Callable[[], Any] = lambda: actor.remote(
            search_path(), os.getcwd(), str(cache_folder()), rows, resources
        )
        self._actors = [self._start() for _ in range(count)]
        self._pids = self._wait_until_up(self._actors)

    def run(self, runs: Sequence[Run], again: bool, spared: Spared = ()) -> Generator[tuple[int, Event], None, None]:
        """Execute all runs on the actors, and yield each event with the index of its run.

        A run whose actor is lost is resumed in a new actor. After an error whose type is not in ``spared``, no later
        run begins. The error is raised after all runs before the failed one are completed.
        """
        waiting, at_work = deque(range(len(runs))), dict[Any, _Running]()
        idle, failed, lost = list(range(len(self._actors))), dict[int, Exception](), [0] * len(runs)
        news: list[tuple[int, Event]] = []
        try:
            while True:
                # Start runs first, so that no actor is idle while events are processed.
                while idle and waiting:
                    place, number = idle.pop(0), waiting.popleft()
                    goes_on = again or lost[number] > 0
                    stream = self._actors[place].run.options(num_returns="streaming").remote(runs[number], goes_on)
                    at_work[stream] = _Running(place, number)
                yield from news
                news = []
                if failed and not waiting and all(running.number > min(failed) for running in at_work.values()):
                    raise failed[min(failed)]
                if not at_work:
                    return
                for stream, event in self._events(at_work):
                    place, number = at_work[stream].place, at_work[stream].number
                    if isinstance(event, Failed | Ended | _Lost):
                        del at_work[stream]
                        idle.append(place)
                    if isinstance(event, _Lost):
                        lost[number] += 1
                        news.append((number, self._replace(place, runs[number].name, event.how, lost[number])))
                        waiting.appendleft(number)
                        continue
                    if isinstance(event, Failed) and not isinstance(event.error, spared):
                        failed[number] = event.error
                    news.append((number, event))
                if failed:
                    waiting = deque(number for number in waiting if number < min(failed))
        finally:
            if at_work:
                self.close()

    def close(self) -> None:
        """End the remaining actors; afterwards none of them can still write files."""
        import ray

        actors, pids = self._actors, self._pids
        self._actors, self._pids = [], []
        for actor in actors:
            ray.kill(actor)
        for pid in pids:
            _await_end(pid)

    def _events(self, at_work: Mapping[Any, _Running]) -> Iterator[tuple[Any, Event | _Lost]]:
        """Wait for an event of the runs ``at_work``, then yield all events that have arrived."""
        import ray

        first = min(running.last_event for running in at_work.values())
        ready, _ = ray.wait(list(at_work), num_returns=1, timeout=max(0.0, first + self._silence - time.monotonic()))
        if not ready:
            for stream, running in list(at_work.items()):
                if time.monotonic() - running.last_event >= self._silence:
                    yield stream, _Lost(f"silent for {self._silence:g} s")
            return
        more, _ = ray.wait(list(at_work), num_returns=len(at_work), timeout=0)
        for stream in {*ready, *more}:
            at_work[stream].last_event = time.monotonic()
            try:
                for event in ray.get(next(stream)):
                    yield stream, event
            except StopIteration:
                yield stream, Ended()
            except ray.exceptions.RayTaskError as error:
                yield stream, Failed(cause_of(error))
            except ray.exceptions.RayError as error:
                yield stream, _Lost(type(error).__name__)

    def _replace(self, place: int, run: str, how: str, times: int) -> str:
        """Replace the lost actor at index ``place`` by a new one; return a line for the user.

        ``times`` is the number of actors that the run has lost. Raises ``ResourceError`` if it exceeds
        :data:`RESTARTS`.
        """
        import ray

        if times > RESTARTS:
            raise ResourceError(
                f"resources: the process of {run} was lost {times} times ({how}); check that the machine has enough "
                "memory for it"
            )
        ray.kill(self._actors[place])
        _await_end(self._pids[place])
        self._actors[place] = self._start()
        (self._pids[place],) = self._wait_until_up([self._actors[place]])
        return f"the process of {run} was lost ({how}); another process continues"

    def _wait_until_up(self, actors: Sequence[Any]) -> list[int]:
        asked = [actor.ready.remote() for actor in actors]
        return first_answers(asked, ACTOR_START_SECONDS, "actor", "set resources.runs_at_once: 1")


@dataclass
class _Running:
    """A run that is being executed."""

    place: int
    number: int
    last_event: float = 0.0

    def __post_init__(self) -> None:
        self.last_event = time.monotonic()


@dataclass(frozen=True)
class _Lost:
    """Event: the actor of a run no longer answers; ``how`` says how this was detected."""

    how: str


def _await_end(pid: int) -> None:
    end = time.monotonic() + GONE_SECONDS
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.kill(pid, 0)
            time.sleep(0.01)

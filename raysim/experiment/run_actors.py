"""Small runs are played side by side: each whole in one actor, which computes it as ``--in-process`` does.

A round that is split over all actors waits for the slowest of them and for Ray, and while a run's files are written all
of them are idle. Where runs are small that costs more than their rounds. Placement changes no number, so the files are
those of runs one after the other; only the seconds in them differ.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from raysim.cluster.pool import cause_of
from raysim.config.nodes import Node
from raysim.config.resources import ResourcesSection
from raysim.core import host
from raysim.core.errors import ResourceError
from raysim.data.federation import Federation
from raysim.engine.job import Result, Round
from raysim.experiment.one_run import Run
from raysim.experiment.session import ACTOR_START_SECONDS, RESTARTS, InProcess, longest_silence
from raysim.strategies.base import Ids
from raysim.strategies.shared.importing import search_only, search_path

SMALL_CELLS = 2**27
"""Values of features of a federation up to which its runs are small: half a GiB, which all actors map from one file."""

SMALL_MODELS = 2**25
"""Parameters of all hospitals' models up to which they are: an eighth of a GiB of working memory an actor."""

PATIENCE = 10.0
"""Seconds that an actor waits for a folder in which another, which has just been ended, may still be at work."""

GONE_SECONDS = 5.0
"""Seconds that a process may take to be gone after it was killed."""


@dataclass(frozen=True)
class Load:
    """How much there is to play."""

    runs: int
    cells: int
    """Rows times features of the federation."""
    parameters: int
    """Of all hospitals' models together."""


def at_once(resources: ResourcesSection, nodes: Sequence[Node], load: Load) -> int:
    """How many runs are played side by side on the live ``nodes``, the first of which is this one; 1: none.

    Raises ``ResourceError`` where more are asked for than can be.
    """
    asked, share = resources.runs_at_once, resources.cpus_per_actor or 1.0
    cores = int(nodes[0].cpus / share + 1e-6)
    if asked != "auto":
        count = min(int(asked), load.runs)
        if count > 1 and (resources.gpus_per_actor or resources.device == "cuda" or resources.per_hospital):
            raise ResourceError(
                f"resources.runs_at_once: {asked} runs at once compute on one CPU each; take auto or 1 with "
                "gpus_per_actor, device cuda or per_hospital"
            )
        if count > cores:
            raise ResourceError(
                f"resources.runs_at_once: {asked} actors of {share:g} CPUs do not fit on this machine, which has "
                f"{nodes[0].cpus:g}; lower it, or take auto"
            )
        return count
    plain = (
        resources.hospitals_per_actor == "auto"
        and resources.device != "cuda"
        and not (resources.gpus_per_actor or resources.per_hospital or resources.autoscale)
        and resources.data != "shipped"
    )
    small = load.cells <= SMALL_CELLS and load.parameters <= SMALL_MODELS
    # With fewer runs most of the cores would be idle, and with more nodes all the others'.
    enough = 2 * load.runs >= cores and len(nodes) == 1
    return max(1, min(load.runs, cores)) if plain and small and enough else 1


@dataclass(frozen=True)
class Begun:
    """A run's folder is open: the id of its ticket, and whether it goes on."""

    ticket: str
    again: bool


@dataclass(frozen=True)
class Failed:
    """A run has ended with an error."""

    error: Exception


@dataclass(frozen=True)
class Ended:
    """A run has ended well, and its files are in its folder."""


Spared = type[Exception] | tuple[()]
"""Errors of runs that are told like a result, while the others go on."""

Told = Begun | Round | str | Failed | Ended
"""What is told of a run; a text is for the user."""


class RunActor:
    """A Ray actor that plays whole runs of hospitals with ``rows [N]`` stays, one after the other."""

    def __init__(self, folders: Sequence[str], here: str, rows: Ids, resources: ResourcesSection) -> None:
        """``folders`` may hold modules of the user's, and ``here`` is where relative paths start from."""
        search_only(folders)
        os.chdir(here)
        host.limit_threads(1)
        self._session = InProcess(rows, resources.model_copy(update={"device": "cpu"}))
        # What runs need, while the first ones are not there yet.
        import raysim.experiment.comparison  # noqa: F401

    def ready(self) -> int:
        """Answers once the process is up, with its id."""
        return os.getpid()

    def play(self, run: Run, again: bool) -> Iterator[Told]:
        """Play a run and write its files; what is told of it, without its end."""
        federation = Federation.open(run.data)
        said: list[str] = []
        with run.opened(federation, again=again, patience=PATIENCE) as opened:
            yield Begun(opened.ticket.id, opened.again)
            for event in run.play(federation, opened, self._session, said.append):
                while said:
                    yield said.pop(0)
                if isinstance(event, Result):
                    opened.finish(event.outcome)
                else:
                    yield event


class RunActors:
    """``count`` actors on this node of a running Ray, each of which plays whole runs; see :class:`RunActor`."""

    def __init__(self, count: int, rows: Ids, resources: ResourcesSection) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.where = f"{count} runs at a time, an actor each"
        self._silence = longest_silence(resources)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = ray.remote(num_cpus=resources.cpus_per_actor or 1, scheduling_strategy=here)(RunActor)
        self._start: Callable[[], Any] = lambda: actor.remote(search_path(), os.getcwd(), rows, resources)
        self._actors = [self._start() for _ in range(count)]
        self._pids = self._up(self._actors)

    def play(self, runs: Sequence[Run], again: bool, spared: Spared = ()) -> Generator[tuple[int, Told], None, None]:
        """Play all, in their order as actors are free; what is told of each, by its number.

        A run whose actor is lost goes on in another. After an error that is not ``spared`` no further runs begin, those
        before it come to their end, and the error of the first is raised.
        """
        waiting, games = deque(range(len(runs))), dict[Any, _Game]()
        idle, failed, lost = list(range(len(self._actors))), dict[int, Exception](), [0] * len(runs)
        try:
            while waiting or games:
                while idle and waiting:
                    place, number = idle.pop(0), waiting.popleft()
                    goes_on = again or lost[number] > 0
                    stream = self._actors[place].play.options(num_returns="streaming").remote(runs[number], goes_on)
                    games[stream] = _Game(place, number)
                for stream, told in self._heard(games):
                    game = games[stream]
                    if isinstance(told, _Lost):
                        del games[stream]
                        lost[game.number] += 1
                        name = runs[game.number].name
                        if lost[game.number] > RESTARTS:
                            raise ResourceError(
                                f"resources: the process of {name} was lost {lost[game.number]} times ({told.how}); "
                                "see whether there is memory enough for it"
                            )
                        yield game.number, f"the process of {name} was lost ({told.how}); another one goes on"
                        self._replace(game.place)
                        waiting.appendleft(game.number)
                        idle.append(game.place)
                        continue
                    if isinstance(told, Failed | Ended):
                        del games[stream]
                        idle.append(game.place)
                    if isinstance(told, Failed) and not isinstance(told.error, spared):
                        failed[game.number] = told.error
                    yield game.number, told
                if failed:
                    first = min(failed)
                    waiting = deque(number for number in waiting if number < first)
                    if not waiting and all(game.number > first for game in games.values()):
                        raise failed[first]
        finally:
            if games:
                self.close()

    def close(self) -> None:
        """End the actors, and return when they are gone: nobody writes into folders of runs any more."""
        import ray

        for actor, pid in zip(self._actors, self._pids, strict=True):
            ray.kill(actor)
            _await_end(pid)

    def _heard(self, games: dict[Any, _Game]) -> Iterator[tuple[Any, Told | _Lost]]:
        """The next thing that is told of each run of which there is one now, once there is any."""
        import ray

        now = time.monotonic()
        patience = min(game.heard for game in games.values()) + self._silence - now
        ready, _ = ray.wait(list(games), num_returns=1, timeout=max(0.0, patience))
        if not ready:
            for stream, game in list(games.items()):
                if time.monotonic() - game.heard >= self._silence:
                    yield stream, _Lost(f"silent for {self._silence:g} s")
            return
        more, _ = ray.wait(list(games), num_returns=len(games), timeout=0)
        for stream in {*ready, *more}:
            games[stream].heard = time.monotonic()
            try:
                yield stream, ray.get(next(stream))
            except StopIteration:
                yield stream, Ended()
            except ray.exceptions.RayTaskError as error:
                yield stream, Failed(cause_of(error))
            except ray.exceptions.RayError as error:
                yield stream, _Lost(type(error).__name__)

    def _replace(self, place: int) -> None:
        """Another actor in the place of one that is lost."""
        import ray

        ray.kill(self._actors[place])
        _await_end(self._pids[place])
        self._actors[place] = self._start()
        (self._pids[place],) = self._up([self._actors[place]])

    def _up(self, actors: Sequence[Any]) -> list[int]:
        """The processes of actors, once these are up."""
        import ray

        try:
            pids: list[int] = ray.get([actor.ready.remote() for actor in actors], timeout=ACTOR_START_SECONDS)
        except ray.exceptions.GetTimeoutError:
            raise ResourceError(
                f"resources: {len(actors)} actors were not up after {ACTOR_START_SECONDS:g} s, and Ray has "
                f"{ray.available_resources()} free; stop other work on it, or set resources.runs_at_once: 1"
            ) from None
        except ray.exceptions.RayActorError as error:
            raise ResourceError(
                f"resources: an actor could not start ({' '.join(str(error).split())[-200:]}); see that raysim and "
                "what constraints.txt names are installed where Ray's processes run"
            ) from None
        return pids


@dataclass
class _Game:
    """A run that is being played: the actor's place, the run's number, and when something was heard of it last."""

    place: int
    number: int
    heard: float = 0.0

    def __post_init__(self) -> None:
        self.heard = time.monotonic()


@dataclass(frozen=True)
class _Lost:
    """The actor of a run answers no more; ``how`` says by what that was seen."""

    how: str


def _await_end(pid: int) -> None:
    """Return when a process that was killed is gone, or is taken to hang in the kernel."""
    end = time.monotonic() + GONE_SECONDS
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.kill(pid, 0)
            time.sleep(0.01)

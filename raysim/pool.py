"""The hospitals' processes as the coordinator sees them: in this process, or as Ray actors.

Both run the same :class:`HospitalGroup`; only the way a message travels differs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

from raysim.errors import ResourceError
from raysim.hospital import HospitalGroup
from raysim.messages import Kept, Partial, Plan, Work
from raysim.placement import Placement
from strategies.base import Floats, Ids, Question

Memory = Sequence[Any]
"""What the hospitals of each process remember: a value, or an object reference that stays where it was made."""


class Pool(Protocol):
    """Processes that serve hospitals; every result is in the order of ``served``."""

    served: tuple[Ids, ...]

    def round(self, plan: Plan, memory: Memory | None) -> tuple[list[Partial], Memory]:
        """Run a plan everywhere; returns the partial results and what is remembered."""
        ...

    def ask(
        self, work: Work, question: Question, round: int, models: Floats | None, ids: Ids | None
    ) -> list[list[Floats]]:
        """The answers of hospitals ``ids`` (None: all), per process."""
        ...

    def recall(self, memory: Memory) -> Kept:
        """What hospitals remember, fetched."""
        ...


class LocalPool:
    """All hospitals in this process, for a debugger and for small federations."""

    def __init__(self, placement: Placement, device: str) -> None:
        single_thread()
        resolved, seen = resolve_device(device)
        self.warning = check_device(device, resolved, seen)
        self.served = placement.served
        self._groups = [HospitalGroup(ids, pools=i == 0, device=resolved) for i, ids in enumerate(self.served)]

    def round(self, plan: Plan, memory: Memory | None) -> tuple[list[Partial], Memory]:
        kept = memory or [None] * len(self._groups)
        results = [group.round(plan, own) for group, own in zip(self._groups, kept, strict=True)]
        return [partial for partial, _ in results], [own for _, own in results]

    def ask(
        self, work: Work, question: Question, round: int, models: Floats | None, ids: Ids | None
    ) -> list[list[Floats]]:
        return [group.ask(work, question, round, models, ids) for group in self._groups]

    def recall(self, memory: Memory) -> Kept:
        return {hospital: theta for own in memory for hospital, theta in own.items()}


class HospitalActor:
    """A Ray actor around a :class:`HospitalGroup`: one thread, and the device that its GPU share lets it see."""

    def __init__(self, served: Ids, pools: bool, device: str) -> None:
        single_thread()
        self._resolved, self._seen = resolve_device(device)
        self._group = HospitalGroup(served, pools=pools, device=self._resolved)

    def round(self, plan: Plan, kept: Kept | None) -> tuple[Partial, Kept]:
        return self._group.round(plan, kept)

    def ask(self, work: Work, question: Question, round: int, models: Floats | None, ids: Ids | None) -> list[Floats]:
        return self._group.ask(work, question, round, models, ids)

    def ready(self) -> tuple[str, str]:
        """Answers once the process is up: what it computes on, and what torch sees there."""
        return self._resolved, self._seen


class RayPool:
    """Hospital actors on a running Ray. The object itself travels to coordinator actors, which share the actors."""

    def __init__(self, placement: Placement, device: str) -> None:
        import ray

        self.served = placement.served
        self._device = device
        # Actors are pure, so a crashed one may restart and repeat the call that it was running.
        actor = ray.remote(
            num_cpus=placement.cpus, num_gpus=placement.gpus, max_restarts=3, max_task_retries=3
        )(HospitalActor)  # fmt: skip
        self.actors = [actor.remote(ids, i == 0, device) for i, ids in enumerate(self.served)]

    def wait(self, seconds: float) -> str | None:
        """Return once every actor is up, with a warning of one of them if there is any.

        Raises ``ResourceError`` where they are not up in time, or where one cannot have its device.
        """
        import ray

        try:
            answers = ray.get([actor.ready.remote() for actor in self.actors], timeout=seconds)
        except ray.exceptions.GetTimeoutError:
            raise ResourceError(
                f"resources: {len(self.actors)} hospital actors were not up after {seconds:g} s, and Ray has "
                f"{ray.available_resources()} free; stop other work on it or serve more hospitals per actor"
            ) from None
        warnings = [check_device(self._device, *answer) for answer in answers]
        return next((warning for warning in warnings if warning), None)

    def round(self, plan: Plan, memory: Memory | None) -> tuple[list[Partial], Memory]:
        import ray

        shared = ray.put(plan)
        kept = memory or [None] * len(self.actors)
        results = [
            actor.round.options(num_returns=2).remote(shared, own) for actor, own in zip(self.actors, kept, strict=True)
        ]
        return fetch([partial for partial, _ in results]), [own for _, own in results]

    def ask(
        self, work: Work, question: Question, round: int, models: Floats | None, ids: Ids | None
    ) -> list[list[Floats]]:
        import ray

        shared = None if models is None else ray.put(models)
        asked = [actor.ask.remote(work, question, round, shared, ids) for actor in self.actors]
        answers: list[list[Floats]] = fetch(asked)
        return answers

    def recall(self, memory: Memory) -> Kept:
        return {hospital: theta for own in fetch(memory) for hospital, theta in own.items()}


def fetch(refs: Any) -> Any:
    """``ray.get`` that raises a remote error as what it was there, not wrapped in Ray's trace."""
    import ray

    try:
        return ray.get(refs)
    except ray.exceptions.RayTaskError as error:
        raise cause_of(error) from None


def cause_of(error: Any) -> Exception:
    """The exception that a remote call raised, without Ray's wrapping."""
    cause = error
    while getattr(cause, "cause", None) is not None and cause.cause is not cause:
        cause = cause.cause
    return cause if isinstance(cause, Exception) else error


def resolve_device(device: str) -> tuple[str, str]:
    """``auto``, ``cpu`` or ``cuda`` to what this process computes on, and what torch sees."""
    if device == "cpu":
        return "cpu", ""
    import torch

    seen = f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', '')!r}, torch {torch.__version__}"
    return "cuda" if torch.cuda.is_available() else "cpu", seen


def check_device(wanted: str, resolved: str, seen: str) -> str | None:
    """A warning where a GPU was meant and there is none; ``ResourceError`` where ``cuda`` is required."""
    if wanted == "cuda" and resolved != "cuda":
        raise ResourceError(f"resources.device: cuda, but torch sees no CUDA device ({seen}); install a CUDA build")
    if wanted == "auto" and resolved == "cpu":
        return f"a hospital actor holds a GPU share, but torch sees no CUDA device ({seen}): it computes on the CPU"
    return None


def single_thread() -> None:
    """One compute thread for this process: more threads than cores was seen to be 30 times slower."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"  # for those that are loaded later
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)  # for those that are loaded already

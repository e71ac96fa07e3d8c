"""The faults: what is done to a command in mid-run, and what must come of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.soak import damage
from benchmarks.soak.cases import Case

ALL = ("run", "compare", "curve", "sweep")
RUNS = ALL[:3]
ON_RAY = ("own Ray", "one host", "three hosts")
STANDING = ("one host", "three hosts")


def lived_through(part: str, says: str, case: Case, *, patience: str = "", stop: float | None = None) -> None:
    """A process is killed, or stopped (``stop``: for so many seconds); the command ends well all the same."""
    with case.begun(patience=patience):
        victim = case.process(part)
        if stop is None:
            victim.kill()
        else:
            victim.suspend()
            time.sleep(stop)
            if patience == "" and stop:
                victim.resume()
    ended = case.end()
    case.expect(ended.code == 0, "it did not end well", ended)
    if case.subject.command != "sweep":
        case.expect(says in ended.out, f"it did not say '{says}'", ended)
    case.same()


def actor_killed(case: Case) -> None:
    """kill -9 of a hospital actor"""
    lived_through("HospitalActor", "", case)


def actor_hangs(case: Case) -> None:
    """a hospital actor hangs"""
    lived_through("HospitalActor", "", case, stop=0.0)


def actor_slow(case: Case) -> None:
    """a hospital actor answers slowly"""
    lived_through("HospitalActor", "", case, stop=float(case.stage.rng.uniform(0.5, 2.5)))


def coordinator_killed(case: Case) -> None:
    """kill -9 of the coordinator"""
    part = "ResourceTrainable" if case.subject.command == "sweep" else "CoordinatorActor"
    lived_through(part, "a new one goes on from", case)


def coordinator_stopped(case: Case) -> None:
    """SIGSTOP of the coordinator"""
    lived_through("CoordinatorActor", "a new one goes on from", case, patience="0.08", stop=0.0)


def signalled(case: Case, number: signal.Signals, code: int) -> None:
    """The command is stopped by a signal, as by a terminal: all of its processes get it; or it alone."""
    with case.begun() as driver:
        if number is signal.SIGINT:
            os.killpg(driver.pid, number)
        else:
            os.kill(driver.pid, number)
        if case.subject.command != "sweep":
            time.sleep(0.1)
    ended = case.end()
    case.expect(ended.code == code, f"exit code {code} was due", ended)
    if number is not signal.SIGKILL:
        case.expect("goes on" in ended.said and "Traceback" not in ended.said, "it did not say how to go on", ended)
    case.resumed()
    case.same()


def driver_killed(case: Case) -> None:
    """kill -9 of the driver"""
    signalled(case, signal.SIGKILL, -9)


def interrupted(case: Case) -> None:
    """Ctrl-C"""
    signalled(case, signal.SIGINT, 130)


def terminated(case: Case) -> None:
    """SIGTERM"""
    signalled(case, signal.SIGTERM, 143)


def ray_killed(case: Case, part: str) -> None:
    """A process without which there is no Ray is killed: an end in one line."""
    with case.begun():
        case.process(part).kill()
        time.sleep(0.2)
    ended = case.end()
    case.expect(ended.code == 2 and ended.clear and "Ray itself has failed" in ended.err, "no clear error", ended)
    case.expect(len(ended.err.strip().splitlines()) == 1, "more than one line", ended)
    case.resumed()
    case.same()


def trial_stopped(case: Case) -> None:
    """SIGSTOP of a trial, then Ctrl-C"""
    with case.begun() as driver:
        case.process("ResourceTrainable").suspend()
        time.sleep(1.0)
        os.killpg(driver.pid, signal.SIGINT)
    ended = case.end()
    case.expect(ended.code == 130 and "goes on" in ended.said, "exit code 130 was due", ended)
    case.resumed()
    case.same()


def raylet_killed(case: Case) -> None:
    """kill -9 of the node's raylet"""
    ray_killed(case, "raylet/raylet")


def head_killed(case: Case) -> None:
    """kill -9 of Ray's head process"""
    ray_killed(case, "gcs_server")


def host_lost(case: Case) -> None:
    """a host of the cluster dies and comes back"""
    standing = case.stage.standing
    assert standing is not None
    number = int(case.stage.rng.integers(1, 3))
    with case.begun():
        standing.raylets()[number].kill()
        standing.replace(number)
    ended = case.end()
    if ended.code == 3:  # trials may fail that had asked a hospital there
        case.resumed("--failed")
    elif ended.code:
        case.expect(ended.code == 2 and ended.clear, "no clear error", ended)
        case.resumed()
    case.same()


@dataclass(frozen=True)
class Fault:
    """What is done, to which commands, in which places."""

    strike: Callable[[Case], None]
    commands: tuple[str, ...]
    places: tuple[str, ...]

    @property
    def title(self) -> str:
        """How tables call it."""
        return (self.strike.__doc__ or "").strip()


PROCESS = ("in process", *ON_RAY)

FAULTS: Mapping[str, Fault] = {
    fault.strike.__name__: fault
    for fault in (
        Fault(actor_killed, ALL, ON_RAY),
        Fault(actor_hangs, ALL, ON_RAY),
        Fault(actor_slow, ALL, ON_RAY),
        Fault(coordinator_killed, ALL, ON_RAY),
        Fault(coordinator_stopped, RUNS, ON_RAY),
        Fault(trial_stopped, ("sweep",), ON_RAY),
        Fault(driver_killed, ALL, PROCESS),
        Fault(interrupted, ALL, PROCESS),
        Fault(terminated, ALL, PROCESS),
        Fault(raylet_killed, ALL, ("own Ray",)),
        Fault(head_killed, ALL, ("own Ray",)),
        Fault(host_lost, ALL, ("three hosts",)),
        Fault(damage.data_bad, ALL, ("in process", "one host")),
        Fault(damage.file_truncated, ALL, ("in process", *STANDING)),
        Fault(damage.disk_full, ALL, ("in process", *STANDING)),
        Fault(damage.server_killed, ALL, ("in process", *STANDING)),
    )
}


def cells(places: tuple[str, ...], only: list[str]) -> list[tuple[Fault, str, str]]:
    """Every fault with every command and place that it can strike; ``only`` faults of these names."""
    return [
        (fault, command, place)
        for name, fault in FAULTS.items()
        if not only or name in only
        for command in fault.commands
        for place in fault.places
        if place in places and not (command == "sweep" and place == "in process")
    ]

"""The faults: what is done to a command in mid-run, and what must come of it before the command has ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.soak import damage
from benchmarks.soak.cases import LOST, Case
from benchmarks.soak.drivers import name_of, wait_for
from benchmarks.soak.places import TRIAL

ALL = ("run", "compare", "curve", "sweep")
RUNS = ALL[:3]
ON_RAY = ("own Ray", "one host", "three hosts")
PROCESS = ("in process", *ON_RAY)


def actor_killed(case: Case) -> None:
    """kill -9 of a hospital actor"""
    with case.strike(actor_killed.__name__):
        case.process("HospitalActor").kill()


def actor_hangs(case: Case) -> None:
    """a hospital actor stands still"""
    with case.strike(actor_hangs.__name__):
        case.process("HospitalActor").suspend()


def actor_slow(case: Case) -> None:
    """a hospital actor answers slowly"""
    with case.strike(actor_slow.__name__):
        victim = case.process("HospitalActor")
        victim.suspend()
        time.sleep(float(case.stage.rng.uniform(0.2, 2.0)))
        victim.resume()


def coordinator_killed(case: Case) -> None:
    """kill -9 of the coordinator, or of a trial"""
    with case.strike(coordinator_killed.__name__):
        case.process(*coordinator(case)).kill()


def coordinator_stopped(case: Case) -> None:
    """SIGSTOP of the coordinator, or of a trial"""
    with case.strike(coordinator_stopped.__name__):
        victim = case.process(*coordinator(case))
        victim.suspend()
    wait_for(lambda: not name_of(victim), 180, "a coordinator that stands still is not ended")


def coordinator(case: Case) -> tuple[str, ...]:
    """What is in the title of a process that coordinates; the command will say that one was lost."""
    if case.subject.command == "sweep":
        return TRIAL
    case.says[LOST] += 1
    return ("CoordinatorActor",)


def signalled(case: Case, fault: Callable[[Case], None], number: signal.Signals, code: int) -> None:
    """The command is stopped by a signal, as by a terminal: all of its processes get it; or it alone."""
    with case.strike(fault.__name__, ends=case.subject.command == "sweep") as driver:
        if number is signal.SIGINT:
            os.killpg(driver.pid, number)
        else:
            os.kill(driver.pid, number)
        if case.subject.command != "sweep":
            time.sleep(0.1)
    ended = case.end()
    case.expect(ended.code == code, f"exit code {code} was due", ended)
    if number is not signal.SIGKILL:
        case.expect(
            "continue with" in ended.said and "Traceback" not in ended.said, "it did not say how to go on", ended
        )
        case.stores("KILLED", "FINISHED")
    case.go_on()


def driver_killed(case: Case) -> None:
    """kill -9 of the driver"""
    signalled(case, driver_killed, signal.SIGKILL, -9)


def interrupted(case: Case) -> None:
    """Ctrl-C"""
    signalled(case, interrupted, signal.SIGINT, 130)


def terminated(case: Case) -> None:
    """SIGTERM"""
    signalled(case, terminated, signal.SIGTERM, 143)


def ray_killed(case: Case, fault: Callable[[Case], None], part: str) -> None:
    """A process without which there is no Ray is killed: an end in one line."""
    with case.strike(fault.__name__):
        case.process(part).kill()
        time.sleep(0.2)
    ended = case.end()
    case.expect(ended.code == 2 and ended.clear and "Ray itself has failed" in ended.err, "no clear error", ended)
    said = sum(line.startswith("raysim: ") and ": waiting for" not in line for line in ended.err.splitlines())
    case.expect(said == 1, "more than one line", ended)
    case.go_on()


def raylet_killed(case: Case) -> None:
    """kill -9 of the node's raylet"""
    ray_killed(case, raylet_killed, "raylet/raylet")


def head_killed(case: Case) -> None:
    """kill -9 of Ray's head process"""
    ray_killed(case, head_killed, "gcs_server")


def host_lost(case: Case) -> None:
    """a host of the cluster dies and comes back"""
    standing = case.stage.standing
    assert standing is not None
    number = int(case.stage.rng.integers(1, len(standing.raylets())))
    with case.strike(host_lost.__name__, ends=True):
        standing.raylets()[number].kill()
        standing.replace(number)
    ended = case.end()
    if ended.code == 3:  # trials may fail that had asked a hospital there
        case.go_on("--failed")
    else:
        case.expect(ended.code == 0 or (ended.code == 2 and ended.clear), "no clear error", ended)
        case.go_on()


@dataclass(frozen=True)
class Fault:
    """What is done, to which commands, in which places, and what the case must have for it."""

    strike: Callable[[Case], None]
    commands: tuple[str, ...] = ALL
    places: tuple[str, ...] = PROCESS
    patience: bool = False
    disk: bool = False
    server: bool = False

    @property
    def title(self) -> str:
        """How tables call it."""
        return (self.strike.__doc__ or "").strip()

    def fits(self, case: Case) -> bool:
        """Whether it can strike this command."""
        return (
            case.subject.command in self.commands
            and case.place in self.places
            and (case.patience or not self.patience)
            and (case.disk or not self.disk)
            and (not self.server or (case.server is not None and case.server.up))
        )


FAULTS: Mapping[str, Fault] = {
    fault.strike.__name__: fault
    for fault in (
        Fault(actor_killed, ALL, ON_RAY),
        Fault(actor_hangs, ALL, ON_RAY),
        Fault(actor_slow, ALL, ON_RAY),
        Fault(coordinator_killed, ALL, ON_RAY),
        Fault(coordinator_stopped, ALL, ON_RAY, patience=True),
        Fault(driver_killed),
        Fault(interrupted),
        Fault(terminated),
        Fault(raylet_killed, ALL, ("own Ray",)),
        Fault(head_killed, ALL, ("own Ray",)),
        Fault(host_lost, ALL, ("three hosts",)),
        Fault(damage.data_bad, ALL, ("in process", "one host")),
        Fault(damage.file_truncated),
        Fault(damage.disk_full, disk=True),
        Fault(damage.server_killed, server=True),
    )
}

"""Faults injected for real, at random moments: what was injected how often, and how often the end was right.

``python -m benchmarks.soak [--minutes 12] [--faults N] [--seed 1]``. Runs, comparisons and sweeps of a small federation
are disturbed: processes are killed or stopped, data and checkpoints are damaged, a disk is filled. A fault of a process
counts only where it strikes in mid-run: a checkpoint or a finished trial is on disk before it, and work is left after
it; others are repeated. Right is a finished run with the files of an undisturbed
one, or a clear error (exit code 2, one line) or stop (130, kill) after which the run goes on and ends with those files;
and no process of Ray left. Hospital actors, coordinators and data are disturbed on one Ray that stays up; what takes
the driver along runs in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import yaml
from rich.console import Console

from raysim.cli import commands
from raysim.config import plugins, reading
from raysim.config.schema import Config
from raysim.core.errors import RaysimError

TREE = {
    "name": "soak",
    "data": {"source": "synthetic", "hospitals": 8, "rows": 500, "features": 4},
    "training": {"rounds": 1200, "batch_size": 32},
    "evaluation": {"every": 50},
    "selection": {"fraction": 0.5, "minimum": 2},
    "strategy": {"name": "chip", "clusters": 2},
    "checkpoint": {"every": 100},
    "tracking": {"uri": "none"},
    "resources": {"timeout": 3},
}
COMPARISON = TREE | {
    "training": {"rounds": 600, "batch_size": 32},
    "strategies": ["fedavg", {"name": "chip", "clusters": 2}],
    "seeds": [1],
    "reference": "fedavg",
}
TRIALS = 6
SWEEP = TREE | {
    "data": {**TREE["data"], "split": {"train": 0.6, "validation": 0.2, "test": 0.2}},  # type: ignore[dict-item]
    "training": {"rounds": 200, "batch_size": 32},
    "strategy": {"name": "fedprox"},
    "sweep": {
        "space": {"strategy.mu": {"loguniform": [0.01, 1.0]}},
        "objectives": {"auroc": "max"},
        "searcher": "random",
        "trials": TRIALS,
    },
}
FILES = ("models.safetensors", "hospitals.csv", "egress.csv")
AGENT_SECONDS = 90.0
"""Agents of a Ray whose head was killed try for a minute to tell it."""

RESUME = "import sys, pathlib; from rich.console import Console; from raysim.cli.commands import resume_run; " + (
    "resume_run(pathlib.Path(sys.argv[1]), Console(width=200), in_process=True, verbose=False)"
)


class Missed(Exception):
    """The run had ended before the fault came."""


@dataclass
class Soak:
    """What all injections share."""

    folder: Path
    rng: np.random.Generator
    families: list[tuple[float, list[psutil.Process]]] = field(default_factory=list)
    count: int = 0

    def out(self) -> Path:
        """A new run's folder."""
        self.count += 1
        return self.folder / f"run-{self.count}"

    def moment(self) -> float:
        """Seconds after the hospitals are up."""
        return float(self.rng.uniform(0.0, 2.0))

    def equal(self, out: Path) -> bool:
        """Whether a run's files are those of the undisturbed one, seconds apart."""
        whole = self.folder / "whole"
        tables = [pd.read_csv(path / "rounds.csv").drop(columns="seconds") for path in (whole, out)]
        return tables[0].equals(tables[1]) and all(
            (whole / name).read_bytes() == (out / name).read_bytes() for name in FILES
        )

    def run(self, out: Path, inject: Callable[[list[psutil.Process]], Any]) -> tuple[str | None, str]:
        """A run on the Ray that is up, disturbed by ``inject(its processes)``: its error if any, and what it said."""
        console = Console(width=300, record=True, file=io.StringIO())
        # Idle workers may become this run's; others are of runs before it.
        before = {worker for worker in workers(psutil.Process()) if "IDLE" not in name_of(worker)}
        done, failures = threading.Event(), []

        def disturb() -> None:
            try:
                mine = wait_for(lambda: hospitals(set(workers(psutil.Process())) - before), done)
                wait_for(lambda: begun(out), done)
                time.sleep(self.moment())
                if done.is_set():
                    raise Missed
                inject(mine)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=disturb)
        thread.start()
        error = None
        try:
            commands.run_one(self.config(), console, out, in_process=False, verbose=False)
        except RaysimError as failure:
            error = str(failure)
        finally:
            done.set()
            thread.join()
        if failures:
            raise failures[0]
        return error, console.export_text()

    def drive(
        self, out: Path, inject: Callable[[int, list[psutil.Process]], Any], command: str = "run"
    ) -> tuple[int, str]:
        """A command in a process of its own, disturbed by ``inject(driver, its processes)``: exit code and output."""
        driver = subprocess.Popen(
            [sys.executable, "-m", "raysim", command, f"{command}.yaml", "--out", str(out)],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        process = psutil.Process(driver.pid)
        try:
            wait_for(lambda: driver.poll() is not None or begun(out), None, 180.0)
        except TimeoutError:
            driver.terminate()
            raise TimeoutError(f"the run did not come up: {driver.communicate(timeout=60)[0][-300:]}") from None
        if driver.poll():
            raise RuntimeError(f"the run ended before the fault: {driver.communicate()[0][-300:]}")
        time.sleep(self.moment())
        if driver.poll() is not None:
            raise Missed
        if ended(out):
            driver.wait()
            raise Missed
        family = process.children(recursive=True)
        self.families.append((time.monotonic(), family))
        inject(driver.pid, family)
        said = driver.communicate(timeout=240)[0]
        if ended(out) and driver.returncode:
            raise Missed
        return driver.returncode, said

    def resumed(self, out: Path) -> str:
        """Let a run go on in this process; what it said."""
        console = Console(width=300, record=True, file=io.StringIO())
        commands.resume_run(out, console, in_process=True, verbose=False)
        return console.export_text()

    def config(self) -> Config:
        """The configuration of every run."""
        return reading.resolve(self.folder / "run.yaml")

    def swept(self, out: Path) -> bool:
        """Let a sweep go on in a process of its own; whether its trials are those of the undisturbed one."""
        command = [sys.executable, "-m", "raysim", "resume", str(out)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        tables = [trials(path) for path in (self.folder / "whole-sweep", out)]
        return done.returncode == 0 and tables[0].equals(tables[1])

    def compared(self, out: Path) -> bool:
        """Let a comparison go on; whether its files are those of the undisturbed one."""
        self.resumed(out)
        names = ("hospitals.csv", *(f"runs/{label}/seed-1/models.safetensors" for label in ("fedavg", "chip")))
        whole = self.folder / "whole-compare"
        return all((whole / name).read_bytes() == (out / name).read_bytes() for name in names)


def begun(out: Path) -> bool:
    """Whether something that a command in ``out`` has finished is on disk: a checkpoint, or a trial."""
    journal = out / "journal.jsonl"
    if journal.exists():
        return journal.read_bytes().count(b"\n") > 1
    return any(out.rglob("checkpoints/round-*"))


def ended(out: Path) -> bool:
    """Whether nothing is left to do of the command in ``out``."""
    journal, ticket = out / "journal.jsonl", out / "resume.json"
    if journal.exists():
        return journal.read_bytes().count(b"\n") > TRIALS
    return ticket.exists() and bool(json.loads(ticket.read_text())["finished"])


def trials(folder: Path) -> pd.DataFrame:
    """The trials of a sweep, but for what depends on the machine."""
    table = pd.read_csv(folder / "trials.csv")
    return table.drop(columns=["seconds", "attempts"], errors="ignore").sort_values("trial", ignore_index=True)


def workers(root: psutil.Process) -> list[psutil.Process]:
    """Ray's worker processes below ``root``."""
    with contextlib.suppress(psutil.Error):
        return [child for child in root.children(recursive=True) if name_of(child).startswith("ray::")]
    return []


def hospitals(found: Any) -> list[psutil.Process]:
    """All of these processes once both hospital actors and the coordinator are among them; else none."""
    names = [name_of(process) for process in found]
    ready = sum("HospitalActor" in name for name in names) >= 2 and any("Coordinator" in name for name in names)
    return list(found) if ready else []


def name_of(process: psutil.Process) -> str:
    """A process's title, or nothing once it has ended."""
    try:
        return " ".join(process.cmdline()) if process.status() != psutil.STATUS_ZOMBIE else ""
    except psutil.Error:
        return ""


def wait_for(condition: Callable[[], Any], done: threading.Event | None, seconds: float = 60.0) -> Any:
    """What ``condition`` gives once it gives something."""
    end = time.monotonic() + seconds
    while not (result := condition()):
        if done is not None and done.is_set():
            raise Missed
        if time.monotonic() > end:
            raise TimeoutError("the run did not come up")
        time.sleep(0.02)
    return result


def pick(soak: Soak, processes: list[psutil.Process], part: str) -> psutil.Process:
    """One of the processes whose title has ``part``, at random."""
    found = [process for process in processes if part in name_of(process)]
    return found[int(soak.rng.integers(len(found)))]


def actor_killed(soak: Soak) -> bool:
    """kill -9 of a hospital actor"""
    error, _ = soak.run(out := soak.out(), lambda mine: pick(soak, mine, "HospitalActor").kill())
    return error is None and soak.equal(out)


def coordinator_killed(soak: Soak) -> bool:
    """kill -9 of the coordinator"""
    error, said = soak.run(out := soak.out(), lambda mine: pick(soak, mine, "Coordinator").kill())
    return error is None and "a new one goes on from" in said and soak.equal(out)


def actor_slow(soak: Soak) -> bool:
    """hospital actor answers slowly"""

    def stall(mine: list[psutil.Process]) -> None:
        victim = pick(soak, mine, "HospitalActor")
        victim.suspend()
        time.sleep(float(soak.rng.uniform(0.5, 2.5)))
        victim.resume()

    error, _ = soak.run(out := soak.out(), stall)
    return error is None and soak.equal(out)


def actor_hangs(soak: Soak) -> bool:
    """hospital actor hangs"""
    error, _ = soak.run(out := soak.out(), lambda mine: pick(soak, mine, "HospitalActor").suspend())
    return error is None and soak.equal(out)


def data_bad(soak: Soak) -> bool:
    """a hospital's data turns to NaN"""
    settings = soak.config()
    source = plugins.build_source(settings.data)
    federation = plugins.build_federation(settings.data, source, settings.seed)
    path = federation.folder / "X.npy"
    good, rows = path.read_bytes(), np.load(path)
    hospital = int(soak.rng.choice(np.flatnonzero(federation.sizes("train"))))
    rows[federation.rows(hospital, "train")] = np.nan

    out = soak.out()

    def overwrite(content: bytes) -> None:
        with path.open("r+b") as file:  # in place, as processes have mapped it
            file.write(content)

    def spoil(_: list[psutil.Process]) -> None:
        wait_for(lambda: list(out.glob("checkpoints/round-*")), None)
        overwrite(good[: len(good) - rows.nbytes] + rows.tobytes())

    try:
        error, _ = soak.run(out, spoil)
    finally:
        overwrite(good)
    if error is None or f"'{federation.hospitals[hospital]}' diverge" not in error:
        return False
    soak.resumed(out)
    return soak.equal(out)


def driver_killed(soak: Soak) -> bool:
    """kill -9 of the driver"""
    code, _ = soak.drive(out := soak.out(), lambda pid, _: os.kill(pid, signal.SIGKILL))
    soak.resumed(out)
    return code == -signal.SIGKILL and soak.equal(out)


def interrupted(soak: Soak) -> bool:
    """Ctrl-C"""
    code, said = soak.drive(out := soak.out(), lambda pid, _: os.killpg(pid, signal.SIGINT))
    soak.resumed(out)
    left = [process for process in soak.families[-1][1] if name_of(process)]
    _, alive = psutil.wait_procs(left, timeout=20)
    return code == 130 and "goes on" in said and not [p for p in alive if name_of(p)] and soak.equal(out)


def raylet_killed(soak: Soak) -> bool:
    """kill -9 of the node's raylet"""
    out = soak.out()
    code, said = soak.drive(out, lambda _, family: pick(soak, family, "raylet/raylet").kill())
    print(f"  ended with {code}: {said.strip().splitlines()[-1][:200]}", file=sys.stderr)
    if code != 0:
        if code != 2 or "Traceback" in said or "raysim: " not in said:
            return False
        soak.resumed(out)
    return soak.equal(out)


def checkpoint_truncated(soak: Soak) -> bool:
    """the last checkpoint is truncated"""
    out = soak.out()
    driver = subprocess.Popen(
        [sys.executable, "-m", "raysim", "run", "run.yaml", "--in-process", "--out", str(out)],
        cwd=soak.folder,
        stdout=subprocess.DEVNULL,
    )
    kept = wait_for(lambda: found if len(found := sorted(out.glob("checkpoints/round-*"))) > 1 else None, None)
    time.sleep(float(soak.rng.uniform(0, 0.5)))
    driver.kill()
    if driver.wait() == 0:
        raise Missed
    kept = sorted(out.glob("checkpoints/round-*"))
    os.truncate(kept[-1], int(soak.rng.integers(kept[-1].stat().st_size)))
    said = soak.resumed(out)
    return "is damaged" in said and f"goes on from round {int(kept[-2].name[6:12])}" in said and soak.equal(out)


def disk_full(soak: Soak) -> bool:
    """the disk is full"""
    disk, out = soak.folder / f"disk-{soak.count}", soak.out()
    disk.mkdir()
    run = f"{sys.executable} -m raysim run run.yaml --in-process --out {disk}/out"
    script = (
        f"mount -t tmpfs -o size={int(soak.rng.integers(24, 320))}k none {disk} && cd {soak.folder} && {run}; code=$?; "
        f"mount -o remount,size=64M {disk} && {sys.executable} -c '{RESUME}' {disk}/out && cp -r {disk}/out {out}; "
        "exit $code"
    )
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True)
    if done.returncode == 0:
        raise Missed
    clear = done.returncode == 2 and "No space left on device" in done.stderr and "Traceback" not in done.stderr
    return clear and soak.equal(out)


def comparison_killed(soak: Soak) -> bool:
    """kill -9 of a comparison's driver"""
    code, _ = soak.drive(out := soak.out(), lambda pid, _: os.kill(pid, signal.SIGKILL), "compare")
    return code == -signal.SIGKILL and soak.compared(out)


def comparison_interrupted(soak: Soak) -> bool:
    """Ctrl-C of a comparison"""
    code, said = soak.drive(out := soak.out(), lambda pid, _: os.killpg(pid, signal.SIGINT), "compare")
    return code == 130 and "goes on" in said and soak.compared(out)


def sweep_killed(soak: Soak) -> bool:
    """kill -9 of a sweep's driver"""
    code, _ = soak.drive(out := soak.out(), lambda pid, _: os.kill(pid, signal.SIGKILL), "sweep")
    return code == -signal.SIGKILL and soak.swept(out)


def sweep_interrupted(soak: Soak) -> bool:
    """Ctrl-C of a sweep"""
    code, said = soak.drive(out := soak.out(), lambda pid, _: os.kill(pid, signal.SIGINT), "sweep")
    return code == 130 and "goes on" in said and soak.swept(out)


def sweep_raylet_killed(soak: Soak) -> bool:
    """kill -9 of the raylet under a sweep"""
    out = soak.out()
    code, said = soak.drive(out, lambda _, family: pick(soak, family, "raylet/raylet").kill(), "sweep")
    return code == 2 and "raysim: resources: Ray itself has failed" in said and soak.swept(out)


def coordinator_stopped(soak: Soak) -> bool:
    """SIGSTOP of the coordinator"""
    error, said = soak.run(out := soak.out(), lambda mine: pick(soak, mine, "Coordinator").suspend())
    return error is None and "a new one goes on from" in said and soak.equal(out)


FAULTS: dict[Callable[[Soak], bool], int] = {
    actor_killed: 12,
    coordinator_killed: 10,
    driver_killed: 6,
    raylet_killed: 4,
    interrupted: 4,
    actor_hangs: 4,
    actor_slow: 4,
    data_bad: 5,
    checkpoint_truncated: 6,
    disk_full: 5,
    comparison_killed: 4,
    comparison_interrupted: 4,
    sweep_killed: 4,
    sweep_interrupted: 4,
    sweep_raylet_killed: 4,
    coordinator_stopped: 2,
}
"""How often each is injected, of a soak of the usual size."""


@contextlib.contextmanager
def prepared(seed: int) -> Iterator[Soak]:
    """A folder with the configuration and its undisturbed run, and a Ray that stays up."""
    import ray

    with tempfile.TemporaryDirectory() as name:
        soak = Soak(Path(name), np.random.default_rng(seed))
        os.environ["RAYSIM_CACHE"] = f"{name}/cache"
        for command, tree in (("run", TREE), ("compare", COMPARISON), ("sweep", SWEEP)):
            (soak.folder / f"{command}.yaml").write_text(yaml.safe_dump(tree))
        quiet = Console(file=io.StringIO())
        commands.run_one(soak.config(), quiet, soak.folder / "whole", in_process=True, verbose=False)
        for command in ("compare", "sweep"):
            whole = [sys.executable, "-m", "raysim", command, f"{command}.yaml", "--out", f"whole-{command}"]
            whole += ["--in-process"] if command == "compare" else []
            subprocess.run(whole, cwd=soak.folder, check=True, capture_output=True)
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="FATAL")
        try:
            yield soak
        finally:
            ray.shutdown()


def main() -> None:
    """Inject until all is done or the time is over, and print the table; exit code 1 where something was not right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--seed", type=int, default=1)
    usual = sum(FAULTS.values())
    parser.add_argument("--faults", type=int, default=usual, help=f"how many in all, in the proportion of {usual}")
    parser.add_argument("--only", nargs="*", default=[], help="names of faults: these alone")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes - AGENT_SECONDS
    injected, right = dict.fromkeys(FAULTS, 0), dict.fromkeys(FAULTS, 0)
    with prepared(arguments.seed) as soak:
        wanted = {
            fault: max(1, round(times * arguments.faults / usual))
            for fault, times in FAULTS.items()
            if not arguments.only or fault.__name__ in arguments.only
        }
        order = [fault for i in range(max(wanted.values())) for fault, times in wanted.items() if i < times]
        for fault in order:
            if time.monotonic() > end:
                break
            began = time.monotonic()
            try:
                good = fault(soak)
            except Missed:
                order.append(fault)
                continue
            except Exception as error:
                print(f"{fault.__doc__}: {type(error).__name__}: {error}", file=sys.stderr)
                good = False
            injected[fault] += 1
            right[fault] += good
            seconds = time.monotonic() - began
            print(f"{'right' if good else 'WRONG'} {seconds:5.1f} s  {fault.__doc__}", file=sys.stderr, flush=True)
        left = left_over(soak)
    print(f"{'fault':36} {'injected':>8} {'right':>6}")
    for fault in FAULTS:
        print(f"{fault.__doc__:36} {injected[fault]:8} {right[fault]:6}")
    print(f"{'in all':36} {sum(injected.values()):8} {sum(right.values()):6}")
    print(f"processes left behind by {len(soak.families)} drivers: {left}")
    sys.exit(int(injected != right or left > 0))


def left_over(soak: Soak) -> int:
    """Processes of drivers that have ended which are still there when agents have had their time."""
    for since, family in soak.families:
        psutil.wait_procs(family, timeout=max(0.1, since + AGENT_SECONDS - time.monotonic()))
    return sum(bool(name_of(process)) for _, family in soak.families for process in family)


if __name__ == "__main__":
    main()

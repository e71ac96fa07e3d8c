"""Workers that are forks of one process: what they have in common with Ray's own, and what happens without it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from raysim.cli.options import workers_begun
from raysim.cluster import fork_server, forked, greeting
from raysim.cluster.connection import connected
from raysim.core.package import FOLDER
from tests.waiting import until

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="forks and sockets of Linux")]

START = Path(forked.__file__).with_name("worker_start.py")


def servers(process: psutil.Process) -> list[psutil.Process]:
    """The fork servers that a process has started."""
    return [each for each in process.children() if any("fork_server.py" in word for word in each.cmdline())]


class Worker:
    """Tells about its process."""

    def pid(self) -> int:
        return os.getpid()

    def drawn(self) -> float:
        return float(np.random.random())  # noqa: NPY002  # what a careless module of the user's does

    def put_on_a_thread(self) -> str:
        import ray

        ids: list[str] = []
        thread = threading.Thread(target=lambda: ids.append(ray.put(os.getpid()).hex()))
        thread.start()
        thread.join()
        return ids[0]

    def manner(self) -> dict[str, object]:
        status = Path("/proc/self/status").read_text()
        signals = [line for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn"))]
        return {
            "signals": signals,
            "nice": os.nice(0),
            "oom": Path("/proc/self/oom_score_adj").read_text(),
            "leads its group": os.getpgid(0) == os.getpid(),
            "folder": os.getcwd(),
            "searched": sys.path,
            "program": sys.argv[0],
            "named": psutil.Process().cmdline()[0],
            "variables": sorted(set(os.environ) - {"RAY_RAYLET_PID"}),
        }


def test_a_fork_is_like_a_worker_of_rays_own_and_takes_its_place(monkeypatch):
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with connected(False, False, tuple(dict.fromkeys([*forked.OF_RUNS, *forked.OF_TRIALS]))):
        (server,) = servers(psutil.Process())
        kind = ray.remote(num_cpus=0, max_restarts=1, max_task_retries=1)(Worker)
        one, other = kind.remote(), kind.remote()
        pids = ray.get([one.pid.remote(), other.pid.remote()])
        assert {psutil.Process(pid).ppid() for pid in pids} == {server.pid}
        drawn = ray.get([one.drawn.remote(), other.drawn.remote()])
        assert drawn[0] != drawn[1]
        # Objects of one id are one object: what a process reads may be what another has put.
        ids = ray.get([one.put_on_a_thread.remote(), other.put_on_a_thread.remote()])
        assert ids[0] != ids[1]
        forked_manner = ray.get(one.manner.remote())

        os.kill(pids[0], signal.SIGKILL)
        assert ray.get(one.pid.remote()) in [child.pid for child in server.children()]

        server.kill()  # then Ray starts its workers itself
        late = ray.remote(num_cpus=0)(Worker).remote()
        assert psutil.Process(ray.get(late.pid.remote())).ppid() != server.pid
        plain_manner = ray.get(late.manner.remote())
        assert forked_manner == plain_manner
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=600)
    assert not alive


def test_workers_that_end_while_others_are_reaped_are_reaped_once(monkeypatch):
    server = object.__new__(fork_server.ForkServer)
    server._workers = {os.posix_spawnp("true", ["true"], os.environ) for _ in range(2)}
    waitpid, calls = os.waitpid, []

    def with_a_signal(pid, options):
        calls.append(pid)
        if len(calls) == 1:  # what SIGCHLD's handler does, amid the call
            while server._reap():
                pass
        return waitpid(pid, options)

    monkeypatch.setattr(os, "waitpid", with_a_signal)
    assert server._reap() == 0


DRAWING = """
import sys
sys.path.insert(0, sys.argv[1])
import fork_server
from pathlib import Path
if "guarded" in sys.argv:
    fork_server.preload(Path(sys.argv[1]).parent, ["makes_actors"])
else:
    import makes_actors
print(fork_server.forks_differ())
"""


@pytest.mark.parametrize(("way", "differ"), [("guarded", "True"), ("plainly", "False")])
def test_modules_that_make_actors_are_imported_without_drawing_and_it_is_seen_where_one_has(tmp_path, way, differ):
    (tmp_path / "makes_actors.py").write_text("import ray\n@ray.remote\nclass Actor: pass\nactor = Actor.options()\n")
    command = [sys.executable, "-c", DRAWING, str(START.parent), way]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip() == differ


def test_nothing_is_left_behind(monkeypatch):
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with connected(verbose=False):
        (server,) = servers(psutil.Process())
        ray.get(ray.remote(num_cpus=0)(Worker).remote().pid.remote())
        started = [server, *server.children()]
    _, alive = psutil.wait_procs(started, timeout=600)
    assert not alive


def test_the_server_ends_its_workers_where_the_driver_is_killed(tmp_path):
    (tmp_path / "driver.py").write_text(
        "import ray\n"
        "from raysim.cluster.connection import connected\n"
        "from tests.cluster.test_fork_server import Worker\n"
        "with connected(verbose=False):\n"
        "    worker = ray.remote(num_cpus=0)(Worker).remote()\n"
        "    print(ray.get(worker.pid.remote()), flush=True)\n"
        "    input()\n"
    )
    variables = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "driver.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=variables | {"PYTHONPATH": os.getcwd()},
    ) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        below = [psutil.Process(pid), *servers(psutil.Process(driver.pid))]
        driver.kill()
    _, alive = psutil.wait_procs(below, timeout=600)
    assert not alive


@pytest.mark.parametrize("further", [[], ["--serialized-runtime-env-context={}"]])
def test_without_a_server_or_with_an_environment_of_its_own_the_worker_is_what_ray_asked_for(tmp_path, further):
    program = tmp_path / "setup_worker.py"
    program.write_text("import sys; print('setup', *sys.argv[1:])")
    worker = tmp_path / "worker.py"
    worker.write_text("import sys; print('worker', *sys.argv[1:])")
    command = [sys.executable, str(program), str(worker), "--language=PYTHON", "--a=1", *further]
    said = subprocess.run(
        [sys.executable, "-I", "-S", str(START), str(tmp_path / "nobody"), *command], capture_output=True, text=True
    )
    expected = " ".join(["setup", *command[2:]]) if further else "worker --a=1"
    assert (said.stdout.strip(), said.returncode) == (expected, 0)


def test_variables_that_a_worker_asks_for_are_set_in_its_fork(monkeypatch):
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)

    def asked() -> tuple[str | None, ...]:
        return os.environ.get("ONE"), os.environ.get("TWO"), str(os.getppid())

    with connected(verbose=False):
        (server,) = servers(psutil.Process())
        environment = {"env_vars": {"ONE": "1", "TWO": "${ONE}${ABSENT_X}2"}}
        variables = ray.get(ray.remote(num_cpus=0, runtime_env=environment)(asked).remote())
        assert variables == ("1", "12", str(server.pid))
        assert ray.get(ray.remote(num_cpus=0)(asked).remote()) == (None, None, str(server.pid))


def test_of_a_raysim_elsewhere_nothing_is_imported(tmp_path):
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import fork_server; "
        "fork_server.preload(Path(sys.argv[2]), ['raysim.core.package', 'colorsys', 'absent_module']); "
        "print('raysim.core.package' in sys.modules, 'colorsys' in sys.modules)"
    )
    for folder, expected in ((FOLDER, "True True"), (tmp_path, "False True")):
        said = subprocess.run(
            [sys.executable, "-c", code, str(START.parent), str(folder)], capture_output=True, text=True, check=True
        )
        assert said.stdout.strip() == expected


def test_a_server_that_was_begun_is_taken_and_ends_with_its_ray(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    here = psutil.Process()
    with forked.begun(("colorsys",)):
        (server,) = servers(here)
        with forked.fork_server(("string",)) as start:
            assert servers(here) == [server]
            assert Path(start[-1]).is_socket()
        assert not server.is_running()
        assert not Path(start[-1]).parent.exists()
        with forked.fork_server(("string",)):  # the one that was begun has ended: another one
            assert servers(here) != [server]
    assert servers(here) == []


def test_a_server_that_nobody_took_is_ended_at_once_also_where_it_imports_for_long(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    (tmp_path / "endless.py").write_text("import time\nwhile True: time.sleep(1)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with forked.begun(("endless",)):
        (server,) = servers(psutil.Process())
    assert not server.is_running()


def test_a_cluster_that_is_to_be_joined_is_greeted_at_once_and_no_server_begun(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    here = psutil.Process()
    before = here.children()  # that from which commands of tests are forked, where such a test was before
    with workers_begun(forked.MODULES):
        (asked,) = (each for each in here.children() if each not in before)
        assert asked.cmdline()[-1] == "127.0.0.1:1"
        with greeting.greeted("127.0.0.1:1") as taken:
            assert taken.pid == asked.pid
        assert not asked.is_running()
    with workers_begun(forked.MODULES):
        (asked,) = (each for each in here.children() if each not in before)
    assert not asked.is_running()
    with workers_begun(forked.MODULES, in_process=True):
        assert here.children() == before


def _reads(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


def test_what_is_needed_later_is_imported_while_nobody_asks(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    written = tmp_path / "imported"
    says = f"import os, time\ndef say(word): open({str(written)!r}, 'a').write(word)\n"
    for name in ("needed", "later", "last"):
        waits = f"say('({name} ')\nwhile not os.path.exists({str(tmp_path / name)!r}): time.sleep(.01)\n"
        (tmp_path / f"its_{name}.py").write_text(f"{says}{waits}say('{name}) ')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "needed").touch()
    with (
        forked.fork_server(("its_needed", "--", "its_later", "its_last")) as start,
        socket.socket(socket.AF_UNIX) as line,
    ):
        until(partial(_reads, written, "(needed needed) (later "))
        line.settimeout(120)
        line.connect(start[-1])
        (tmp_path / "later").touch()
        line.shutdown(socket.SHUT_WR)
        assert line.recv(1) == b""  # it answers a request that it cannot read by hanging up, and before it imports on
        (tmp_path / "last").touch()
        until(partial(_reads, written, "(needed needed) (later later) (last last) "))

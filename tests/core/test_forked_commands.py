"""The commands that tests fork are as commands that a shell starts."""

from __future__ import annotations

import atexit
import fcntl
import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import psutil
import pytest

from tests import rays, shared
from tests.commands import Running, in_a_process, raysim

ROOT = Path(__file__).parents[2]


def report(*arguments: str) -> None:
    print(*arguments, Path.cwd(), os.environ.get("HERE"), os.environ.get("RAY_ADDRESS"), os.getsid(0) == os.getpid())
    print("an error", file=sys.stderr)
    atexit.register(print, "after all")
    sys.exit(7)


def test_a_fork_has_its_own_folder_environment_and_streams_and_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    done = in_a_process(report, ["a", "b"], tmp_path, {"HERE": "set"})
    assert done == (7, f"a b {tmp_path} set None True\nafter all\n", "an error\n")
    monkeypatch.setenv("HERE", "inherited")
    assert " inherited None True" in in_a_process(report, [], tmp_path, {}).out


def leaks(how: str) -> None:
    """Warns as a command, on a thread or in a destructor, and ends well otherwise."""

    def warn() -> None:
        warnings.warn("leaked by a command", RuntimeWarning, stacklevel=1)

    class Warns:
        def __del__(self) -> None:
            warn()

    if how == "thread":
        thread = threading.Thread(target=warn)
        thread.start()
        thread.join()
    elif how == "destructor":
        Warns()
    elif how == "file":
        open(os.devnull).read()  # noqa: SIM115
    elif how == "itself":
        warn()
    sys.exit(0)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("itself", "RuntimeWarning: leaked by a command"),
        ("thread", "RuntimeWarning: leaked by a command"),
        ("destructor", "RuntimeWarning: leaked by a command"),
        ("file", "ResourceWarning: unclosed file"),
    ],
)
def test_a_command_that_leaks_a_warning_fails(how: str, said: str, tmp_path: Path):
    done = in_a_process(leaks, [how], tmp_path, {})
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert in_a_process(leaks, ["not"], tmp_path, {}) == (0, "", "")


def wait_for(name: str) -> None:
    Path(name).touch()
    signal.pause()


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, -15), (signal.SIGINT, 1)])
def test_a_fork_is_reached_by_signals(how: signal.Signals, code: int, tmp_path: Path):
    waiting = Running(wait_for, ["ready"], tmp_path, {})
    while not (tmp_path / "ready").exists():
        assert not waiting.ended()
    os.killpg(waiting.pid, how)
    done = waiting.wait()
    assert waiting.ended()
    assert done.code == code
    assert ("KeyboardInterrupt" in done.err) == (how is signal.SIGINT)


def test_a_command_runs_there_as_from_a_shell(tmp_path: Path):
    assert raysim(["list", "models"], tmp_path, {}).out.startswith("boosted_trees ")
    done = raysim(["run", "missing.yaml"], tmp_path, {})
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("raysim: missing.yaml")


def parent_of(name: str) -> None:
    Path(name).write_text(f"{os.getppid()}")


def first_of_a_session() -> None:
    """Commands of a session that begins here, and of a process that it starts."""
    del os.environ[shared.VARIABLE]
    shared.WITHOUT_RAY = shared.PRELOADED = ()
    in_a_process(parent_of, ["first"], Path.cwd(), {})
    code = "from pathlib import Path; from tests.core.test_forked_commands import *; "
    code += "in_a_process(parent_of, ['second'], Path.cwd(), {})"
    subprocess.run([sys.executable, "-c", code], check=True)
    Path("shared").write_text(str(shared.folder()))


def test_the_processes_of_a_session_share_one_that_is_forked_and_ends_with_it(tmp_path: Path):
    assert in_a_process(first_of_a_session, [], tmp_path, {"PYTHONPATH": os.pathsep.join(sys.path)}).code == 0
    first, second, folder = ((tmp_path / name).read_text() for name in ("first", "second", "shared"))
    assert first == second
    assert not psutil.pid_exists(int(first))
    assert not Path(folder).exists()
    assert folder != str(shared.folder())


def test_who_goes_away_before_the_end_takes_the_fork_with_it(tmp_path: Path):
    with shared.asked(wait_for, [str(tmp_path / "ready")]) as answers:
        fork = psutil.Process(int(answers.readline()))
        while not (tmp_path / "ready").exists():
            assert fork.is_running()
    fork.wait(60)


def show_in(folder: str, number: str) -> None:
    Path(folder, number).write_bytes(os.read(int(number), 9))


def test_open_files_come_along_under_their_numbers(tmp_path: Path):
    reading, writing = os.pipe()
    os.write(writing, b"through")
    high = fcntl.fcntl(reading, fcntl.F_DUPFD, 200)
    with shared.asked(show_in, [str(tmp_path), str(high)], [0, high]) as answers:
        answers.readline()
        assert int(answers.readline()) == 0
    for number in (reading, writing, high):
        os.close(number)
    assert (tmp_path / str(high)).read_text() == "through"


SET_UP = "/x/ray/_private/workers/setup_worker.py"
WORKER = "/x/ray/_private/workers/default_worker.py"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([SET_UP, WORKER, "--a=1", "--language=PYTHON"], ([WORKER, "--a=1"], {})),
        (
            [SET_UP, WORKER, '--serialized-runtime-env-context={"env_vars": {"A": "b"}, "py_executable": "/python"}'],
            ([WORKER], {"A": "b"}),
        ),
        ([SET_UP, WORKER, '--serialized-runtime-env-context={"py_executable": "/other"}'], None),
        (["-u", "/x/ray/dashboard/agent.py", "--head"], (["/x/ray/dashboard/agent.py", "--head"], {})),
        (["-m", "raysim"], None),
        (["-c", "pass"], None),
        ([], None),
    ],
)
def test_ray_s_own_programs_are_forked(words, expected):
    assert rays.forkable("/python", words) == expected


def test_what_takes_the_place_of_python_is_python_otherwise():
    code = "import sys; print(sys.executable, sys.argv[1:], 'pytest' in sys.modules); sys.exit(3)"
    done = subprocess.run([rays.python(), "-c", code, "a b"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, f"{sys.executable} ['a b'] False\n")


MANY_AT_ONCE = """
import os, threading
from tests import shared

shared.WITHOUT_RAY = shared.PRELOADED = ("json",)


def ask():
    for _ in range(100):
        with shared.asked(os.getpid, []) as answers:
            answers.readline()
            codes.append(int(answers.readline()))


codes = []
threads = [threading.Thread(target=ask) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(codes), set(codes))
"""


def test_forks_that_end_while_others_begin_leave_the_server_alive():
    plain = {name: value for name, value in os.environ.items() if name != shared.VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", MANY_AT_ONCE], env=plain, capture_output=True, text=True, timeout=120, cwd=ROOT
    )
    assert (done.stdout, done.stderr) == ("600 {0}\n", "")

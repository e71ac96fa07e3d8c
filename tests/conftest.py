"""Small federations and runs that tests share."""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import shlex
import shutil
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from raysim.cluster import ray_private
from raysim.cluster.own_ray import LOCAL, QUIET, own_folder, private_token
from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.evaluation import EvaluationSection
from raysim.config.sections.system import SystemSection
from raysim.core import host
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation, write
from raysim.data.fitted import Numeric, Preprocessing
from raysim.engine.job import Job, Outcome
from raysim.engine.messages.plan import ModelSpec, Work
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.storage.encoding import decode, encode
from raysim.strategies.base import Selection, Strategy
from raysim.strategies.selections.sampling import All
from raysim.strategies.shared.personalization import LastSteps
from raysim.training.base import Optimizer
from tests import rays, shared

IN_CI = os.environ.get("CI", "").lower() in ("1", "true")
"""Whether this is continuous integration: the same examples each time, and nothing missing that should be there."""

# How long an example takes says more of the machine than of the code.
settings.register_profile("raysim", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "ci", settings.get_profile("raysim"), max_examples=40, derandomize=True, database=None, print_blob=True
)
settings.load_profile("ci" if IN_CI else "raysim")

# A shell that starts tests in the background has them, and whatever they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

T = TypeVar("T")

TESTS = Path(__file__).parent
"""The folder of all tests."""

MakeFederation = Callable[..., Federation]

TREES = ModelSpec("boosted_trees", None, {"min_rows": 10, "depth": 2, "rate": 0.5}, "default")
MLP = ModelSpec("mlp", None, {"hidden": [6]}, "default")
NORMED = ModelSpec(None, "tests.training.families.Normed", {}, "default")


RAY = contextlib.ExitStack()
"""What ends with the shared Ray."""


def shared_ray(group: str) -> list[pytest.MarkDecorator]:
    """For ``pytestmark`` of modules whose tests need a Ray and leave it as it was.

    Those of one ``group`` are on one test process and share one Ray.
    """
    return [pytest.mark.xdist_group(group), pytest.mark.usefixtures("ray_here")]


@pytest.fixture(scope="module")
def ray_here() -> None:
    """A Ray with four CPUs and two GPUs that nobody has to own: to Ray they are numbers. See :data:`shared_ray`."""
    import ray

    if not ray.is_initialized():
        options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "FATAL"}
        private_token()
        # Commands of other tests say themselves what they need.
        with host.environment_restored("RAY_AUTH_MODE"), host.environment(QUIET | LOCAL, keep=True):
            folder = RAY.enter_context(own_folder())
            with rays.forked():
                patiently(lambda: ray.init(address="local", num_cpus=4, num_gpus=2, _temp_dir=folder, **options))


def standing_ray() -> dict[str, str]:
    """The environment of a command that is to use the Ray of this process, whatever its home."""
    import ray

    return {
        "RAY_ADDRESS": ray.get_runtime_context().gcs_address,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(Path.home() / ".ray" / "auth_token"),
    }


def patiently(start: Callable[[], T]) -> T:
    """What ``start`` gives, which begins a Ray: the half a minute that Ray allows is too short for a busy machine."""
    import ray

    for _ in range(20):
        ray_private.reread_authentication()
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
            ray.shutdown()
    return start()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ends the shared Ray after the last of the tests in a row that need it."""
    if "ray_here" in getattr(item, "fixturenames", ()) and "ray_here" not in getattr(nextitem, "fixturenames", ()):
        import ray

        ray.shutdown()
        RAY.close()


MEMORY = Path("/dev/shm")
"""Where files are kept in memory, on Linux."""

ROOM = 4 * 2**30
"""Bytes that must be free there: the files of two runs of all tests take less."""


def pytest_configure(config: pytest.Config) -> None:
    """Tests write into memory where there is room: MLflow's stores and checkpoints would wait for the disk."""
    if config.option.basetemp is None and MEMORY.is_dir() and os.access(MEMORY, os.W_OK):
        there = os.statvfs(MEMORY)
        if there.f_bavail * there.f_frsize >= ROOM and not there.f_flag & getattr(os, "ST_NOEXEC", 0):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if config.getoption("dist", "no") != "no":
        shared.folder()  # of the processes that this one will start too


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores, as some wait for Ray, servers and browsers; each takes a gigabyte of memory."""
    return min((os.cpu_count() or 1) + 1, 5)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """Processes that run tests are forks: see :mod:`tests.worker`."""
    from tests import worker

    for spec in specs:
        if spec.popen and not spec.python:
            spec.python = shlex.join([sys.executable, *worker.START])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadgroup``, the order of :mod:`tests.scheduling`."""
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.scheduling import ByFile

    config.option.loadscopereorder = False
    return ByFile(config, log)


def import_share(config: pytest.Config) -> None:
    """Where several processes are about to collect all tests, import a share of their modules.

    pytest rewrites each module that is imported for the first time, for seconds in all, and keeps the result. So each
    process rewrites other modules, and finds the rest done.
    """
    given: Mapping[str, Any] = getattr(config, "workerinput", {})
    if not given or [Path(each).name for each in config.args] != [TESTS.name]:
        return
    modules = sorted(TESTS.rglob("test_*.py"))[int(given["workerid"].removeprefix("gw")) :: given["workercount"]]
    for path in modules:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting tells of it
            importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(report: pytest.TestReport) -> Iterator[None]:
    """Leaves out a passed test's keywords, which are most of what a process would say of it."""
    data = yield
    if isinstance(report, pytest.TestReport) and report.passed:
        data["keywords"] = {}
    return data


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collects without looking for garbage, nor later among all modules and tests that are here by then.

    Later garbage is looked for more seldom than usual, which takes a twelfth of the time of all tests.
    """
    gc.disable()
    try:
        import_share(session.config)
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(100_000, 20, 50)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # in a process of several; one alone keeps the order of the files
        from tests.scheduling import turn

        items.sort(key=turn)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Compute as raysim does: with more threads sums come out in another order."""
    with host.threads(1):
        yield


@pytest.fixture(autouse=True)
def no_commands_process() -> Iterator[None]:
    """A test may call the command line, which takes this process for its own; the next one is a guest in it again."""
    yield
    host._own = False


class Messages(logging.Handler):
    """Collects the messages that are logged; pytest's own collection is off, as it attaches to every logger."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Messages of warnings and errors that are logged while a test runs."""
    handler = Messages(logging.WARNING)
    logging.getLogger().addHandler(handler)
    yield handler.messages
    logging.getLogger().removeHandler(handler)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real open data, named by RAYSIM_DATA.

    Without it (``none`` says so aloud) tests that need it are skipped; in continuous integration they fail.
    """
    folder = os.environ.get("RAYSIM_DATA", "")
    if folder in ("", "none"):
        if IN_CI and not folder:
            pytest.fail("RAYSIM_DATA does not name the folder of real data; RAYSIM_DATA=none goes without")
        pytest.skip("RAYSIM_DATA does not name a folder of real data")
    if not Path(folder).is_dir():
        pytest.fail(f"RAYSIM_DATA: there is no folder '{folder}'; RAYSIM_DATA=none goes without")
    return Path(folder)


def empty_store(folder: Path) -> Path:
    """``folder``, with an MLflow store in which nothing is recorded yet, where there is none.

    It is a copy of one that MLflow has made, which takes it seconds.
    """
    if (folder / "mlflow.db").exists():
        return folder
    with shared.locked("mlflow.db") as made:
        if not made.exists():
            from mlflow.tracking import MlflowClient

            MlflowClient(f"sqlite:///{made}").search_experiments()
            with sqlite3.connect(made) as store:
                store.execute("pragma wal_checkpoint(truncate)")
            store.close()
        shutil.copy(made, folder / "mlflow.db")
    return folder


@pytest.fixture
def federate(tmp_path: Path) -> MakeFederation:
    """A function that stores a federation drawn from a seed, with given rows per hospital and part."""
    count = 0

    def make(
        train: Sequence[int],
        test: Sequence[int] | None = None,
        *,
        validation: Sequence[int] | None = None,
        features: int = 3,
        classes: int = 2,
        seed: int = 0,
    ) -> Federation:
        nonlocal count
        count += 1
        folder = tmp_path / f"federation-{count}"
        folder.mkdir()
        tested = [5] * len(train) if test is None else list(test)
        held = [0] * len(train) if validation is None else list(validation)
        rng = np.random.default_rng(seed)
        n = sum(train) + sum(held) + sum(tested)
        X = rng.normal(size=(n, features)).astype(np.float32)
        y = (X @ rng.normal(size=(features, classes)) + rng.normal(size=(n, classes))).argmax(axis=1)
        stops = np.cumsum(list(zip(train, held, tested, strict=True)))
        bounds = np.concatenate([[0], stops])[np.arange(len(train))[:, None] * 3 + np.arange(4)]
        return store(folder, X, y, bounds, classes)

    return make


def store(folder: Path, X: Any, y: Any, bounds: Any, classes: int = 2) -> Federation:
    """Store arrays as a federation whose hospitals are called h0, h1, ..."""
    n, features = X.shape
    write(
        folder,
        X=np.asarray(X, dtype=np.float32),
        y=np.asarray(y, dtype=np.int64 if classes else np.float64),
        observed=np.ones((n, features), dtype=np.bool_),
        bounds=np.asarray(bounds, dtype=np.int64),
        patients={},
        meta={
            "hospitals": [f"h{i}" for i in range(len(bounds))],
            "features": [f"x{j}" for j in range(features)],
            "classes": [str(c) for c in range(classes)],
            "attributes": {},
            "notes": [],
            "fingerprint": "test",
            "preprocessing_scalars": 0,
        },
        preprocessing=Preprocessing(
            "none",
            tuple(Numeric(f"x{j}", limits=(-3.0, 3.0)) for j in range(features)),
            classes=tuple(str(c) for c in range(classes)),
        ),
    )
    return Federation.open(folder)


def with_patients(federation: Federation) -> Federation:
    """The federation with a sex for each patient, which some strategies are about."""
    sex = np.where(np.random.default_rng(3).random(len(federation.y)) < 0.5, "Male", "Female")
    np.savez(federation.folder / "patients.npz", sex=sex)
    return Federation.open(federation.folder)


def fitting(job: Job, federation: Federation) -> Job:
    """The job, with a model that has layers below the last, or batch norm, where its own does not fit its strategy.

    Raises ``ConfigError`` where none fits.
    """
    for model in (job.work.model, MLP, TREES):
        fitted = replace(job, work=replace(job.work, model=model))
        with contextlib.suppress(ConfigError):
            check_job(fitted, federation)
            return fitted
    fitted = replace(job, work=replace(job.work, model=NORMED))
    check_job(fitted, federation)
    return fitted


def job_of(
    federation: Federation,
    strategy: Strategy,
    *,
    selection: Selection | None = None,
    rounds: int = 3,
    epochs: int = 1,
    batch_size: int = 4,
    learning_rate: float = 0.1,
    optimizer: str = "sgd",
    precision: str = "float64",
    seed: int = 1,
    model: ModelSpec | None = None,
    system: SystemSection | None = None,
    last: LastSteps | None = None,
    tests_groups: bool = False,
    **evaluation: Any,
) -> Job:
    """A job on ``federation``; ``evaluation`` are keys of that section."""
    return Job(
        work=Work(
            federation=str(federation.folder),
            model=model or ModelSpec("logistic_regression", None, {}, "default"),
            optimizer=Optimizer(optimizer, learning_rate, batch_size),
            epochs=epochs,
            seed=seed,
            precision=precision,
        ),
        strategy=strategy,
        selection=selection or All(),
        rounds=rounds,
        evaluation=EvaluationSection(**evaluation),
        system=system,
        last=last or LastSteps(),
        tests_groups=tests_groups,
    )


def run_strategy(federation: Federation, strategy: Strategy, *, actors: int = 1, **settings: Any) -> Outcome:
    """Run a strategy in this process, with the ``settings`` of :func:`job_of`, and return its outcome."""
    return run(federation, job_of(federation, strategy, **settings), actors)


def run(federation: Federation, job: Job, actors: int) -> Outcome:
    """Run a job in this process, as with so many actors, and return its outcome."""
    pool = LocalPool(Placement(balance(federation.totals, actors), 1, 0), "cpu")
    *_, outcome = JobRun(pool, job).events()
    assert isinstance(outcome, Outcome)
    return outcome


def run_and_resumed(federation: Federation, job: Job) -> tuple[Outcome, Outcome]:
    """Return the outcomes of a run in this process, as with two actors: undisturbed, and resumed after round 2."""
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    *events, whole = JobRun(pool, job).events(2)
    (since,) = [event for event in events if isinstance(event, RunState) and event.round == 2]
    read, _ = decode(encode(since, "print", job.strategy), job.strategy)
    *_, resumed = JobRun(pool, job, read).events()
    assert isinstance(whole, Outcome)
    assert isinstance(resumed, Outcome)
    return whole, resumed

"""Records runs in MLflow. Only the driver writes; hospital actors never import MLflow."""

from __future__ import annotations

import hashlib
import json
import math
import posixpath
import re
import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from raysim.core.atomic import replacing
from raysim.core.words import flatten
from raysim.engine.job import Round
from raysim.tracking.charts import TABLE, VIEW_TAG, charts_page, table
from raysim.tracking.names import metric_name, named
from raysim.tracking.sqlite_metrics import SqliteMetrics
from raysim.tracking.stores import SQLITE, opening, sqlite_path

RUN_TAG = "raysim.run"
"""The tag with the id by which raysim finds a run in MLflow."""

NOTE_TAG = "mlflow.note.content"
"""The tag that MLflow displays as a run's description, in Markdown."""

DATA_TAGS = ("source", "data")
"""The tags with the name of a run's data source, and with the fingerprint of its data."""

NAME_LENGTH = 250

LOGGERS = ("mlflow", "alembic")

Status = Literal["FINISHED", "FAILED", "KILLED"]
"""How a run has ended: successfully, with an error, or stopped by someone."""

BATCH = 900


class _Answering:
    """An MLflow client that calls ``answered`` whenever one of its calls has returned."""

    def __init__(self, client: Any, answered: Callable[[], None]) -> None:
        self._client, self._answered = client, answered

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            result = method(*arguments, **keywords)
            self._answered()
            return result

        return call


class Tracker:
    """Writes runs to an experiment of the MLflow store at ``uri``.

    ``answered`` is called after each call of MLflow, so that the caller can distinguish a slow store from an
    unreachable one.
    """

    def __init__(self, uri: str, experiment: str, answered: Callable[[], None] = lambda: None) -> None:
        from mlflow.tracking import MlflowClient

        if uri.startswith(SQLITE):
            # MLflow caches a store per address: a relative address would always refer to the first working directory.
            uri = f"{SQLITE}{sqlite_path(uri).absolute()}"
        self._answered = answered
        self._metrics = SqliteMetrics(sqlite_path(uri)) if uri.startswith(SQLITE) else None
        self._held: dict[str, set[tuple[str, int]]] = {}
        self._closed: set[str] = set()
        self._places: dict[str, str] = {}  # where the store keeps each run's files
        with opening(uri):
            self._client = _Answering(MlflowClient(tracking_uri=uri), answered)
            existing = self._client.get_experiment_by_name(experiment)
            self._experiment = existing.experiment_id if existing else self._create(uri, experiment)
            self._prepare({} if existing is None else existing.tags)

    @property
    def experiment(self) -> str:
        """The id of the MLflow experiment."""
        return self._experiment

    def start(self, name: str, params: Mapping[str, Any], tags: Mapping[str, str], parent: str | None = None) -> str:
        """Create a run in MLflow, nested in the run with the id ``parent`` if given, and return its id.

        ``params`` may be nested; they are recorded under dotted keys.
        """
        labels = dict(tags) | ({"mlflow.parentRunId": parent} if parent else {})
        run = self._client.create_run(self._experiment, run_name=name, tags=labels)
        run_id: str = run.info.run_id
        self._places[run_id] = run.info.artifact_uri
        self._log_params(run_id, params)
        name_of_data, digest = (tags.get(tag) for tag in DATA_TAGS)
        if name_of_data and digest:
            self.dataset(run_id, name_of_data, digest)
        return run_id

    def go_on(self, name: str, params: Mapping[str, Any], tags: Mapping[str, str], parent: str | None = None) -> str:
        """Reopen the run whose tag ``RUN_TAG`` has the same value as in ``tags``, or :meth:`start` a run. Return the
        run's id.

        A run that has ended successfully stays unchanged.
        """
        run_id = self.run_of(tags[RUN_TAG])
        if run_id is None:
            return self.start(name, params, tags, parent)
        run = self._client.get_run(run_id)
        if run.info.status == "FINISHED":
            self._closed.add(run_id)
            return run_id
        self._held[run_id] = {
            (key, point.step) for key in run.data.metrics for point in self._client.get_metric_history(run_id, key)
        }
        self._log_params(run_id, params, run.data.params)
        if "error" in run.data.tags:
            self._client.delete_tag(run_id, "error")
        self.reopen(run_id)
        return run_id

    def run_of(self, tag: str) -> str | None:
        """Return the id of the run whose tag ``RUN_TAG`` has the value ``tag``; None if there is none."""
        runs = self._client.search_runs([self._experiment], f"tags.`{RUN_TAG}` = '{tag}'", max_results=1)
        return str(runs[0].info.run_id) if runs else None

    def rounds(self, run_id: str, rounds: Sequence[Round]) -> None:
        """Record the metrics of ``rounds``, in as few calls as MLflow allows."""
        self._log(run_id, _of_rounds(rounds))

    def finish(
        self,
        run_id: str,
        summary: Mapping[str, float],
        files: Mapping[str, Path],
        status: Status,
        error: str | None = None,
    ) -> None:
        """Record the end of a run: its metrics and files (:meth:`complete`), and its ``status`` (:meth:`end`)."""
        self.complete(run_id, summary, files, error)
        self.end(run_id, status)

    def complete(
        self,
        run_id: str,
        summary: Mapping[str, float],
        files: Mapping[str, Path],
        error: str | None = None,
        note: str = "",
        rounds: Sequence[Round] = (),
        title: str = "",
        tags: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Record the last data of a run: ``rounds``, final metrics, ``note``, ``tags``, ``files`` and any ``error``.

        The run is renamed to ``title``, unless this is empty.
        """
        from mlflow.entities import Metric

        if run_id in self._closed:
            return
        now = int(time.time() * 1000)
        figures = [Metric(k, v, now, 0) for k, v in named(summary).items() if math.isfinite(v)]
        self._log(run_id, [*_of_rounds(rounds), *figures], ({NOTE_TAG: note} if note else {}) | dict(tags))
        if title:
            self.rename(run_id, title)
        self.keep(run_id, files)
        if error is not None:
            self._client.set_tag(run_id, "error", error[:5000])

    def metrics(self, run_id: str, values: Sequence[tuple[str, float, int]]) -> None:
        """Record metrics, given as ``(name, value, step)``; NaN and infinite values are left out."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        finite = [(metric_name(name), value, step) for name, value, step in values if math.isfinite(value)]
        self._log(run_id, [Metric(name, value, now, step) for name, value, step in finite])

    def tag(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags of a run in one call."""
        self._client.log_batch(run_id, tags=_tags(tags))

    def dataset(self, run_id: str, name: str, digest: str) -> None:
        """Record the data that a run was trained on (MLflow's "Dataset"); ``digest`` is cut to 36 characters."""
        from mlflow.entities import Dataset, DatasetInput

        data = Dataset(name[:500], digest[:36], "raysim", json.dumps({"source": name}))
        self._client.log_inputs(run_id, datasets=[DatasetInput(data)])

    def keep(self, run_id: str, files: Mapping[str, Path]) -> None:
        """Store files with a run; ``files`` maps names, which may contain folders, to paths."""
        place = self._places.get(run_id, "")
        folder = Path(url2pathname(urlsplit(place).path)) if place.startswith("file:///") else None
        for name, path in files.items():
            if folder is None:
                self._client.log_artifact(run_id, str(path), artifact_path=posixpath.dirname(name) or None)
                continue
            # A copy: MLflow spends five milliseconds more on each file.
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with replacing(folder / name) as temporary:
                shutil.copyfile(path, temporary)
            self._answered()

    def end(self, run_id: str, status: Status) -> None:
        """Set a run's final status, unless it had ended successfully before it was resumed."""
        if run_id not in self._closed:
            self._client.set_terminated(run_id, status)

    def rename(self, run_id: str, name: str) -> None:
        """Rename a run."""
        self._client.update_run(run_id, name=name)

    def reopen(self, run_id: str) -> None:
        """Mark an ended run as running again."""
        self._client.update_run(run_id, status="RUNNING")

    def side_by_side(self, runs: Sequence[str]) -> str:
        """Return the address, within MLflow's site, of a page that plots parameters of ``runs`` against metrics."""
        return (
            f"#/compare-runs?runs={quote(json.dumps(list(runs)))}&experiments={quote(json.dumps([self._experiment]))}"
        )

    def show(self, run_id: str, view: str) -> str:
        """Store a view of the runs nested in a run, and return the address, within MLflow's site, that opens it."""
        self._client.set_experiment_tag(self._experiment, f"{VIEW_TAG}{run_id}", view)
        return charts_page(self._experiment, run_id)

    def nested(self, run_id: str, tags: Mapping[str, str] = MappingProxyType({})) -> list[str]:
        """Return the ids of the runs that are nested in a run and have all ``tags``."""
        asked = {"mlflow.parentRunId": run_id} | dict(tags)
        return self._search(" and ".join(f"tags.`{name}` = '{value}'" for name, value in asked.items()))

    def discard(self, run_id: str) -> None:
        """Delete a run and the runs nested in it."""
        for nested in self.nested(run_id):
            self.discard(nested)
        self._client.delete_run(run_id)

    def _search(self, filter_string: str) -> list[str]:
        runs: list[str] = []
        token: str | None = None
        while True:
            page = self._client.search_runs([self._experiment], filter_string, max_results=1000, page_token=token)
            runs += [run.info.run_id for run in page]
            token = page.token
            if not token:
                return runs

    def _log_params(self, run_id: str, params: Mapping[str, Any], recorded: Collection[str] = ()) -> None:
        from mlflow.entities import Param

        named = ((parameter_name(key), value) for key, value in flatten(params))
        flat = [Param(name, value[:6000]) for name, value in named if name not in recorded]
        for first in range(0, len(flat), 100):
            self._client.log_batch(run_id, params=flat[first : first + 100])

    def _log(self, run_id: str, values: Sequence[Any], tags: Mapping[str, str] = MappingProxyType({})) -> None:
        if run_id in self._closed:
            return
        held = self._held.get(run_id, ())
        values = [value for value in values if (value.key, value.step) not in held]
        last = _tags(tags)
        if self._metrics is not None and values and self._metrics.write(run_id, values):
            self._answered()
            values = []
        for first in range(0, max(len(values), len(last)), BATCH):
            self._client.log_batch(run_id, metrics=values[first : first + BATCH], tags=last)
            last = []

    def _prepare(self, tags: Mapping[str, str]) -> None:
        if tags.get(f"{VIEW_TAG}{TABLE}") != (view := table()):
            self._client.set_experiment_tag(self._experiment, f"{VIEW_TAG}{TABLE}", view)

    def _create(self, uri: str, experiment: str) -> str:
        # Store artifacts next to the database, not in the working directory.
        location = None
        if uri.startswith(SQLITE):
            location = (sqlite_path(uri).absolute().parent / "mlartifacts" / experiment).as_uri()
        created: str = self._client.create_experiment(experiment, artifact_location=location)
        return created


def _of_rounds(rounds: Sequence[Round]) -> list[Any]:
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    values = [
        Metric(f"{model}/{name}", value, now, row.round)
        for row in rounds
        for model, metrics in row.metrics.items()
        for name, value in metrics.items()
        if math.isfinite(value)
    ]
    values += [
        Metric(metric_name(name), float(getattr(row, name)), now, row.round)
        for row in rounds
        for name in ("seconds", "cohort_size", "bytes_down", "bytes_up")
    ]
    values += [
        Metric(metric_name(name), float(getattr(row, name)), now, row.round)
        for row in rounds
        for name in ("virtual_seconds", "asked", "staleness")
        if row.virtual_seconds is not None and math.isfinite(row.virtual_seconds)
    ]
    losses = [
        (name, loss, row.round)
        for row in rounds
        for name in ("training_loss", "validation_loss")
        if (loss := getattr(row, name)) is not None
    ]
    return values + [Metric(metric_name(name), loss, now, round) for name, loss, round in losses if math.isfinite(loss)]


def _tags(tags: Mapping[str, str]) -> list[Any]:
    from mlflow.entities import RunTag

    return [RunTag(key, value) for key, value in tags.items()]


def parameter_name(key: str) -> str:
    """Convert ``key`` to a valid name of a parameter in MLflow.

    Impossible characters are replaced, and a long key is shortened. A digest is appended to a changed key, so that
    names remain different.
    """
    if len(key) <= NAME_LENGTH and re.fullmatch(r"[/\w.:\- ]*", key) and posixpath.normpath(key) == key:
        return key
    digest = hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
    plain = re.sub(r"[^\w.:\- ]", "_", key)
    return f"{plain[: NAME_LENGTH - len(digest) - 1]} {digest}"

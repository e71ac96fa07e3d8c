"""Cases of sweeps: changed files of one that has ended, or was stopped before its last trial.

Most are run without Ray, as far as the first trial that is left: then all that ``resume`` reads has been read. The
sweep goes on there as after a Ctrl-C, with its tables, its choice and, where all trials are there, its test.
"""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from hypothesis import strategies as st

from tests.fuzz.cases import TREE, Case, revalued, spoilt
from tests.fuzz.command import SECONDS, answer

JOURNAL = "out/journal.jsonl"
READ = (JOURNAL, "out/sweep.yaml", "out/summary.json", "out/manifest.json", "out/mlflow.json")
"""What ``resume`` reads of a sweep."""


def ended(folder: Path) -> None:
    """A sweep of three trials in ``folder / "out"``, which has ended and was recorded."""
    tree = copy.deepcopy(TREE)
    tree["data"] |= {"rows": 200, "split": {"train": 0.6, "validation": 0.2, "test": 0.2}}
    tree |= {"strategy": {"name": "chip", "clusters": 2}, "tracking": {"uri": f"sqlite:///{folder}/mlflow.db"}}
    tree["sweep"] = {"trials": 3, "searcher": "random", "space": {"strategy.lam": {"loguniform": [0.01, 1]}}}
    tree["sweep"]["objectives"] = {"auroc": "max", "gini": "min"}  # one picture, where the default makes ten
    (folder / "c.yaml").write_text(yaml.safe_dump(tree))
    said = answer(["sweep", "c.yaml", "--out", "out"], folder, seconds=300)
    assert said.code == 0, said
    shutil.copytree(folder / "out" / "recommended", folder / "whole" / "recommended")


@contextlib.contextmanager
def up_to_trials() -> Iterator[None]:
    """Sweeps that go on without Ray, and are interrupted before their next trial."""
    from raysim.experiment.session import open_session

    def here(*arguments: Any, **options: Any) -> contextlib.AbstractContextManager[Any]:
        return open_session(*arguments, **options | {"in_process": True})

    with (
        mock.patch("raysim.tune.running.places.open_session", here),
        mock.patch("raysim.tune.running.driver.drive"),
    ):
        yield


def resumptions(template: Path, *, trials: bool = False) -> st.SearchStrategy[Case]:
    """Changes of the files that ``resume`` reads of the sweep in ``template / "out"``; ``trials``: with those left."""
    contents = {name: (template / name).read_bytes() for name in READ if (template / name).exists()}

    @st.composite
    def changed(draw: st.DrawFn) -> Case:
        now, removed = dict(contents), set[str]()
        if draw(st.integers(0, 3)) == 0:  # stopped before its last trial
            now[JOURNAL] = b"".join(now[JOURNAL].splitlines(keepends=True)[:-1])
            removed.add("out/summary.json")
        name = draw(st.sampled_from([JOURNAL, JOURNAL, JOURNAL, *sorted(set(now) - removed)]))
        how = draw(st.sampled_from(["bytes", "values", "values", "values", "lines", "removed", "other"]))
        if how == "removed":
            removed.add(name)
        elif how == "other":
            now[name] = contents[draw(st.sampled_from(sorted(contents)))]
        elif how == "lines" and name == JOURNAL:
            lines = now[name].splitlines(keepends=True)
            now[name] = b"".join(draw(st.lists(st.sampled_from(lines), max_size=6)))
        elif how == "values" and name == JOURNAL:
            lines = now[name].splitlines()
            at = draw(st.integers(0, len(lines) - 1))
            lines[at] = json.dumps(revalued(draw, json.loads(lines[at]))).encode()
            now[name] = b"\n".join(lines) + b"\n"
        elif how == "values" and name.endswith(".json"):
            now[name] = json.dumps(revalued(draw, json.loads(now[name]))).encode()
        elif how == "values":
            now[name] = yaml.safe_dump(revalued(draw, yaml.safe_load(now[name]))).encode()
        else:
            now[name] = spoilt(draw, now[name])
        files = {name: content for name, content in now.items() if name not in removed and content != contents[name]}
        # On Ray whoever waits for it says how long: a signal would break Ray's own calls.
        ends, seconds = ((0, 3), 0.0) if trials else ((0, 3, 130), SECONDS)
        return Case(("resume", "out"), files, tuple(sorted(removed)), template, ends=ends, seconds=seconds)

    return changed()

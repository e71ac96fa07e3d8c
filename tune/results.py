"""The files of a sweep's folder. ``raysim resume`` can recreate all files except ``sweep.yaml``, the journal, the
manifest and ``lost.json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from raysim.config.schema import Config
from raysim.core import bounded
from raysim.core.atomic import plain
from raysim.data.federation import Federation
from raysim.storage.manifest import Manifest
from raysim.tune.answer import tested_figures
from raysim.tune.choice import Choice, reason
from raysim.tune.journal import Finished
from raysim.tune.plan import SweepPlan


def write_sweep(out: Manifest, plan: SweepPlan, config: Config) -> None:
    """Write ``sweep.yaml``, which ``raysim resume`` reads: the sweep file with all defaults filled in."""
    tree = {key: value for key, value in config.frozen().items() if key not in ("strategies", "models", "reference")}
    tree["sweep"] = plan.sweep.frozen()
    out.text("sweep.yaml", yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))


def trials_table(finished: Mapping[int, Finished], choice: Choice) -> pd.DataFrame:
    """Return one row per trial: its status, its hyper-parameters, and each metric's mean and standard deviation over
    seeds.

    Columns of standard deviations end in ``_std``. The column ``pareto`` is empty for trials that did not run to their
    end, and ``crowding`` is empty for all trials outside the Pareto set. Failed trials have no metrics.
    """
    place = {trial.number: i for i, trial in enumerate(choice.trials)}
    keys = list(dict.fromkeys(key for trial in finished.values() for key in trial.params))
    rows = []
    for number, trial in sorted(finished.items()):
        row: dict[str, Any] = {"trial": number, "status": trial.status, "error": trial.error}
        row |= {key: _cell(trial.params.get(key)) for key in keys}
        for name, (mean, spread) in trial.figures.items():
            row |= {name: mean, f"{name}_std": spread}
        if (i := place.get(number)) is not None:
            row["pareto"] = bool(choice.front[i])
            row["crowding"] = choice.crowding[i]
            row["recommended"] = choice.recommended is trial
        reached = max((row.round for rows in trial.rounds.values() for row in rows), default=0)
        row |= {"rounds": reached, "attempts": trial.attempts, "seconds": trial.seconds}
        rows.append(row)
    return pd.DataFrame(rows)


def write_tables(out: Manifest, finished: Mapping[int, Finished], choice: Choice) -> None:
    """Write ``trials.csv``, and ``pareto.csv`` with the Pareto set, largest crowding distances first."""
    table = trials_table(finished, choice)
    out.csv("trials.csv", table)
    on = table[table["pareto"] == True] if "pareto" in table else table[:0]  # noqa: E712  # empty means no
    if len(on):
        on = on.sort_values("crowding", ascending=False, kind="stable")
    out.csv("pareto.csv", on.drop(columns=["status", "error", "pareto"], errors="ignore"))


def write_page(
    out: Manifest,
    name: str,
    plan: SweepPlan,
    choice: Choice,
    finished: Mapping[int, Finished],
    tested: Mapping[str, tuple[float, float]] | None,
    *,
    counted: bool,
    events: int | None,
    mlflow: str,
    privacy: str,
) -> None:
    """Write the page of the sweep ``name``, ``report.html``, and its charts as SVG files.

    - ``tested``: the recommended trial's metrics on test rows, as means and standard deviations over seeds.
    - ``counted``: whether the page states the number of rows.
    - ``events``: the result of :func:`validation_events`.
    - ``mlflow``: the address of the trials in MLflow, or the command that opens them.
    - ``privacy``: the joint privacy guarantee of all runs; empty if there is none.
    """
    from raysim.tune.page.contents import Setting, sweep_page

    federation = Federation.open(next(iter(plan.folders.values())))
    pages = {seed: f"recommended/seed-{seed}/report.html" for seed in plan.seeds}
    setting = Setting(
        data=federation.fingerprint,
        hospitals=len(federation.hospitals),
        rows=int(federation.totals.sum()) if counted else None,
        seeds=plan.seeds,
        config=(out.folder / "sweep.yaml").read_text(),
        mlflow=mlflow,
        runs={seed: page for seed, page in pages.items() if (out.folder / page).is_file()},
        warning=few_events(events),
        privacy=privacy,
    )
    counts = {state: _count(finished, state) for state in ("completed", "stopped", "failed")}
    counts["total"] = plan.trials()
    page = sweep_page(name, choice, plan.space, setting, tested, counts)
    out.text("report.html", page.html())
    for figure in page.figures():
        out.text(figure.file, figure.standalone())


def write_recommended(out: Manifest, plan: SweepPlan, choice: Choice) -> None:
    """Write ``recommended.yaml``: the configuration of the recommended trial's run on test rows for the first seed,
    with the reasons as comments.

    Nothing is written without a recommended trial.
    """
    if choice.recommended is None:
        return
    comments = "".join(f"# {line}\n" for line in reason(choice))
    tree = plan.frozen(choice.recommended.params, plan.seeds[0])
    out.text("recommended.yaml", comments + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))


FEWEST_EVENTS = 30
"""The number of validation rows of the rarer class below which differences between trials are mostly noise."""


def validation_events(federations: Iterable[Federation]) -> int | None:
    """Return the number of validation rows of the rarer class, for the seed with the fewest; None unless the label has
    two classes."""
    fewest = []
    for federation in federations:
        if len(federation.classes) != 2:
            return None
        inside = [federation.y[federation.rows(h, "validation")] for h in range(len(federation.hospitals))]
        events = sum(int(y.sum()) for y in inside)
        fewest.append(min(events, sum(map(len, inside)) - events))
    return min(fewest, default=None)


def few_events(events: int | None) -> str:
    """Return a warning if ``events``, the number of validation rows of the rarer class, is too small, else an empty
    text."""
    if events is None or events >= FEWEST_EVENTS:
        return ""
    return (
        f"validation rows hold {events} events, fewer than {FEWEST_EVENTS}: which trial looks best is mostly noise; "
        "give data.split.validation a larger share, or take fewer trials"
    )


def summary(
    choice: Choice,
    finished: Mapping[int, Finished],
    total: int,
    tested: Mapping[str, tuple[float, float]] | None,
    events: int | None = None,
) -> dict[str, Any]:
    """Return the content of ``summary.json``.

    ``total`` is the planned number of trials. If ``events``, the result of :func:`validation_events`, is too small,
    there is a ``warning``.
    """
    names = choice.sweep.names
    tree: dict[str, Any] = {
        "trials": total,
        **{status: _count(finished, status) for status in ("completed", "stopped", "failed")},
        "pareto": int(choice.front.sum()),
        "hypervolume": choice.hypervolume,
        "reference": dict(zip(names, choice.reference, strict=True)),
        "validation_events": events,
        "warning": few_events(events) or None,
        "recommended": None,
    }
    if choice.recommended is not None and choice.knee is not None:
        tree["recommended"] = {
            "trial": choice.recommended.number,
            "params": choice.recommended.params,
            "reason": reason(choice),
            "validation": _figures(choice.recommended.figures, names),
            "test": _figures(tested, list(tested)) if tested else None,
            "costs": {
                name: {"gap": cost.gap, "share": cost.share, "best_trial": choice.trials[cost.best].number}
                for name, cost in zip(names, choice.knee.costs, strict=True)
            },
        }
    return dict(plain(tree))


def read_tested(path: Path, choice: Choice) -> dict[str, tuple[float, float]] | None:
    """Read the recommended trial's metrics on test rows from ``summary.json`` at ``path``.

    Return None if the file cannot be read, has no such metrics, or recommends another trial than ``choice``.
    """
    try:
        recommended = bounded.read_json(path)["recommended"]
        if (
            recommended is None
            or choice.recommended is None
            or recommended["trial"] != choice.recommended.number
            or not recommended["test"]
        ):
            return None
        return tested_figures(recommended["test"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # the caller then runs the test again


def _figures(figures: Mapping[str, tuple[float, float]], names: Sequence[str]) -> dict[str, dict[str, float]]:
    return {name: dict(zip(("mean", "std"), figures[name], strict=True)) for name in names}


def _count(finished: Mapping[int, Finished], status: str) -> int:
    return sum(trial.status == status for trial in finished.values())


def _cell(value: Any) -> Any:
    return (
        value
        if value is None or isinstance(value, str | int | float)
        else yaml.safe_dump(value, default_flow_style=True).strip()
    )

"""The findings of a sweep as text for the page and the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from raysim.core.words import capitalised, counted
from raysim.report.terminal.block import Block, Warning
from raysim.tune.choice import Choice, at_the_edge, headline, title

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LARGE = 0.5
"""The summary warns if an objective of the recommended trial is worse on test than on validation rows by more than this
share of the objective's range over completed trials."""

Tested = Mapping[str, tuple[float, float]]
"""The mean and the standard deviation over seeds of each metric on test rows."""


def falls(choice: Choice, tested: Tested | None) -> list[str]:
    """Return a warning for each objective in which the recommended trial is far worse on test than on validation rows
    (:data:`LARGE`).
    """
    if choice.recommended is None or not tested:
        return []
    cautions = []
    for j, name in enumerate(choice.sweep.names):
        before, after = choice.recommended.figures[name][0], tested.get(name, (math.nan, math.nan))[0]
        fall = before - after if choice.sweep.larger[j] else after - before
        finite = choice.values[:, j][[math.isfinite(value) for value in choice.values[:, j]]]
        span = float(finite.max() - finite.min()) if len(finite) else 0.0
        if span > 0 and fall > LARGE * span:
            words = title(choice, j)
            verb = "falls" if choice.sweep.larger[j] else "rises"
            cautions.append(
                f"{capitalised(words)} {verb} from {before:.3f} on validation rows to {after:.3f} on test "
                f"rows, while trials differ by at most {span:.3f}: the choice is partly luck."
            )
    return cautions


def block(
    choice: Choice, summary: Mapping[str, Any], name: str, seconds: str, folder: str, report: str, *, ended: bool
) -> Block:
    """Build the summary that the terminal shows at the end of the sweep ``name``.

    ``summary`` is the content of ``summary.json``, ``seconds`` the duration as text, and ``folder`` and ``report`` are
    paths. ``ended`` says whether all trials have ended.
    """
    tested = None if choice.recommended is None else tested_figures(summary["recommended"]["test"])
    sentences = [*([summary["warning"]] if summary["warning"] else []), *at_the_edge(choice), *falls(choice, tested)]
    warnings = [Warning(capitalised(text).rstrip(".") + ".", False) for text in sentences]
    done = [f"{summary[state]} {state}" for state in ("completed", "stopped", "failed") if summary[state]]
    if summary["failed"]:
        warnings.append(Warning(f"{counted(summary['failed'], 'trial')} failed: trials.csv has each error.", False))
    taken = {} if choice.recommended is None else choice.recommended.params
    notes = [", ".join(f"{key} {_short(value)}" for key, value in taken.items())] if taken else []
    if "privacy" in summary:
        notes.append(f"Privacy: {summary['privacy']['statement']}")
    seeds = len(choice.trials[0].finals) if choice.trials else 0
    return Block(
        what=f"{name}: {counted(summary['trials'], 'trial')} x {counted(seeds, 'seed')}, {', '.join(done)}, {seconds}",
        headline=headline(choice),
        warnings=warnings,
        rows=_rows(choice, tested),
        notes=notes,
        report=report,
        next=_next(choice, folder, ended, bool(summary["failed"])),
    )


def _next(choice: Choice, folder: str, ended: bool, failed: bool) -> str:
    if ended and choice.recommended is not None:
        return f"raysim run {folder}/recommended.yaml"
    if ended:
        return f"raysim resume {folder} --failed" if failed else ""
    return f"raysim resume {folder}"


def details(choice: Choice, summary: Mapping[str, Any], console: Console) -> None:
    """Print the hypervolume, the reasons for the recommendation, and the recommended trial's metrics on test rows."""
    from raysim.report.terminal.progress import say
    from raysim.tune.choice import reason

    stated = ", ".join(f"{n} {v:g}" for n, v in zip(choice.sweep.names, choice.reference, strict=True))
    on = int(choice.front.sum())
    say(console, f"{counted(on, 'trial')} not dominated, hypervolume {choice.hypervolume:.4g} measured from ({stated})")
    for line in reason(choice):
        say(console, line)
    if choice.recommended is not None and (tested := tested_figures(summary["recommended"]["test"])):
        console.print(table(choice, tested))


def table(choice: Choice, tested: Tested) -> Table:
    """Build a table of the recommended trial: its objectives on validation and test rows, and its hyper-parameters."""
    from rich.markup import escape
    from rich.table import Table

    assert choice.recommended is not None
    built = Table()
    built.add_column(f"trial {choice.recommended.number}")
    built.add_column("validation rows", justify="right")
    built.add_column("test rows", justify="right")
    for name, direction in choice.sweep.objectives.items():
        built.add_row(f"{name} ({direction})", _number(*choice.recommended.figures[name]), _number(*tested[name]))
    built.add_section()
    for key, value in choice.recommended.params.items():
        built.add_row(escape(key), escape(_short(value)))
    return built


def _rows(choice: Choice, tested: Tested | None) -> list[list[str]]:
    if choice.recommended is None or choice.knee is None:
        return []
    rows = []
    for j, (name, cost) in enumerate(zip(choice.sweep.names, choice.knee.costs, strict=True)):
        on_test = "" if not tested or name not in tested else f"test {tested[name][0]:.3f}"
        best = choice.trials[cost.best]
        best_text = "best of all" if cost.gap == 0 else f"trial {best.number}: {best.figures[name][0]:.3f}"
        rows.append([title(choice, j), f"validation {choice.recommended.figures[name][0]:.3f}", on_test, best_text])
    return rows


def tested_figures(tree: Mapping[str, Mapping[str, float | None]] | None) -> dict[str, tuple[float, float]] | None:
    """Return the mean and standard deviation over seeds of each metric on test rows, from the part ``tree`` of
    ``summary.json``; None if ``tree`` is empty.
    """
    if not tree:
        return None
    return {name: (_float(each["mean"]), _float(each["std"])) for name, each in tree.items()}


def _float(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _number(value: float, spread: float) -> str:
    if not math.isfinite(value):
        return "undefined"
    return f"{value:.4f}" + (f" ±{spread:.4f}" if math.isfinite(spread) else "")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""The findings of a privacy audit in words, for its page and the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from raysim.report.judgement.facts.wording import figure
from raysim.report.terminal.block import Block, Warning
from raysim.statistics.differences.paired import Limits

TITLES = {"loss_threshold": "Loss threshold", "lira": "LiRA"}
"""The display names of membership-inference attacks."""

STRONGER = "A stronger attack may find more."


def headline(summary: Mapping[str, Any]) -> str:
    """Summarise whether a guarantee was violated, a row reconstructed, or training rows recognised."""
    inversion, bound = summary.get("inversion"), summary.get("one_run")
    parts = [canaries(bound)] if bound is not None and _refuted(bound) else []
    parts += [read_out(inversion)] if inversion is not None and _bare(inversion) else []
    if (sums := summary.get("sums")) is not None and (sums["read"] or not sums["protected"]):
        parts.append(from_sums(sums))
    return " ".join(filter(None, [*parts, members(summary)]))


def read_out(inversion: Mapping[str, Any]) -> str:
    """Return a sentence on how well an attack reconstructed a patient's row from a hospital's update."""
    if inversion["deviation"] is None:
        return "No row was read from the update of a hospital that trains on one row: no unit's intercept has changed."
    exactly = "exactly" if inversion["exact"] else f"to within {inversion['deviation']:.1g}"
    text = (
        f"A patient's row, {inversion['features']} features and the label, was read {exactly} from the update of a "
        "hospital that trains on this row alone"
    )
    if inversion["protected"]:
        return f"{text}, before the noise or secure aggregation that this run adds."
    return f"{text}."


def from_sums(sums: Mapping[str, Any]) -> str:
    """Return a sentence on patient rows that an attack reconstructed from sums sent for a regression."""
    if not sums["read"]:
        return (
            f"No row was read from the sums of a hospital: each has more rows ({sums['fewest_rows']} or more) than the "
            f"{sums['columns']} columns."
        )
    text = f"{sums['rows']:,} rows of {sums['read']} of {sums['hospitals']} hospitals can be read from their sums"
    if sums["protected"]:
        return f"{text}, which this run hides."
    return f"{text}."


def members(summary: Mapping[str, Any]) -> str:
    """Return a sentence on the most successful membership-inference attack; empty if no attack was run."""
    found = {title: summary[attack] for attack, title in TITLES.items() if attack in summary}
    defined = {title: each for title, each in found.items() if each["auroc"] is not None}
    if not found:
        return ""
    if not defined:
        return "Whether training rows are recognised could not be measured."
    title, best = max(defined.items(), key=lambda item: float(item[1]["auroc"]))
    text = f"{title}'s AUROC {auroc(best)}"
    if best["auroc_low"] is not None and best["auroc_low"] > 0.5:
        return f"Training rows are recognised better than by chance: {text}."
    return f"No attack recognises training rows better than chance: {text}."


def canaries(bound: Mapping[str, Any]) -> str:
    """Return sentences on the canaries (planted records), and on the lower bound of epsilon that they give."""
    least, claimed = bound["epsilon_at_least"], bound["epsilon_claimed"]
    guessed = f"{bound['canaries']} planted records: {bound['right']} of {bound['guesses']} guesses right"
    if _refuted(bound):
        return (
            f"{guessed}, so that epsilon is at least {least:.2f} (95 %). The run claims {claimed:.3g}: its guarantee "
            "is broken. Do not publish its models."
        )
    better = f"better than chance: epsilon is at least {least:.2f} (95 %)" if least > 0 else "no better than chance"
    if claimed is None or not math.isfinite(claimed):
        return f"{guessed}, {better}. No privacy guarantee is claimed against {_auditor(bound)}."
    return (
        f"{guessed}, {better}. That does not refute the epsilon of {claimed:.3g} that the run claims; this many "
        f"records can demonstrate at most {bound['ceiling']:.2f}."
    )


def block(summary: Mapping[str, Any], name: str, seconds: str, report: str, next: str) -> Block:
    """Return the printed block on an audit of the run ``name``; ``summary`` is ``audit.json``."""
    inversion, bound = summary.get("inversion"), summary.get("one_run")
    warnings = []
    if inversion is not None and _bare(inversion):
        warnings.append(
            Warning("Updates give rows away: switch on secure or privacy before any update leaves a hospital.", True)
        )
    if (sums := summary.get("sums")) is not None and sums["read"] and not sums["protected"]:
        warnings.append(Warning("Sums give rows away: write sums: secure.", True))
    leaking = [title for attack, title in TITLES.items() if summary.get(attack, {}).get("smaller_leak_more")]
    if leaking:
        warnings.append(Warning(f"Smaller hospitals leak more ({' and '.join(leaking)}).", False))
    rows = [
        [title, f"AUROC {auroc(summary[attack])}", f"{share(summary[attack]['found_at_0.01'])} found, 1 % false alarms"]
        for attack, title in TITLES.items()
        if attack in summary
    ]
    notes = [canaries(bound)] if bound is not None else []
    if inversion is not None and not _bare(inversion):
        notes.append(read_out(inversion))
    shadows = f", {summary['shadows']} shadow models" if summary["shadows"] else ""
    return Block(
        what=f"{name}: privacy audit of {summary['rows']:,} training rows{shadows}, {seconds}",
        headline=headline(summary),
        warnings=warnings,
        rows=rows,
        notes=[*notes, STRONGER],
        report=report,
        next=next,
    )


def auroc(figures: Mapping[str, Any]) -> str:
    """Format an attack's AUROC with its interval; "undefined" if the AUROC is None."""
    low, high = (math.nan if figures[end] is None else figures[end] for end in ("auroc_low", "auroc_high"))
    return figure(math.nan if figures["auroc"] is None else figures["auroc"], Limits(low, high))


def share(found: float | None) -> str:
    """Format the share of training rows that an attack recognises; "undefined" if it is None."""
    return "undefined" if found is None else f"{100 * found:.1f} %"


def _refuted(bound: Mapping[str, Any]) -> bool:
    return bound["epsilon_claimed"] is not None and bool(bound["epsilon_at_least"] > bound["epsilon_claimed"])


def _bare(inversion: Mapping[str, Any]) -> bool:
    """Whether an attack reconstructed a row exactly from an unprotected update."""
    return bool(inversion["exact"]) and not inversion["protected"]


def _auditor(bound: Mapping[str, Any]) -> str:
    return f"an auditor who sees {bound['sees']}"

"""The page of an audit: what the attacks found, in words, tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from raysim.report.page import Picture, Provenance, png, render
from raysim.report.plots import FAINT, GREY, INK, MUTED, PALETTE, WORST, plain

TITLES = {"loss_threshold": "Loss threshold", "lira": "LiRA"}
"""The attacks on membership, as they are called."""

FEATURES = 24
"""The most features of a patient that are drawn; those that differ most from the mean come first."""


def audit_page(
    title: str,
    summary: Mapping[str, Any],
    membership: pd.DataFrame,
    inverted: pd.DataFrame | None,
    provenance: Provenance,
) -> str:
    """The page, as HTML text, from ``audit.json`` and the frames of ``membership.csv`` and ``inversion.csv``."""
    pictures = []
    if inverted is not None:
        pictures.append(
            Picture(
                "A patient's row, read out of one update",
                png(row_and_reading(inverted)),
                "A hospital that trains a linear model on one row sends that row: the change of the weights over the "
                "change of the intercept. Circles are the patient's values as the model receives them, dots what the "
                "update says.",
                _deviation(inverted),
            )
        )
    pictures.append(
        Picture(
            "Who was trained on, by size of hospital",
            png(leaks_by_size(membership, summary)),
            "How well an attack tells rows that a hospital trained on from others of the same hospital: .5 is chance. "
            "Whiskers are 95 % intervals over rows; the line is the slope on the logarithm of size, of ten "
            "hospitals or more.",
            " ".join(by_size(attack, summary[attack]) for attack in TITLES if attack in summary),
        )
    )
    return render(
        "audit.html.j2",
        title=title,
        lead=lead(summary),
        found=[_found(attack, summary[attack]) for attack in TITLES if attack in summary],
        pictures=pictures,
        provenance=provenance,
    )


def lead(summary: Mapping[str, Any]) -> list[str]:
    """What was found, a sentence each."""
    said = []
    bound = summary.get("one_run")
    if bound is not None:
        claimed, least = bound["epsilon_claimed"], bound["epsilon_at_least"]
        tried = (
            f"{bound['right']} of {bound['guesses']} guesses on {bound['canaries']} canaries were right, by an auditor "
            f"who sees {bound['sees']}: epsilon is at least {least:.2f} (95 %)"
        )
        if claimed is None or not np.isfinite(claimed):
            said.append(f"{tried}. The run claims no epsilon against such an adversary.")
        elif least > claimed:
            said.append(
                f"{tried}. The run claims {claimed:.3g}: its promise is broken, and its models are not to go out."
            )
        else:
            said.append(
                f"{tried}, which does not refute the {claimed:.3g} that the run claims. So many canaries can show "
                f"{bound['ceiling']:.2f} at most."
            )
    return said + [by_size(attack, summary[attack]) for attack in TITLES if attack in summary]


def by_size(attack: str, figures: Mapping[str, Any]) -> str:
    """How well an attack does, and whether small hospitals leak more."""
    told = (
        f"{TITLES[attack]}: rows that were trained on are told from others with AUROC {figures['auroc']:.3f} "
        f"({figures['auroc_low']:.3f} to {figures['auroc_high']:.3f})"
    )
    if not _defined(figures["slope_low"]):
        return f"{told}; fewer than ten hospitals have no slope on size."
    doubling = (
        f"{figures['slope_per_doubling']:+.4f} for twice the rows ({figures['slope_low']:+.4f} to "
        f"{figures['slope_high']:+.4f})"
    )
    if figures["smaller_leak_more"]:
        return f"{told}; smaller hospitals leak more: {doubling}."
    if figures["larger_leak_more"]:
        return f"{told}; larger hospitals leak more: {doubling}."
    return f"{told}; that leakage depends on size cannot be shown: {doubling}."


def leaks_by_size(membership: pd.DataFrame, summary: Mapping[str, Any]) -> Figure:
    """Each hospital's AUROC of membership with its interval, against its training rows; a panel an attack."""
    attacks = [attack for attack in TITLES if attack in set(membership["attack"])]
    figure = Figure(figsize=(4.6 * len(attacks), 3.4), layout="constrained")
    for ax, attack in zip(np.atleast_1d(figure.subplots(1, len(attacks), sharey=True)), attacks, strict=True):
        rows = membership[(membership["attack"] == attack) & (membership["hospital"] != "(all)")]
        rows = rows[rows["auroc"].notna() & (rows["n_train"] > 0)]
        plain(ax)
        ends = [rows["auroc"] - rows["auroc_low"], rows["auroc_high"] - rows["auroc"]]
        ax.errorbar(
            rows["n_train"],
            rows["auroc"],
            yerr=np.nan_to_num(ends),
            fmt="o",
            ms=4,
            color=PALETTE[0],
            ecolor=GREY,
            lw=0.8,
        )
        ax.axhline(0.5, color=MUTED, lw=0.8, ls=":")
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        figures = summary[attack]
        if _defined(figures["slope_low"]) and len(rows):
            log = np.log2(rows["n_train"].to_numpy(float))
            across = np.array([log.min(), log.max()])
            level = figures["auroc_at_middle"] + figures["slope_per_doubling"] * (across - figures["log2_middle"])
            ax.plot(2.0**across, level, color=WORST, lw=1.6)
        ax.set_title(TITLES[attack], fontsize=10, loc="left", color=INK)
        ax.set_xlabel("training rows of the hospital", fontsize=9, color=INK)
    figure.axes[0].set_ylabel("AUROC of membership", fontsize=9, color=INK)
    return figure


def row_and_reading(inverted: pd.DataFrame) -> Figure:
    """The values of a patient's row, and those that its hospital's update says, by feature."""
    features = inverted[inverted["feature"] != "(label)"]
    shown = features.reindex(features["patient"].abs().sort_values(ascending=False, kind="stable").index)[:FEATURES]
    figure = Figure(figsize=(6.4, 0.9 + 0.2 * len(shown)), layout="constrained")
    ax = figure.subplots()
    plain(ax)
    at = np.arange(len(shown))[::-1]
    ax.hlines(at, 0, shown["patient"], color=FAINT, lw=1.2)
    ax.plot(shown["patient"], at, "o", ms=9, mfc="none", mec=PALETTE[0], label="the patient's row")
    ax.plot(shown["read_from_update"], at, "o", ms=4, color=WORST, label="read out of the update")
    ax.set_yticks(at, [str(name) for name in shown["feature"]], fontsize=8, parse_math=False)
    ax.set_xlabel("value as the model receives it", fontsize=9, color=INK)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def _deviation(inverted: pd.DataFrame) -> str:
    most = float((inverted["patient"] - inverted["read_from_update"]).abs().max())
    return f"All {len(inverted) - 1} features and the label are read out; the largest deviation is {most:.1g}."


def _found(attack: str, figures: Mapping[str, Any]) -> list[str]:
    shares = [f"{100 * figures[key]:.1f} %" for key in ("found_at_0.01", "found_at_0.001")]
    interval = f"{figures['auroc']:.3f} ({figures['auroc_low']:.3f} to {figures['auroc_high']:.3f})"
    return [TITLES[attack], interval, *shares]


def _defined(value: float | None) -> bool:
    return value is not None and bool(np.isfinite(value))

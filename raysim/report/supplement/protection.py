"""Tables of data protection: the protections of a run or comparison, and the data sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from raysim.config.schema import Config
from raysim.core.words import listed
from raysim.engine.job import Result
from raysim.report.naming import size

Rows = list[list[str]]

ROWS = "rows"
"""The only kind of message that contains patients' rows."""

EXPLAINED = {
    "counts of values": "rows whose values begin alike, from which bins follow",
    "label sums": "rows of each class, or the sum of labels",
    "histograms": "counts and sums of gradients by node and bin",
    "leaf sums": "sums of gradients by leaf",
    "trees": "whole trees, whose leaves may be of few patients",
}
"""Explanations of kinds of messages."""


def protections(config: Config, results: Sequence[Result] = ()) -> Rows:
    """Return one row for each kind of data protection: its name, and whether and how runs of ``config`` use it."""
    privacy, secure, rule = config.privacy, config.secure, config.aggregation
    none = "none: whoever runs the server receives what each hospital sends"
    # Some regressions use secure aggregation by default.
    titles = {result.title or result.label: bool(result.outcome.facts.get("secure_sums")) for result in results}
    hiding = [title for title, hides in titles.items() if hides]
    if hiding:
        here = f"{none}; except {listed(hiding)}" if len(hiding) < len(titles) else "on"
        none = f"{here}: only sums can be read (the default of regressions)"
    return [
        [
            "Differential privacy",
            "none: no noise was added" if privacy is None else f"on, protects each {privacy.unit}",
        ],
        [
            "Secure aggregation",
            none if secure is None else f"on: only sums over at least {secure.minimum} hospitals can be read",
        ],
        ["Numbers of rows", _sizes(config)],
        ["Robust aggregation", "none" if rule is None else f"on: {rule.name}"],
        ["Simulated attack", "none" if config.adversary is None else "yes"],
    ]


def _sizes(config: Config) -> str:
    """Return whether numbers of rows are sent exactly and, if not, which number a hospital's size is."""
    if config.privacy is None or not config.privacy.hides_sizes:
        return "sent exactly"
    counted = "patients" if config.privacy.unit == "patient" else "rows"
    return (
        f"sent with noise; here, the stays of a hospital are its noisy number of training {counted} plus its "
        f"{config.evaluation.part} rows"
    )


def sent_in(result: Result) -> dict[str, NDArray[np.int64]]:
    """Return the bytes that each hospital sent in one run, by kind of message, ``[H]`` each."""
    totals: dict[str, NDArray[np.int64]] = {}
    count = len(result.federation.hospitals)
    for entry in result.outcome.ledger.entries:
        np.add.at(totals.setdefault(entry.kind, np.zeros(count, dtype=np.int64)), entry.hospitals, entry.sent)
    return totals


def traffic(results: Sequence[Result], titles: Mapping[str, str]) -> Rows:
    """Return for each strategy its name, whether hospitals sent patients' rows, and the bytes that a hospital sent.

    Bytes are listed by kind of message, each as a range over hospitals and seeds.
    """
    rows = []
    for label in dict.fromkeys(result.label for result in results):
        runs = [sent_in(result) for result in results if result.label == label]
        kinds = dict.fromkeys(kind for totals in runs for kind in totals)
        parts = []
        for kind in kinds:
            every = np.concatenate([totals[kind] for totals in runs if kind in totals])
            explanation = f" ({EXPLAINED[kind]})" if kind in EXPLAINED else ""
            parts.append(f"{kind.replace('_', ' ')}{explanation} {span(float(every.min()), float(every.max()))}")
        rows.append([titles.get(label, label), "yes" if ROWS in kinds else "no", "; ".join(parts) or "nothing"])
    return rows


def span(low: float, high: float) -> str:
    """Format a range of numbers of bytes.

    >>> span(4, 4), span(0, 280)
    ('4 bytes', '0 to 280 bytes')
    """
    return size(low) if low == high else f"{size(low)} to {size(high)}"

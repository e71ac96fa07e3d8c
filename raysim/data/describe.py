"""Describe a federation for ``raysim describe``: sizes, classes, missing values, and where metrics are undefined."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from raysim.core.words import counted, some
from raysim.data.checks.suspects import LEVELS, Leaks, Suspect
from raysim.data.columns import Column
from raysim.data.federation import PARTS, Federation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

# Limits of what is printed: columns, bands of test rows, largest and smallest hospitals, names in a list, suspects.
_COLUMNS = 40
_BANDS: tuple[tuple[int, float], ...] = ((0, 0), (1, 1), (2, 4), (5, 9), (10, 49), (50, np.inf))
_LARGEST, _SMALLEST = 5, 3
_NAMED = 12
_SUSPECTS = 4


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """The statistics that ``raysim describe`` prints. The federation has ``H`` hospitals, ``C`` classes, and ``D``
    features other than flags of missing values.
    """

    hospitals: tuple[str, ...]
    classes: tuple[str, ...]
    """The names of the classes; empty for a real-valued label."""
    values: tuple[str, ...]
    """The names of the features other than flags of missing values, ``[D]``."""
    flags: int
    sizes: NDArray[np.int64]
    """The number of rows of each hospital's train, validation and test part, ``[H, 3]``."""
    counts: NDArray[np.int64]
    """The number of rows of each class at each hospital, ``[H, C]``."""
    tested: NDArray[np.int64]
    """The number of rows of each class in each hospital's test part, ``[H, C]``."""
    labels: tuple[NDArray[np.float64], tuple[float, float, float, float]] | None
    """For a real-valued label, the mean label of each hospital ``[H]`` (NaN without rows), and the lowest, median, mean
    and highest label of all rows. None for a label with classes.
    """
    columns: tuple[Column, ...]
    attributes: dict[str, dict[str, int]]
    """For each attribute of hospitals, such as ``region``, the number of hospitals with each value."""
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    leaks: Leaks
    quality: tuple[Suspect, ...]
    fingerprint: str
    folder: str

    @property
    def rows(self) -> int:
        """The number of rows of all hospitals."""
        return int(self.sizes.sum())

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of each class over all rows, ``[C]``."""
        return np.asarray(self.counts.sum(axis=0) / max(self.rows, 1))

    @property
    def prevalence(self) -> NDArray[np.float64]:
        """The share of each class at each hospital, ``[H, C]``."""
        return np.asarray(self.counts / np.maximum(self.counts.sum(axis=1, keepdims=True), 1))

    @property
    def untested(self) -> tuple[str, ...]:
        """The hospitals without a test row."""
        return self._named(self.sizes[:, PARTS.index("test")] == 0)

    @property
    def one_class(self) -> tuple[str, ...]:
        """The hospitals whose test rows are all of one class, where AUROC is undefined."""
        return self._named((self.tested > 0).sum(axis=1) == 1)

    @property
    def untrained(self) -> tuple[str, ...]:
        """The hospitals without a training row."""
        return self._named(self.sizes[:, 0] == 0)

    @property
    def judged(self) -> int:
        """The number of hospitals where AUROC is defined on test rows. For a real-valued label, the number of hospitals
        with test rows.
        """
        return len(self.hospitals) - len(self.one_class) - len(self.untested)

    def _named(self, which: NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(self.hospitals[h] for h in np.flatnonzero(which))


def summarise(federation: Federation) -> Summary:
    """Compute the statistics of ``federation`` for ``raysim describe``. Feature values are not read."""
    H, C = len(federation.hospitals), len(federation.classes)
    home = np.repeat(np.arange(H), federation.totals)
    counts = tested = np.zeros((H, 0), np.int64)
    labels = None
    if C:
        counts = np.bincount(home * C + federation.y, minlength=H * C).reshape(H, C)
        test = np.arange(len(federation.y)) >= federation.bounds[home, 2]
        tested = np.bincount((home * C + federation.y)[test], minlength=H * C).reshape(H, C)
    else:
        y = federation.y
        sums = np.bincount(home, weights=y, minlength=H)
        means = np.divide(sums, federation.totals, out=np.full(H, np.nan), where=federation.totals > 0)
        labels = means, (float(y.min()), float(np.median(y)), float(y.mean()), float(y.max()))
    D = federation.observed.shape[1]
    return Summary(
        hospitals=federation.hospitals,
        classes=federation.classes,
        values=federation.features[:D],
        flags=len(federation.features) - D,
        sizes=np.stack([federation.sizes(part) for part in PARTS], axis=1),
        counts=counts,
        tested=tested,
        labels=labels,
        columns=federation.columns,
        attributes={
            name: dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))
            for name, values in federation.attributes.items()
        },
        notes=federation.notes,
        warnings=federation.warnings,
        leaks=federation.leaks,
        quality=federation.quality,
        fingerprint=federation.fingerprint,
        folder=str(federation.folder),
    )


def render(federation: Federation | Summary, console: Console) -> None:
    """Print the statistics of a federation to ``console``."""
    summary = federation if isinstance(federation, Summary) else summarise(federation)
    for block in _blocks(summary):
        console.print(block, highlight=False, markup=False)
        console.print()


def _blocks(s: Summary) -> list[RenderableType]:
    from rich.text import Text

    head = Text()
    if first := _eventless(s):
        head.append(f"{first}\n", style="bold yellow")
    counts = ((len(s.hospitals), "hospital"), (s.rows, "row"), (len(s.values), "value column"))
    head.append(", ".join(counted(count, noun) for count, noun in counts), style="bold")
    head.append(f" and {counted(s.flags, 'flag')} of missing values" if s.flags else "")
    blocks: list[RenderableType] = [head, _sizes(s), _labels(s), _columns(s)]
    if len(s.classes) == 2:
        blocks.append(_tested(s))
    blocks += [_undefined(s), _hospitals(s)]
    if s.attributes:
        blocks.append(_attributes(s))
    blocks.append(lines("what was read", [*s.notes, f"stored in {s.folder}"]))
    if s.leaks.note:
        blocks.append(_suspects(lines("leaks", [s.leaks.note]), s.leaks.suspects))
    if s.quality:
        blocks.append(_suspects(lines("quality", []), s.quality))
    if s.warnings:
        blocks.append(lines("warnings", s.warnings, style="yellow"))
    return blocks


def _eventless(s: Summary) -> str:
    """Return a sentence on how many hospitals have no test row of the event (the second class); empty if none."""
    if len(s.classes) != 2:
        return ""
    without, all_ = int((s.tested[:, 1] == 0).sum()), counted(len(s.hospitals), "hospital")
    verb = "has" if without == 1 else "have"
    return f"{without:,} of {all_} {verb} no test event ('{s.classes[1]}'): AUROC is undefined there" if without else ""


def _sizes(s: Summary) -> Table:
    table = _table("sizes", "part", "rows", "smallest", "median", "largest")
    for k, part in enumerate(PARTS):
        sizes = s.sizes[:, k]
        if sizes.any():
            table.add_row(part, *(f"{v:,.0f}" for v in (sizes.sum(), sizes.min(), np.median(sizes), sizes.max())))
    return table


def _labels(s: Summary) -> Table:
    if s.labels is not None:
        means, overall = s.labels
        means = means[~np.isnan(means)]
        table = _table("label", "of", "lowest", "median", "mean", "highest")
        table.add_row("rows", *(f"{v:.4g}" for v in overall))
        over_hospitals = (means.min(), np.median(means), means.mean(), means.max())
        table.add_row("hospitals' means", *(f"{v:.4g}" for v in over_hospitals))
        return table
    table = _table("classes", "class", "rows", "share", "lowest", "median", "highest share at a hospital")
    filled = s.counts.sum(axis=1) > 0
    described = range(len(s.classes))[-1:] if len(s.classes) == 2 else range(len(s.classes))
    for c in described:
        at = s.prevalence[filled, c]
        table.add_row(
            s.classes[c],
            f"{s.counts[:, c].sum():,}",
            *(f"{v:.1%}" for v in (s.shares[c], at.min(), np.median(at), at.max())),
        )
    return table


def _columns(s: Summary) -> RenderableType:
    remarked = sorted(s.columns, key=lambda column: (not column.remark, -column.missing))
    listed_columns = list(s.columns) if len(s.columns) <= _COLUMNS else remarked[:_COLUMNS]
    missing = sum(column.missing for column in s.columns) / max(1, len(s.columns))
    title = f"{counted(len(s.columns), 'feature')}, {missing:.1%} missing"
    table = _table(title, "column", "kind", "range", "missing", "remark")
    for column in listed_columns:
        share = f"{column.missing:.1%}" if column.missing else ""
        table.add_row(column.name, column.kind, column.range, share, column.remark)
    if len(listed_columns) < len(s.columns):
        table.add_row(f"... and {len(s.columns) - len(listed_columns):,} more, with fewer missing values")
    return table


def _tested(s: Summary) -> RenderableType:
    events = s.tested[:, 1]
    table = _table("hospitals by test rows of a class", "test rows", *(_band(low, high) for low, high in _BANDS))
    for name, counts in ((f"events ('{s.classes[1]}')", events), (f"others ('{s.classes[0]}')", s.tested[:, 0])):
        inside = [int(((counts >= low) & (counts <= high)).sum()) for low, high in _BANDS]
        table.add_row(name, *(f"{count:,}" if count else "" for count in inside))
    return table


def _band(low: int, high: float) -> str:
    return str(low) if low == high else f"{low}+" if high == np.inf else f"{low}-{high:.0f}"


def _undefined(s: Summary) -> Text:
    below = []
    for names, what in (
        (s.one_class, "test rows of one class only"),
        (s.untested, "no test row"),
        (s.untrained, "no training row"),
    ):
        if names:
            between = "; " if any("," in name for name in names) else ", "
            below.append(f"{what}: {len(names):,} ({some(names, _NAMED, between)})")
    undefined, figure = len(s.hospitals) - s.judged, "AUROC" if s.labels is None else "MAE"
    of = counted(len(s.hospitals), "hospital")
    verb = "is" if undefined == 1 else "are"
    below.append(f"{undefined:,} of {of} {verb} left out of means of {figure}")
    return lines(f"hospitals whose {figure} is undefined", below)


def _hospitals(s: Summary) -> Table:
    totals = s.sizes.sum(axis=1)
    order = np.argsort(-totals, kind="stable")
    binary = len(s.classes) == 2
    everything = len(order) <= _LARGEST + _SMALLEST
    title = "hospitals" if everything else f"hospitals: {_LARGEST} largest, {_SMALLEST} smallest"
    columns = [part for k, part in enumerate(PARTS) if s.sizes[:, k].any()]
    about = "mean label" if s.labels is not None else s.classes[1] if binary else "classes present"
    table = _table(title, "hospital", "rows", *columns, about)
    listed_hospitals = order if everything else np.concatenate([order[:_LARGEST], order[-_SMALLEST:]])
    for h in listed_hospitals:
        parts = [f"{s.sizes[h, PARTS.index(part)]:,}" for part in columns]
        if s.labels is not None:
            last = f"{s.labels[0][h]:.4g}"
        else:
            last = f"{s.prevalence[h, 1]:.1%}" if binary else str(np.count_nonzero(s.counts[h]))
        table.add_row(s.hospitals[h], f"{totals[h]:,}", *parts, last)
    return table


def _attributes(s: Summary) -> Text:
    below = []
    for name, values in s.attributes.items():
        counts = [f"{value or 'unknown'} {count:,}" for value, count in list(values.items())[:6]]
        below.append(f"{name}: {', '.join(counts)}{', ...' if len(values) > 6 else ''}")
    return lines("hospitals by attribute", below)


def _suspects(text: Text, suspects: Sequence[Suspect]) -> Text:
    for level in LEVELS:
        found = [suspect for suspect in suspects if suspect.level == level]
        several = len(found) if level == "warn" or len(found) <= _SUSPECTS else _SUSPECTS - 1
        style = "yellow" if level == "warn" else "not bold"
        for suspect in found[:several]:
            text.append(f"\n{level}: {suspect.text}", style=style)
        if more := ", ".join(f"'{suspect.feature}'" for suspect in found[several:]):
            text.append(f"\n{level} too: {more}", style=style)
    return text


def lines(title: str, below: Sequence[str], style: str = "") -> Text:
    """Return a bold ``title`` with the lines ``below`` under it."""
    from rich.text import Text

    text = Text(title, style="bold")
    for line in below:
        text.append(f"\n{line}", style=style or "not bold")
    return text


def _table(title: str, first: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table

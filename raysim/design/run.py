"""``raysim design``: from the file of a design to the folder of results, the page and the headline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from raysim.core.levels import POWER
from raysim.core.plain_yaml import dumped
from raysim.core.words import counted
from raysim.design.settings import Design, read_design
from raysim.report import possible, svg
from raysim.report.pages.common import plain, set_by
from raysim.report.pages.contents import Cell, Row
from raysim.report.pages.rendering import Page
from raysim.report.pages.section import Section, included
from raysim.report.svg import Chart, Figure, Style
from raysim.report.svg.styles import SHAPES
from raysim.report.terminal.block import Block
from raysim.statistics.design.power import Draws, Sites, differences, slope_power, spread_power
from raysim.storage.manifest import Manifest
from raysim.storage.results import choose_folder

SECTIONS = (Section("figures", "The gain from more hospitals, rows or seeds", included("design")),)


@dataclass(frozen=True, eq=False)
class Variant:
    """A planned comparison, or a copy of it with more hospitals, rows or seeds; and its power to detect differences."""

    name: str
    sites: Sites
    seeds: int
    draws: Draws
    spread: float
    """The power to detect the relevant standard deviation of hospitals' AUROCs (``Design.spread``)."""
    slope: float
    """The power to detect that the difference in AUROC between two methods depends on a hospital's size; NaN if this
    power cannot be estimated."""

    @property
    def visible(self) -> float:
        """The smallest true difference that is demonstrated in 8 of 10 studies; infinite if an AUROC cannot be both
        higher and lower than the expected one by this difference.
        """
        size = self.draws.visible(POWER)
        return size if possible.visible(size, True, self.sites.auroc) else np.inf

    @property
    def difference(self) -> str:
        """The difference ``visible`` in words."""
        return f"a difference of {self.visible:.3f}" if np.isfinite(self.visible) else "no possible difference"


@dataclass(frozen=True, eq=False)
class Planned:
    """A planned comparison and larger variants of it, with the power of each; the first variant is the plan itself."""

    design: Design
    variants: Sequence[Variant]

    @property
    def headline(self) -> str:
        """Sentences on the differences that the planned comparison could detect."""
        design, plan = self.design, self.variants[0]
        hospitals = counted(len(plan.sites.rows), "hospital")
        first = f"With {hospitals} and {design.seeds} seeds {plan.difference} is demonstrated in 8 of 10 studies"
        if design.difference >= plan.visible:
            return f"{first}: enough for the relevant difference of {design.difference:g}."
        return (
            f"{first}. The relevant difference of {design.difference:g} is demonstrated in "
            f"{plan.draws.power(design.difference):.0%} of them: this comparison is too small."
        )

    def table(self) -> pd.DataFrame:
        """Return the rows of ``design.csv``: one per variant of the design."""
        return pd.DataFrame(
            {
                "variant": each.name,
                "hospitals": len(each.sites.rows),
                "rows": int(each.sites.rows.sum()),
                "events": int(each.sites.events.sum()),
                "seeds": each.seeds,
                "half_width": each.draws.half_width,
                "visible": each.visible,
                "power_difference": each.draws.power(self.design.difference),
                "power_spread": each.spread,
                "power_slope": each.slope,
            }
            for each in self.variants
        )


def planned(design: Design) -> Planned:
    """Compute the power of a planned comparison, and of copies with twice as many hospitals, test rows or seeds."""
    sites = design.judged()
    doubled = replace(sites, events=np.tile(sites.events, 2), non_events=np.tile(sites.non_events, 2))
    larger = replace(sites, events=2 * sites.events, non_events=2 * sites.non_events)
    asked = [
        ("as planned", sites, design.seeds),
        ("twice the hospitals", doubled, design.seeds),
        ("twice the test rows", larger, design.seeds),
        ("twice the seeds", sites, 2 * design.seeds),
    ]
    of_sites = {
        id(each): (spread_power(each, design.spread), slope_power(each, design.halving)) for _, each, _ in asked
    }
    return Planned(
        design,
        [Variant(name, each, seeds, differences(each, seeds), *of_sites[id(each)]) for name, each, seeds in asked],
    )


def begin(path: Path, overrides: Sequence[str], out: Path | None) -> tuple[Path, Planned]:
    """Read a planned comparison, simulate it, and write ``design.csv``, ``power.csv`` and the report.

    Returns the folder, and the power of the comparison and its variants.
    """
    design = read_design(path, overrides)
    found = planned(design)
    folder = choose_folder(out, design.name)
    written = Manifest.begin(folder, "design")
    text = dumped(design.model_dump(mode="json"))
    written.text("config.yaml", text)
    written.csv("design.csv", found.table())
    curve = power_by_difference(found)
    written.csv("power.csv", curve)
    written.text("report.html", page(found, curve, text))
    return folder, found


def power_by_difference(found: Planned) -> pd.DataFrame:
    """Return the rows of ``power.csv``: the power of each variant for a grid of true differences."""
    most = max(each.draws.visible(0.95) for each in found.variants)
    grid = np.linspace(0.0, float(f"{1.2 * most:.1g}"), 31)
    return pd.DataFrame(
        {"variant": each.name, "difference": float(difference), "power": each.draws.power(float(difference))}
        for each in found.variants
        for difference in grid
    )


def page(found: Planned, curve: pd.DataFrame, config: str) -> str:
    """Return the report as HTML."""
    table = found.table()
    columns = ("hospitals", "seeds", "visible", "power_difference", "power_spread", "power_slope")
    rows = [
        Row(str(row["variant"]), [Cell(_cell(name, row[name]), "") for name in columns])
        for row in table.to_dict("records")
    ]
    design = found.design
    headings = (
        "Hospitals",
        "Seeds",
        "Difference demonstrated in 8 of 10",
        f"Power for {design.difference:g}",
        f"Power for a spread of {design.spread:g}",
        f"Power for a gain of {design.halving:g} at half the size",
    )
    values = {
        "title": design.name,
        "lead": [found.headline, *notes(found)],
        "headings": headings,
        "rows": rows,
        "pictures": [picture(curve)],
        **set_by("raysim design config.yaml", config, Studies_simulated="4,000 of each plan"),
    }
    return Page(plain("design", "Design of a comparison", SECTIONS, "Power", "What was assumed"), values).html()


def notes(found: Planned) -> list[str]:
    """Return sentences on hospitals without AUROC, and on what would increase the power most."""
    sentences = []
    if left_out := found.design.undefined():
        sentences.append(f"{counted(left_out, 'hospital')} will have test rows of only one class, and no AUROC.")
    best = max(found.variants[1:], key=lambda each: each.draws.power(found.design.difference))
    link = ":" if np.isfinite(best.visible) else ", but"
    sentences.append(
        f"Of twice the hospitals, rows or seeds, {best.name} would help most{link} {best.difference} is then "
        "demonstrated in 8 of 10 studies."
    )
    return sentences


def picture(curve: pd.DataFrame) -> Figure:
    """Plot the power of every variant of the design against the true difference."""
    groups = list(curve.groupby("variant", sort=False))
    x = svg.linear("true difference of AUROC", curve["difference"], include=(0.0,))
    y = svg.share("share of studies that demonstrate it")
    chart = Chart(x, y, name="power", description="Power against the true difference, a line for each variant.")
    styles = [Style(k, SHAPES[k]) for k in range(len(groups))]
    for (_, each), style in zip(groups, styles, strict=True):
        chart.line(each["difference"].to_numpy(), each["power"].to_numpy(), style)
    legend = svg.legend([(str(name), style) for (name, _), style in zip(groups, styles, strict=True)], lines=True)
    return svg.figure(
        "power", "What could be demonstrated", [chart], "Each line is one plan, over 4,000 simulated studies.", legend
    )


def block(found: Planned, seconds: str, report: str) -> Block:
    """Return the summary block that the command prints."""
    design, hospitals = found.design, len(found.variants[0].sites.rows)
    rows = [["", "demonstrated in 8 of 10", f"{design.difference:g} shown", f"spread {design.spread:g} shown"]]
    rows += [
        [
            each.name,
            _cell("visible", each.visible),
            f"{each.draws.power(design.difference):.0%}",
            f"{each.spread:.0%}",
        ]
        for each in found.variants
    ]
    return Block(
        what=f"{design.name}: {counted(hospitals, 'hospital')}, {design.seeds} seeds, {seconds}",
        headline=found.headline,
        rows=rows,
        notes=notes(found),
        report=report,
    )


def _cell(name: str, value: float) -> str:
    if np.isnan(value):
        return "undefined"
    if name == "visible":
        return f"{value:.3f}" if np.isfinite(value) else "none"
    return f"{100 * value:.0f} %" if name.startswith("power") else f"{value:.0f}"

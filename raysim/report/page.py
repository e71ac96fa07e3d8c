"""One self-contained HTML page for a comparison or a run: styles, pictures and numbers are all inside the file.

Texts that come from data or configuration (hospital names, strategy names, notes) are escaped by the template engine.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from matplotlib.figure import Figure

from raysim.metrics.equity import worst_decile
from raysim.metrics.labels import reporting
from raysim.report import accuracy, plots, svg, tables
from raysim.report.answer import Answer, answer, plus_minus
from raysim.report.contents import (
    body_rows,
    columns,
    difference_columns,
    difference_rows,
    noise_headings,
    noise_rows,
    run_lead,
    undefined_sentence,
    worst_served,
)
from raysim.report.drawn import Drawn
from raysim.report.noise import Noise
from raysim.statistics.paired import FEW_HOSPITALS


@dataclass(frozen=True)
class Provenance:
    """What was run on what: printed at the head of the page.

    ``rows`` by part (``{"train": 31000, ...}``), ``seeds`` as run, ``versions`` by package, ``config`` the frozen
    configuration as text, ``command`` the line that reproduces the page, ``notes`` what the data source said. Where
    data differ between seeds, fingerprint, rows and notes are those ``of_seed``.
    """

    data: str
    fingerprint: str
    hospitals: int
    rows: Mapping[str, int]
    seeds: Sequence[int]
    versions: Mapping[str, str]
    config: str
    command: str
    notes: Sequence[str] = field(default_factory=tuple)
    of_seed: int | None = None


@dataclass(frozen=True)
class Picture:
    """A plot as a data URI with what it shows, in a caption and for those who cannot see it."""

    title: str
    uri: str
    caption: str
    alt: str


def comparison_page(
    title: str,
    per_seed: pd.DataFrame,
    provenance: Provenance,
    *,
    baseline: str,
    hospitals: pd.DataFrame | None = None,
    rounds: pd.DataFrame | None = None,
    differences: pd.DataFrame | None = None,
    said: Answer | None = None,
    further: Sequence[Drawn | svg.Figure] = (),
    noise: Mapping[tuple[str, str], Noise] | None = None,
    part: str = "test",
) -> str:
    """The page of a comparison, as HTML text; frames as in :mod:`raysim.report.tables` and :func:`plots.curves`.

    ``differences`` as :func:`tables.differences` gives them and ``said``, the answer, where they are known already;
    ``noise`` as :func:`raysim.report.noise.noise` gives it, of the first seed; ``part`` of the rows was evaluated.
    Without ``hospitals`` nothing can be compared.
    """
    if said is None:
        nothing = pd.DataFrame(columns=[*tables.KEYS, "seed", "hospital", "n_test", reporting(per_seed).headline])
        said = answer(per_seed, nothing if hospitals is None else hospitals, baseline)
    if differences is None:
        differences = tables.differences(per_seed, baseline, hospitals)
    table, kind = tables.comparison(per_seed), reporting(per_seed)
    names = tables.labels(table)
    against = tables.baseline_of(table, baseline)
    few = tables.few(table)
    pictures: list[Picture | svg.Figure] = [] if few else [*_front_pictures(table, names)]
    pictures += _size_picture(hospitals) + _curves_picture(rounds)
    pictures += _further_pictures(further)
    return render(
        "comparison.html.j2",
        title=title,
        provenance=provenance,
        task=kind,
        part=part,
        few=few,
        answer=said,
        columns=[heading for _, heading, *_ in columns(table)],
        body=body_rows(table, names),
        several=len(provenance.seeds) > 1,
        baseline=names[_row(table, against)] if against else "",
        difference_columns=[heading for _, heading, _ in difference_columns(table)],
        differences=difference_rows(table, names, differences),
        accuracy_columns=[heading for _, heading, _ in accuracy.COLUMNS],
        accuracy=accuracy.accuracy_rows(per_seed, names),
        noise_seed=provenance.seeds[0] if provenance.of_seed is None else provenance.of_seed,
        noise_columns=noise_headings(table, noise or {}),
        noise=noise_rows(table, names, noise or {}),
        undefined=undefined_sentence(hospitals, table, part),
        pictures=pictures,
    )


def run_page(
    title: str,
    per_model: pd.DataFrame,
    provenance: Provenance,
    *,
    hospitals: pd.DataFrame | None = None,
    rounds: pd.DataFrame | None = None,
    further: Sequence[Drawn | svg.Figure] = (),
    training: str = "",
    privacy: str = "",
    sizes: Mapping[str, str] | None = None,
    part: str = "test",
) -> str:
    """The page of one run, as HTML text: ``per_model`` has a row a model served, columns as ``per_seed``.

    ``part`` of the rows was evaluated; ``training`` says whether the model is trained, ``privacy`` what is promised,
    ``sizes`` for each model whether it depends on hospitals' size.
    """
    table = tables.comparison(per_model)
    names = [str(model) for model in table["model"]]
    return render(
        "run.html.j2",
        title=title,
        provenance=provenance,
        task=reporting(per_model),
        part=part,
        few=tables.few(table),
        lead=[*run_lead(table, names, sizes), *filter(None, [training, privacy])],
        columns=[heading for _, heading, *_ in columns(table)],
        body=body_rows(table, names),
        undefined=undefined_sentence(hospitals, table, part),
        worst=worst_served(hospitals, part),
        pictures=[*_size_picture(hospitals), *_curves_picture(rounds), *_further_pictures(further)],
    )


def _front_pictures(table: pd.DataFrame, names: Sequence[str]) -> list[Picture]:
    kind = reporting(table)
    return [
        Picture(
            "Worst-served hospitals against size bias",
            png(plots.worst_decile_vs_size_bias(table)),
            "Up and to the left is better. Bars are one standard deviation over seeds; the dashed line joins the "
            "strategies with means that no other's dominate on these two figures, which shows no difference yet.",
            _alt(table, names, "worst_decile", "size_bias_abs"),
        ),
        Picture(
            "The frontier",
            png(plots.frontier_3d(table)),
            f"Mean {kind.title}, worst decile and absolute size bias together; the best corner is at the top, in the "
            "back. Stems stand on the floor of the box. Grey strategies have means that are dominated on all three.",
            _alt(table, names, kind.headline, "worst_decile", "size_bias_abs"),
        ),
    ]


def write(html: str, path: Path | str) -> None:
    """Write a page as UTF-8."""
    Path(path).write_text(html, encoding="utf-8")


def render(template: str, **values: Any) -> str:
    """A template of the folder ``templates``, filled in; texts are escaped."""
    folder = Path(__file__).parent / "templates"
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**values)


def png(figure: Figure) -> str:
    """A figure as a data URI."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=plots.DPI, facecolor="white")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _further_pictures(further: Sequence[Drawn | svg.Figure]) -> list[Picture | svg.Figure]:
    return [
        drawn if isinstance(drawn, svg.Figure) else Picture(drawn.title, png(drawn.figure), drawn.caption, drawn.alt)
        for drawn in further
    ]


def _size_picture(hospitals: pd.DataFrame | None) -> list[Picture]:
    if hospitals is None or hospitals.empty:
        return []
    means, kind = tables.hospital_means(hospitals), reporting(hospitals)
    title, said = kind.title, []
    groups = list(means.groupby(tables.KEYS, sort=False))
    names = tables.labels(pd.DataFrame([key for key, _ in groups], columns=tables.KEYS))
    for name, (_, group) in zip(names, groups, strict=True):
        values = group.loc[group["n_test"] > 0, kind.headline].dropna().to_numpy()
        if len(values):
            figures = values.min(), values.max(), float(worst_decile(values, larger=kind.larger))
            low, high, worst = (f"{value:.{max(0, kind.decimals(values) - 1)}f}" for value in figures)
            decile = "" if len(values) < FEW_HOSPITALS else f", worst decile {worst}"
            said.append(f"{name}: {len(values)} hospitals from {low} to {high}{decile}")
    dot = "a hospital's mean over seeds" if "seed" in hospitals and hospitals["seed"].nunique() > 1 else "a hospital"
    return [
        Picture(
            f"{title} by hospital size",
            png(plots.auroc_by_size(hospitals)),
            f"Each dot is {dot}; triangles are the tenth with the {kind.worst} {title}. A line is least squares "
            f"on these rows, and says nothing of other hospitals without its interval.",
            f"Scatter plots of {title} against stays. {'; '.join(said) or f'No hospital has a defined {title}'}.",
        )
    ]


def _curves_picture(rounds: pd.DataFrame | None) -> list[Picture]:
    if rounds is None:
        return []
    kind = reporting(rounds)
    figure, title = kind.headline, kind.title
    if figure not in rounds:
        return []
    known = rounds if "model" in rounds else rounds.assign(model="global")
    known = known[known[figure].notna()]
    if known["round"].nunique() < 2:  # a point for each strategy is no curve
        return []
    lines = list(known.groupby(tables.KEYS, sort=False))
    names = tables.labels(pd.DataFrame([key for key, _ in lines], columns=tables.KEYS))
    last = [line.loc[line["round"] == line["round"].max(), figure].mean() for _, line in lines]
    digits = kind.decimals(last)
    said = "; ".join(f"{name} ends at {value:.{digits}f}" for name, value in zip(names, last, strict=True))
    several = "seed" in rounds and rounds["seed"].nunique() > 1
    return [
        Picture(
            "Accuracy by round",
            png(plots.curves(rounds)),
            f"Mean {title} over hospitals after each round." + (" Bands: one deviation over seeds." if several else ""),
            f"Line plot of mean {title} by round. {said}.",
        )
    ]


def _alt(table: pd.DataFrame, names: Sequence[str], *figures: str) -> str:
    """The plotted points as a sentence."""
    kind = reporting(table)
    digits = kind.decimals(table[kind.headline])
    words = {
        kind.headline: (f"mean {kind.title}", digits),
        "worst_decile": ("worst decile", digits),
        "size_bias_abs": ("absolute size bias", digits + 1),
    }
    points = [
        f"{name}: "
        + ", ".join(
            f"{said} {plus_minus(value, float('nan'), decimals)}"
            for (said, decimals), value in zip((words[figure] for figure in figures), row, strict=True)
        )
        for name, row in zip(names, table[list(figures)].to_numpy(float), strict=True)
    ]
    return "Scatter plot. " + "; ".join(points) + "."


def _row(table: pd.DataFrame, key: tuple[str, str]) -> int:
    return list(zip(table["strategy"], table["model"], strict=True)).index(key)

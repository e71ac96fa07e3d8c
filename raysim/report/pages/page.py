"""The content of the pages of a comparison, a run and a hospital."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from raysim.engine.job import Result
from raysim.metrics.labels import reporting
from raysim.report import tables
from raysim.report.figures import models as figures
from raysim.report.judgement.answer import answer_from
from raysim.report.judgement.card import Card
from raysim.report.judgement.compose import comparison_card
from raysim.report.judgement.evidence import Evidence, evidence_from
from raysim.report.judgement.gathered import Asked
from raysim.report.judgement.noise import Noise
from raysim.report.naming import MODELS, Key, minus, names
from raysim.report.pages import tabs
from raysim.report.pages.rendering import Page, Provenance
from raysim.report.pages.section import MOST_HOSPITALS, NOTHING, Figures, Links, Material, Supplement
from raysim.report.pages.sentences import run_lead
from raysim.report.panel import sent

MANY_NOTE = (
    f"With more than {MOST_HOSPITALS:,} hospitals, this page lists no single hospital; hospitals.csv has them all."
)


def comparison_page(
    title: str,
    per_seed: pd.DataFrame,
    provenance: Provenance,
    *,
    baseline: str,
    hospitals: pd.DataFrame | None = None,
    rounds: pd.DataFrame | None = None,
    differences: pd.DataFrame | None = None,
    evidence: Evidence | None = None,
    card: Card | None = None,
    before: Sequence[str] = (),
    results: Sequence[Result] = (),
    first: Figures = (),
    supplement: Supplement = NOTHING,
    noise: Mapping[Key, Noise] | None = None,
    part: str = "test",
) -> Page:
    """Build the report page of a comparison.

    - ``per_seed`` and ``hospitals``: as in :mod:`raysim.report.tables`. Without ``hospitals``, strategies are not
      compared.
    - ``rounds``: one row for each strategy, model, seed and evaluated round.
    - ``differences``, ``evidence`` (paired differences) and ``card`` (the decision card) are computed if omitted.
    - ``before``: sentences that precede the reasons for the recommendation.
    - ``results``: the runs; without them the page has no cards of hospitals.
    - ``noise``: differences between hospitals compared with chance, from :func:`raysim.report.judgement.noise.noise`.
    - ``part``: the evaluated part of the rows, such as ``test``.
    """
    nobody = pd.DataFrame(columns=[*tables.KEYS, "seed", "hospital", "n_test", reporting(per_seed).headline])
    of_hospitals = nobody if hospitals is None else hospitals
    if evidence is None:
        evidence = evidence_from(per_seed, of_hospitals, baseline, sent(results))
    if differences is None:
        differences = tables.differences(per_seed, baseline, hospitals, sent=sent(results))
    table = tables.comparison(per_seed, hospitals)
    titles = names(table, {result.label: result.title for result in results if result.title})
    if card is None:
        card = comparison_card(
            evidence, results, of_hospitals, Asked("the label", part, None, True), names=titles, noise=noise or {}
        )
    evidence = None if evidence is None else evidence.renamed(titles)
    distinct = _distinct(evidence, titles)
    folded = table[[(str(a), str(b)) in distinct for a, b in table[tables.KEYS].to_numpy()]].reset_index(drop=True)
    against = tables.baseline_of(table, baseline)
    material = Material(
        per_seed,
        folded,
        titles,
        distinct,
        figures.styles(table),
        results,
        supplement,
        noise or {},
        compared=True,
        part=part,
        hospitals=hospitals,
        rounds=rounds,
        differences=differences,
        evidence=evidence,
        baseline=baseline,
        against=against,
        first=first,
    )
    answer = answer_from(card, evidence, noise, (*before, *_many(material)))
    material = replace(material, reasons=answer.reasons, caution=answer.caution)
    return _page(
        "comparison",
        material,
        title=title,
        provenance=provenance,
        card=card,
        several=len(provenance.seeds) > 1,
        baseline=titles[against] if against else "",
    )


def _distinct(evidence: Evidence | None, titles: Mapping[Key, str]) -> dict[Key, str]:
    """Return the display names of models; of several models with equal results, only one is included."""
    if evidence is None:
        return dict(titles)
    keys = {entry.key for entry in (*evidence.entries, *evidence.references)}
    return {key: name for key, name in titles.items() if key in keys}


def _many(material: Material) -> list[str]:
    return [] if material.one_by_one else [MANY_NOTE]


def _page(name: str, material: Material, *, title: str, provenance: Provenance, card: Card, **further: Any) -> Page:
    """Build a page from the values of its sections and from values that sections share."""
    kind = reporting(material.table)
    return Page(
        tabs.sheet(name),
        {
            "title": title,
            "provenance": provenance,
            "task": {"title": kind.title, "larger": kind.larger, "worst": kind.worst},
            "part": material.part,
            "few": tables.few(material.table),
            "card": _framed(card),
            "noise_seed": provenance.seeds[0] if provenance.of_seed is None else provenance.of_seed,
            **further,
            **tabs.contents(name, material),
        },
    )


def _framed(card: Card) -> dict[str, Any]:
    lines = [
        {"fact": line.fact, "state": line.state, "text": minus(line.text), "remedy": minus(line.remedy)}
        for line in card.lines
    ]
    return {"what": card.what, "headline": minus(card.headline), "lines": lines}


def run_page(
    title: str,
    per_model: pd.DataFrame,
    provenance: Provenance,
    *,
    card: Card,
    hospitals: pd.DataFrame | None = None,
    rounds: pd.DataFrame | None = None,
    result: Result | None = None,
    supplement: Supplement = NOTHING,
    training: str = "",
    sizes: Mapping[str, str] | None = None,
    noise: Mapping[Key, Noise] | None = None,
    part: str = "test",
) -> Page:
    """Build the report page of one run.

    - ``per_model``: one row per model, with the columns of ``per_seed`` (:mod:`raysim.report.tables`).
    - ``result``: the run; without it the page has no cards of hospitals.
    - ``training``: a sentence on convergence.
    - ``sizes``: sentences on how each model's performance depends on hospital size.
    - ``noise``: differences between hospitals compared with chance, from :func:`raysim.report.judgement.noise.noise`.
    - ``part``: the evaluated part of the rows, such as ``test``.
    """
    table = tables.comparison(per_model)
    models = [str(model) for model in table["model"]]
    titles: dict[Key, str] = {(str(a), str(b)): MODELS.get(str(b), str(b)) for a, b in table[tables.KEYS].to_numpy()}
    material = Material(
        per_model,
        table,
        titles,
        titles,
        figures.styles(table),
        [result] if result else [],
        supplement,
        noise or {},
        compared=False,
        part=part,
        hospitals=hospitals,
        rounds=rounds,
    )
    reasons = [*run_lead(table, models, sizes, hospitals), *_many(material), training]
    material = replace(material, reasons=[text for text in reasons if text])
    return _page("run", material, title=title, provenance=provenance, card=card)


def hospital_page(tree: Mapping[str, Any], number: int, links: Links = ()) -> Page:
    """Build the page of one hospital from the content of a run's or comparison's ``report.json``.

    ``number`` is the hospital's index in that file; ``links`` are links to further pages.
    """
    values = tree["values"]
    cards = values["cards"]
    hospital = cards["hospitals"][number]
    plots = [*values["gain_figures"], *values["accuracy_figures"]]
    return Page(
        tabs.sheet("hospital"),
        {
            "title": hospital["name"],
            "of": values["title"],
            "provenance": values["provenance"],
            "links": links,
            "number": number,
            "hospital": hospital,
            "tables": cards["tables"],
            "gains": values.get("gains", []),
            "figures": [figure for figure in plots if "data-h" in _markup(figure) and not figure.get("more")],
        },
    )


def _markup(figure: Mapping[str, Any]) -> str:
    return str(figure.get("markup", ""))

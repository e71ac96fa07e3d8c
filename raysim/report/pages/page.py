"""The content of the pages of a comparison, a run and a hospital; each is one file with its styles and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from raysim.engine.job import Result
from raysim.metrics.labels import reporting
from raysim.report import tables
from raysim.report.figures import models as figures
from raysim.report.figures.forest import equal_sentences, forest
from raysim.report.hospital import gain_by_size, gains, your_hospital
from raysim.report.judgement import judged
from raysim.report.judgement.answer import answer_from
from raysim.report.judgement.card import Card
from raysim.report.judgement.compose import comparison_card
from raysim.report.judgement.evidence import Evidence, evidence
from raysim.report.judgement.gathered import Asked
from raysim.report.judgement.noise import Noise
from raysim.report.naming import MODELS, Key, minus, names
from raysim.report.pages import tabs
from raysim.report.pages.beside import NOTHING, Beside, Figures, Links, common
from raysim.report.pages.contents import (
    body_rows,
    columns,
    difference_columns,
    difference_rows,
)
from raysim.report.pages.rendering import Page, Provenance
from raysim.report.pages.sentences import run_lead, undefined_sentence, worst_served
from raysim.report.panel import sent
from raysim.report.sections import accuracy
from raysim.report.sections.section import Material

NO_CARDS: Mapping[str, Any] = {"hospitals": [], "tables": []}

MOST_HOSPITALS = 20_000
"""The most hospitals that a page shows one by one: a page of a million would have gigabytes."""

MANY_SAID = (
    f"Of more than {MOST_HOSPITALS:,} hospitals this page shows none by itself; hospitals.csv has the figures of each."
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
    shown: Evidence | None = None,
    card: Card | None = None,
    before: Sequence[str] = (),
    results: Sequence[Result] = (),
    first: Figures = (),
    beside: Beside = NOTHING,
    noise: Mapping[Key, Noise] | None = None,
    part: str = "test",
) -> Page:
    """The page of a comparison; frames as in :mod:`raysim.report.tables` and :func:`figures.curves`.

    - ``hospitals``: without it nothing can be compared.
    - ``differences`` as :func:`tables.differences` gives them; ``shown``, the evidence; ``card``, the decision card.
    Each is computed where it is left out.
    - ``before``: sentences before the reasons of the answer.
    - ``results``: the runs, without which nothing is shown of single hospitals.
    - ``first``: the figures that the page begins with; ``beside``: what it has beside the results.
    - ``noise`` of the first seed, as :func:`raysim.report.judgement.noise.noise` gives it.
    - ``part``: the part of the rows that was evaluated.
    """
    nobody = pd.DataFrame(columns=[*tables.KEYS, "seed", "hospital", "n_test", reporting(per_seed).headline])
    of_hospitals = nobody if hospitals is None else hospitals
    if shown is None:
        shown = evidence(per_seed, of_hospitals, baseline, sent(results))
    if differences is None:
        differences = tables.differences(per_seed, baseline, hospitals, sent=sent(results))
    table, kind = tables.comparison(per_seed), reporting(per_seed)
    called = names(table, {result.label: result.title for result in results if result.title})
    if card is None:
        card = comparison_card(
            shown, results, of_hospitals, Asked("the label", part, None, True), names=called, noise=noise or {}
        )
    shown = None if shown is None else shown.renamed(called)
    one_by_one = not _too_many(results)
    many = () if one_by_one else (MANY_SAID,)
    answer = answer_from(card, shown, noise, (*before, *many))
    looks = figures.styles(table)
    against = tables.baseline_of(table, baseline)
    distinct = _distinct(shown, called)
    folded = _rows_of(table, distinct)
    best = None if shown is None else shown.entries[shown.best].key
    cards, gained = _hospitals(results, called, baseline, best, part, hospitals)
    reached = figures.trade_offs(folded, distinct, looks) if not tables.few(table) else []
    reached += figures.curves(None if rounds is None else _rows_of(rounds, distinct), distinct, looks)
    numbers = {each["name"]: number for number, each in enumerate(cards["hospitals"])}
    chosen = [key for key in (best, *_alone(results, table)) if key is not None]
    reached += figures.by_size(hospitals if one_by_one else None, folded, distinct, looks, numbers, chosen)
    if hospitals is not None and against is not None and "accuracy" in hospitals:
        local = accuracy.local_accuracy(hospitals)
        away = figures.from_reference(
            local, "accuracy", "accuracy", against, distinct | {against: called[against]}, looks
        )
        reached += [dataclasses.replace(figure, more=True) for figure in away]
    return Page(
        "comparison.html.j2",
        {
            "title": title,
            "provenance": provenance,
            "task": {"title": kind.title, "larger": kind.larger, "worst": kind.worst},
            "part": part,
            "few": tables.few(table),
            "first": list(first),
            "card": _framed(card),
            "reasons": [minus(reason) for reason in answer.reasons],
            "caution": answer.caution,
            "forest": [] if shown is None else forest(shown, differences, table, looks),
            "evidence": "" if hospitals is None else _evidence(hospitals, part, called),
            "events": [] if hospitals is None else judged.events_figure(hospitals, part),
            "cards": cards,
            "gains_by_size": "" if best is None else minus(gain_by_size.sentence(results, best)),
            "gains": [] if gained is None else gained.sentences(),
            "gain_figures": [] if gained is None or not one_by_one else gains.figure(gained),
            **_comparison_tables(_rows_of(per_seed, distinct), folded, distinct, differences),
            "equal": [] if shown is None else equal_sentences(shown),
            "several": len(provenance.seeds) > 1,
            "baseline": called[against] if against else "",
            "noise_seed": provenance.seeds[0] if provenance.of_seed is None else provenance.of_seed,
            "undefined": undefined_sentence(hospitals, table, part),
            "accuracy_figures": reached,
            **tabs.contents(
                "comparison", Material(per_seed, folded, called, distinct, looks, results, beside, noise or {})
            ),
            **common(beside),
        },
    )


def _distinct(shown: Evidence | None, called: Mapping[Key, str]) -> dict[Key, str]:
    """The names of the models that differ: of those that ended equal, the one by which they are called."""
    if shown is None:
        return dict(called)
    kept = {entry.key for entry in (*shown.entries, *shown.references)}
    return {key: name for key, name in called.items() if key in kept}


def _rows_of(frame: pd.DataFrame, keys: Mapping[Key, str]) -> pd.DataFrame:
    """The rows of the models ``keys``; of a frame without models, those of their strategies."""
    if "model" not in frame:
        return frame[frame["strategy"].isin({label for label, _ in keys})].reset_index(drop=True)
    inside = [(str(a), str(b)) in keys for a, b in frame[tables.KEYS].to_numpy()]
    return frame[inside].reset_index(drop=True)


def _alone(results: Sequence[Result], table: pd.DataFrame) -> list[Key]:
    """The model of hospitals that train alone, where that was run."""
    labels = [result.label for result in results if result.alone]
    keys = [(str(a), str(b)) for a, b in table[tables.KEYS].to_numpy()]
    return [key for key in keys if key[0] in labels][-1:]


def _framed(card: Card) -> dict[str, Any]:
    """The card as the frame of pages lays it out: ``what``, ``headline``, and ``lines`` with state, text, remedy."""
    lines = [
        {"fact": line.fact, "state": line.state, "text": minus(line.text), "remedy": minus(line.remedy)}
        for line in card.lines
    ]
    return {"what": card.what, "headline": minus(card.headline), "lines": lines}


def _comparison_tables(
    per_seed: pd.DataFrame,
    table: pd.DataFrame,
    called: Mapping[Key, str],
    differences: pd.DataFrame,
) -> dict[str, Any]:
    """Headings and rows of the tables on a comparison's page; ``called`` has the names of the rows of ``table``."""
    names = list(called.values())
    return {
        "columns": [heading for _, heading, *_ in columns(table)],
        "body": body_rows(table, names),
        "difference_columns": [heading for _, heading, _ in difference_columns(table)],
        "differences": difference_rows(table, names, differences),
        "accuracy_columns": [heading for _, heading, _ in accuracy.COLUMNS],
        "accuracy": accuracy.accuracy_rows(per_seed, names),
    }


def run_page(
    title: str,
    per_model: pd.DataFrame,
    provenance: Provenance,
    *,
    card: Card,
    hospitals: pd.DataFrame | None = None,
    rounds: pd.DataFrame | None = None,
    result: Result | None = None,
    beside: Beside = NOTHING,
    training: str = "",
    sizes: Mapping[str, str] | None = None,
    noise: Mapping[Key, Noise] | None = None,
    part: str = "test",
) -> Page:
    """The page of one run: ``per_model`` has one row per model served, columns as ``per_seed``.

    - ``card``: its decision card.
    - ``result``: the run, without which nothing is shown of single hospitals.
    - ``beside``: what it has beside the results.
    - Sentences: ``training`` on convergence, and ``sizes`` on how each model depends on hospitals' size.
    - ``noise``, as :func:`raysim.report.judgement.noise.noise` gives it.
    - ``part``: the part of the rows that was evaluated.
    """
    table, kind = tables.comparison(per_model), reporting(per_model)
    models = [str(model) for model in table["model"]]
    called: dict[Key, str] = {(str(a), str(b)): MODELS.get(str(b), str(b)) for a, b in table[tables.KEYS].to_numpy()}
    looks = figures.styles(table)
    listed = [result] if result else []
    cards, _ = _hospitals(listed, called, "", None, part, hospitals)
    one_by_one = not _too_many(listed)
    numbers = {each["name"]: number for number, each in enumerate(cards["hospitals"])}
    reasons = [*run_lead(table, models, sizes, hospitals), "" if one_by_one else MANY_SAID, training]
    return Page(
        "run.html.j2",
        {
            "title": title,
            "provenance": provenance,
            "task": {"title": kind.title, "larger": kind.larger, "worst": kind.worst},
            "part": part,
            "few": tables.few(table),
            "card": _framed(card),
            "reasons": [minus(text) for text in reasons if text],
            "evidence": "" if hospitals is None or hospitals.empty else _evidence(hospitals, part, called),
            "events": [] if hospitals is None or hospitals.empty else judged.events_figure(hospitals, part),
            "cards": cards,
            "gain_figures": []
            if result is None or not one_by_one
            else gains.standing(gains.served([result], (result.label, models[-1])), kind, models[-1]),
            "columns": [heading for _, heading, *_ in columns(table)],
            "body": body_rows(table, list(called.values())),
            "undefined": undefined_sentence(hospitals, table, part),
            "worst": worst_served(hospitals, part),
            "accuracy_figures": [
                *figures.curves(rounds, called, looks),
                *figures.by_size(hospitals if one_by_one else None, table, called, looks, numbers, list(called)[-1:]),
            ],
            "noise_seed": provenance.seeds[0],
            **tabs.contents("run", Material(per_model, table, called, called, looks, listed, beside, noise or {})),
            **common(beside),
        },
    )


def hospital_page(tree: Mapping[str, Any], number: int, links: Links = ()) -> Page:
    """The page of hospital ``number``, from the content of a run's or comparison's ``report.json``."""
    values = tree["values"]
    cards = values["cards"]
    hospital = cards["hospitals"][number]
    drawn = [*values["gain_figures"], *values["accuracy_figures"]]
    return Page(
        "hospital.html.j2",
        {
            "title": hospital["name"],
            "of": values["title"],
            "provenance": values["provenance"],
            "links": links,
            "number": number,
            "hospital": hospital,
            "tables": cards["tables"],
            "gains": values.get("gains", []),
            "figures": [figure for figure in drawn if "data-h" in _markup(figure) and not figure.get("more")],
        },
    )


def _evidence(hospitals: pd.DataFrame, part: str, called: Mapping[Key, str]) -> str:
    """How many hospitals are judged on how many rows, and which models are not trained at some of them."""
    return " ".join([judged.sentence(hospitals, part), *judged.not_trained(hospitals, called)])


def _too_many(results: Sequence[Result]) -> bool:
    """Whether there are more hospitals than a page shows one by one."""
    return bool(results) and len(results[0].federation.hospitals) > MOST_HOSPITALS


def _markup(figure: Mapping[str, Any]) -> str:
    return str(figure.get("markup", ""))


def _hospitals(
    results: Sequence[Result],
    called: Mapping[Key, str],
    baseline: str,
    best: Key | None,
    part: str,
    hospitals: pd.DataFrame | None,
) -> tuple[Mapping[str, Any], gains.Gains | None]:
    """The cards of all hospitals, where a page shows each, and their gains under the model ``best``."""
    if not results or hospitals is None:
        return NO_CARDS, None
    cards = NO_CARDS
    if not _too_many(results):
        cards = your_hospital.cards(results, called, baseline, best, part, hospitals)
    if best is None:
        return cards, None
    return cards, your_hospital.recommended_gains(results, called, baseline, best)

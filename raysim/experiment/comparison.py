"""Writes the results of a comparison: tables, recommendation, figures and page."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from raysim.config.schema import Config
from raysim.engine import timing
from raysim.engine.job import Result
from raysim.experiment import scores as existing
from raysim.experiment import tuning
from raysim.experiment.answering import FILE, card_of_comparison
from raysim.experiment.run_page import (
    PAGE,
    attribute_figures,
    files_in,
    page_provenance,
    tracked_at,
    write_page,
)
from raysim.experiment.scores import NONE as NO_SCORES
from raysim.experiment.scores import Scores
from raysim.experiment.stacked_tables import (
    comparison_table,
    for_plots,
    judged,
    per_hospital,
    per_round,
    per_seed,
    splits,
    stacked,
)
from raysim.experiment.unseen import findings
from raysim.experiment.unseen.files import Found
from raysim.report import svg, tables
from raysim.report.figures import coefficients, importance
from raysim.report.figures.models import styles
from raysim.report.hospital import clinical, clinical_rows
from raysim.report.judgement import noise
from raysim.report.judgement.answer import answer_from
from raysim.report.judgement.evidence import evidence_from
from raysim.report.naming import distinct, names
from raysim.report.pages.page import comparison_page
from raysim.report.pages.section import Supplement
from raysim.report.panel import sent
from raysim.report.supplement import attacks, privacy, protection, training, virtual_time
from raysim.storage import clinical_tables, detail_tables
from raysim.storage.manifest import Manifest
from raysim.storage.results import PREDICTIONS, SPLIT, write_config


def write_comparison(
    out: Manifest,
    config: Config,
    results: Sequence[Result],
    first: Sequence[svg.Figure] = (),
    found: str = "",
    unseen: Found | None = None,
    scores: Scores = NO_SCORES,
    before: Sequence[str] = (),
) -> pd.DataFrame:
    """Write a comparison's files, and return the table of ``comparison.csv``.

    - ``first``: figures at the top of the page.
    - ``found``: one or more sentences before the headline; empty for none.
    - ``unseen``: results at hospitals that were left out of training in turn.
    - ``scores``: results of existing scores, such as APACHE, with which strategies are compared.
    - ``before``: sentences that are put before the reasons of the recommendation.
    """
    everything = [*results, *scores.results]
    frame, rounds = _with_virtual_time(per_seed(everything), config, everything), per_round(results)
    hospitals = per_hospital(everything, config.evaluation.part)
    out.csv("hospitals.csv", hospitals)
    if len(results[0].federation.classes) == 2 and all(result.outcome.predictions for result in results):
        out.rows(PREDICTIONS, judged(results, config.evaluation.part))
    hospitals = for_plots(hospitals, config.evaluation.part)
    sketched = {**sent(results), **scores.sent}
    differences = tables.differences(frame, config.reference, hospitals, sent=sketched)
    table = comparison_table(frame, differences, hospitals, folds=config.data.split.folds is not None)
    by_chance = noise.noise(results, config.evaluation.minimum_events)
    by_chance |= noise.noise(scores.results, config.evaluation.minimum_events)
    for each in scores.results:
        clinical_tables.write(out, each.folder, each.federation, each.outcome, config.evaluation.clinical)
    evidence = evidence_from(
        frame, hospitals, config.reference, sketched, {result.label for result in results if result.alone}
    )
    dominated = frozenset() if evidence is None else evidence.dominated
    table["dominated"] = [key in dominated for key in zip(table["strategy"], table["model"], strict=True)]
    tried = tables.read_csv(out.folder / tuning.FILE) if tuning.FILE in out else None
    edge = "" if tried is None else tuning.at_the_edge(tried)
    outside = None if unseen is None else findings.lines(unseen, config.evaluation.clinical)
    card = card_of_comparison(config, results, frame, hospitals, evidence, by_chance, edge, outside)
    if found:
        card = dataclasses.replace(card, headline=f"{found} {card.headline}")
    titles = distinct(
        (each.label for each in everything), {each.label: each.title for each in everything if each.title}
    )
    tuned = [] if tried is None else [tuning.sentence(tried.replace({"strategy": titles}))]
    renamed = [dataclasses.replace(result, label=titles[result.label]) for result in results]
    leading = (*before, *tuned, *existing.lines(scores), *training.sentences(renamed))
    reasons = (*leading, *privacy.sentences(renamed))
    overview = tables.comparison(frame)
    answer = answer_from(card, evidence, by_chance, reasons, names(overview, titles))
    if by_chance:
        out.csv("noise.csv", noise.table(by_chance))
    federation = results[0].federation
    out.csv("comparison.csv", table)
    out.json(FILE, answer.as_json() | tables.added_figures(frame))
    if results[0].outcome.noisy_sizes is None:
        out.rows(SPLIT, splits(results))
    write_config(out, config.frozen(), federation)
    part = config.evaluation.part
    limited = (*privacy.sentences(renamed), *attacks.sentences(renamed))
    taken = [] if evidence is None else [evidence.entries[evidence.best].key[0]]
    fitted = [*coefficients.plots(results, taken), *importance.plots(results, taken)]
    alone = None if evidence is None or evidence.alone is None else evidence.references[evidence.alone].key
    chosen = [] if evidence is None else [evidence.entries[evidence.best].key, *([] if alone is None else [alone])]
    looks = styles(overview)
    outside_models = {row.key: row.name for row in card.rows if row is card.rows[0] or row.key == alone}
    taken += dict.fromkeys(each.label for each in scores.results)
    served = clinical_rows.of_runs([(each.label, titles[each.label], each.folder) for each in everything])
    acting = [*taken, *([] if alone is None else [alone[0]])]
    federations = {result.seed: result.federation for result in results}
    page = comparison_page(
        f"{config.name}: {card.predicts}",
        frame,
        page_provenance(config.frozen(), federations, "raysim compare config.yaml", counted=not config.hides_sizes),
        hospitals=hospitals,
        rounds=rounds,
        baseline=config.reference,
        differences=differences,
        evidence=evidence,
        card=card,
        before=(*leading, *limited),
        results=results,
        first=first,
        supplement=Supplement(
            use=[*clinical.plots(served, part, acting), *fitted],
            use_shared=[*clinical.shared(served, part, acting), *fitted],
            equity=[
                *([] if unseen is None or not outside_models else findings.plots(unseen, outside_models, looks)),
                *attribute_figures(out, hospitals, results, overview, chosen, titles, sketched),
                *_patient_group_figures(frame, results, out, part, titles, [label for label, _ in chosen]),
                *_patient_cluster_figures(out, results, frame, hospitals, config.reference, titles),
            ],
            cost=_virtual_time_figures(config, results, titles),
            method=training.plots(results),
            protections=protection.protections(config, results),
            traffic=protection.traffic(results, titles),
            privacy=limited,
            links=tracked_at(config.tracking.model_dump()),
            files=files_in(out),
            runs=_runs(out.folder, results),
        ),
        noise=by_chance,
        part=part,
    )
    write_page(out, page)
    return table


def _patient_group_figures(
    frame: pd.DataFrame,
    results: Sequence[Result],
    out: Manifest,
    part: str,
    titles: Mapping[str, str],
    chosen: Sequence[str],
) -> list[svg.Figure]:
    """Write the tables on groups of patients, and return plots of the ``chosen`` strategies."""
    of_runs = stacked(results, detail_tables.of_groups)
    for name, table in of_runs.items():
        out.csv(name, table)
    if (patients := of_runs.get("patients.csv")) is None:
        return []
    from raysim.report.supplement import patient_groups

    if chosen:
        patients = patients[patients["strategy"].isin(chosen)].reset_index(drop=True)
    return [patient_groups.plots(frame, patients, part, titles, chosen)]


CLUSTER_FILES = ("patient_clusters.csv", "feature_overlap.csv", "protocol.csv")
"""The files of comparisons with clusters of patients; see :mod:`raysim.report.supplement.patient_clusters`."""


def _patient_cluster_figures(
    out: Manifest,
    results: Sequence[Result],
    frame: pd.DataFrame,
    hospitals: pd.DataFrame,
    reference: str,
    titles: Mapping[str, str],
) -> list[svg.Figure]:
    """Write the tables on clusters of patients, and return their plots."""
    of_runs = stacked(results, detail_tables.tables)
    composition, overlap = (of_runs.get(name) for name in CLUSTER_FILES[:2])
    if composition is None:
        return []
    from raysim.report.supplement import patient_clusters

    protocol = patient_clusters.protocol(frame, hospitals, reference, overlap)
    for name, table in zip(CLUSTER_FILES, (composition, overlap, protocol), strict=True):
        if table is not None:
            out.csv(name, table)
    return [patient_clusters.plot(composition, titles)]


def _with_virtual_time(frame: pd.DataFrame, config: Config, results: Sequence[Result]) -> pd.DataFrame:
    """Add each run's simulated time to the rows of :func:`per_seed`."""
    rows = [
        timing.figures(result.outcome, config.system, result.federation.task)
        for result in results
        for _ in result.outcome.metrics
    ]
    return frame.join(pd.DataFrame(rows, index=frame.index))


def _virtual_time_figures(config: Config, results: Sequence[Result], titles: Mapping[str, str]) -> list[svg.Figure]:
    if config.system is None:
        return []
    task = results[0].federation.task
    table = timing.by_time(results, task.headline)
    return virtual_time.plots(table, task, config.system.target.get(task.headline), titles)


def _runs(folder: Path, results: Sequence[Result]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each strategy's name, with the seed and the address of each page of its runs."""
    pages: dict[str, list[tuple[str, str]]] = {}
    names = distinct((each.label for each in results), {each.label: each.title for each in results if each.title})
    for result in results:
        if not (result.folder / PAGE).exists():
            continue
        address = quote((result.folder / PAGE).relative_to(folder).as_posix())
        pages.setdefault(names[result.label], []).append((str(result.seed), address))
    return list(pages.items())

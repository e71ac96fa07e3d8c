"""What an experiment's results become: the tables, plots and page of a comparison, and the page of a run."""

from __future__ import annotations

import dataclasses
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd

from raysim.config import plugins
from raysim.config.schema import Config
from raysim.core.plain_yaml import dumped
from raysim.data.federation import PARTS, Federation
from raysim.engine import timing
from raysim.engine.job import Result
from raysim.experiment import tuning
from raysim.experiment.noise_beside import NoiseBeside
from raysim.metrics.labels import reporting
from raysim.report import svg, tables
from raysim.report.hospital import clinical
from raysim.report.judgement import noise
from raysim.report.judgement.answer import answer_from
from raysim.report.judgement.evidence import evidence
from raysim.report.pages.page import Page, Provenance, comparison_page, run_page
from raysim.report.sections import attacks, privacy, training, virtual_time
from raysim.storage.manifest import Manifest
from raysim.storage.results import SPLIT, hospitals_table, provenance, split_table, traffic, write_config
from raysim.tracking.stores import NOWHERE

PAGE = "report.html"


def per_seed(results: Sequence[Result]) -> pd.DataFrame:
    """A row a strategy, model served and seed: every federation-level metric, seconds, bytes of set-up and rounds."""
    return pd.DataFrame(
        {
            "strategy": result.label,
            "model": model,
            "seed": result.seed,
            "yardstick": result.yardstick,
            **metrics,
            "seconds": result.outcome.seconds,
            **traffic(result.outcome),
        }
        for result in results
        for model, metrics in result.outcome.metrics.items()
    )


def per_round(results: Sequence[Result]) -> pd.DataFrame:
    """A row a strategy, model served, seed and round that was evaluated: its federation-level metrics."""
    return pd.DataFrame(
        {"strategy": result.label, "model": model, "seed": result.seed, "round": row.round, **metrics}
        for result in results
        for row in result.outcome.rounds
        for model, metrics in row.metrics.items()
    )


def per_hospital(results: Sequence[Result], part: str) -> pd.DataFrame:
    """The hospitals' tables of all runs, with ``strategy`` and ``seed`` in front."""
    stacked = []
    for result in results:
        table = hospitals_table(result.federation, result.outcome, part)
        table.insert(0, "strategy", result.label)
        table.insert(1, "seed", result.seed)
        stacked.append(table)
    return pd.concat(stacked, ignore_index=True)


def splits(results: Sequence[Result]) -> pd.DataFrame:
    """``split.csv`` of a comparison: the split of each seed, which stands in front."""
    stacked = []
    for seed, federation in {result.seed: result.federation for result in results}.items():
        table = split_table(federation)
        table.insert(0, "seed", seed)
        stacked.append(table)
    return pd.concat(stacked, ignore_index=True)


def stacked_files(results: Sequence[Result], name: str) -> pd.DataFrame | None:
    """The tables ``name`` in the folders of all runs, with ``strategy`` and ``seed`` in front; None where none has."""
    stacked = []
    for result in results:
        if name in Manifest.read(result.folder):
            table = tables.read_csv(result.folder / name)
            table.insert(0, "strategy", result.label)
            table.insert(1, "seed", result.seed)
            stacked.append(table)
    return pd.concat(stacked, ignore_index=True) if stacked else None


def comparison_table(frame: pd.DataFrame, differences: pd.DataFrame, *, folds: bool = False) -> pd.DataFrame:
    """``comparison.csv``: a row a strategy and model, from :func:`per_seed` and the ``differences`` in it.

    Each metric has its mean over seeds and ``_std`` (ddof 1). ``<metric>_difference`` (and its ``_std``) is the paired
    difference against the reference, ``_low`` and ``_high`` its 95 % interval (:func:`tables.differences`).
    Where seeds are ``folds`` of a cross-validation, ``_margin`` is half the width of a mean's 95 % interval over them.
    """
    table = tables.comparison(frame)
    others = frame.columns.difference([*table.columns, "seed", "yardstick"], sort=False)
    groups = frame.groupby(tables.KEYS, sort=False)[list(others)]
    wide = differences.pivot(index=tables.KEYS, columns="figure", values=list(_DIFFERENCE))
    pairs = [(str(name), str(figure)) for name, figure in wide.columns.to_frame(index=False).to_numpy()]
    wide.columns = pd.Index([f"{figure}_{_DIFFERENCE[name]}" for name, figure in pairs])
    wide = wide.dropna(axis=1, how="all")
    table = (
        table.join(groups.mean(), on=tables.KEYS)
        .join(groups.std(ddof=1).add_suffix("_std"), on=tables.KEYS)
        .join(wide, on=tables.KEYS)
    )
    return table.join(tables.margins(frame).add_suffix("_margin"), on=tables.KEYS) if folds else table


_DIFFERENCE = {"mean": "difference", "std": "difference_std", "low": "low", "high": "high"}


def write_comparison(
    out: Manifest,
    config: Config,
    results: Sequence[Result],
    first: Sequence[svg.Figure] = (),
    beside: NoiseBeside | None = None,
) -> pd.DataFrame:
    """Write a comparison's files; returns its table. ``first``: figures that its page begins with. ``beside``: who has
    heard of results, if somebody has.
    """
    frame, rounds = timed(per_seed(results), config, results), per_round(results)
    hospitals = per_hospital(results, config.evaluation.part)
    out.csv("hospitals.csv", hospitals)
    hospitals = for_plots(hospitals, config.evaluation.part)
    differences = tables.differences(frame, config.reference, hospitals)
    table = comparison_table(frame, differences, folds=config.data.split.folds is not None)
    by_chance = (beside or NoiseBeside(config.evaluation.minimum_events)).of(results)
    shown = evidence(frame, hospitals, config.reference)
    said = answer_from(shown, reporting(frame).title, by_chance)
    # First what makes its figures less than they seem.
    tuned = _tuned(out)
    caveats = (*tuned, *training.sentences(results), *privacy.sentences(results))
    said = dataclasses.replace(said, reasons=(*caveats, *said.reasons))
    called = [dataclasses.replace(result, label=result.title or result.label) for result in results]
    if by_chance:
        out.csv("noise.csv", noise.table(by_chance))
    federation = results[0].federation
    out.csv("comparison.csv", table)
    out.json("answer.json", said.as_json())
    if results[0].outcome.told_sizes is None:
        out.rows(SPLIT, splits(results))
    write_config(out, config.frozen(), federation)
    part = config.evaluation.part
    further = _clinical(results, part)
    titles = {result.label: result.title for result in results if result.title}
    further += drawn(frame, stacked_files(results, "patients.csv"), out, part, titles)
    further += [*time_drawn(config, results), *clusters_drawn(out, results, frame, hospitals, config.reference, titles)]
    further += training.drawn(results)
    federations = {result.seed: result.federation for result in results}
    page = comparison_page(
        config.name,
        frame,
        page_provenance(config.frozen(), federations, "raysim compare config.yaml", counted=not config.hides_sizes),
        hospitals=hospitals,
        rounds=rounds,
        baseline=config.reference,
        differences=differences,
        shown=shown,
        before=(*tuned, *training.sentences(called), *privacy.sentences(called), *attacks.sentences(called)),
        results=results,
        first=first,
        further=further,
        noise=by_chance,
        part=part,
        links=_links(out.folder, config, results),
    )
    write_page(out, page)
    for figure in page.figures():
        out.text(f"plots/{figure.name.replace('-', '_')}.svg", figure.standalone())
    return table


def _clinical(results: Sequence[Result], part: str) -> list[svg.Figure]:
    """Calibration and decisions of the headline models."""
    runs = [(result.label, result.title or result.label, result.folder) for result in results]
    return clinical.drawn(clinical.of_runs(runs), part)


def _tuned(out: Manifest) -> list[str]:
    """What is said of the tuning of a comparison, where there was one."""
    return [tuning.sentence(tables.read_csv(out.folder / tuning.FILE))] if tuning.FILE in out else []


def drawn(
    frame: pd.DataFrame, patients: pd.DataFrame | None, out: Manifest, part: str, titles: Mapping[str, str]
) -> list[svg.Figure]:
    """Write what only some comparisons have, and draw it: equity between patient groups."""
    if patients is None:
        return []
    from raysim.report.sections import patient_groups

    out.csv("patients.csv", patients)
    return [patient_groups.drawn(frame, patients, part, titles)]


CLUSTER_FILES = ("patient_clusters.csv", "feature_overlap.csv", "protocol.csv")
"""What only comparisons with clusters of patients leave; see :mod:`raysim.report.sections.patient_clusters`."""


def clusters_drawn(
    out: Manifest,
    results: Sequence[Result],
    frame: pd.DataFrame,
    hospitals: pd.DataFrame,
    reference: str,
    titles: Mapping[str, str],
) -> list[svg.Figure]:
    """Write the files of clusters of patients and draw them, where a run has such clusters."""
    composition, overlap = (stacked_files(results, name) for name in CLUSTER_FILES[:2])
    if composition is None:
        return []
    from raysim.report.sections import patient_clusters

    protocol = patient_clusters.protocol(frame, hospitals, reference, overlap)
    for name, table in zip(CLUSTER_FILES, (composition, overlap, protocol), strict=True):
        if table is not None:
            out.csv(name, table)
    return [patient_clusters.drawn(composition, titles)]


def timed(frame: pd.DataFrame, config: Config, results: Sequence[Result]) -> pd.DataFrame:
    """The rows of :func:`per_seed` with each run's virtual time; a target is one of the headline model."""
    rows = [
        timing.figures(result.outcome, config.system, result.federation.task)
        for result in results
        for _ in result.outcome.metrics
    ]
    return frame.join(pd.DataFrame(rows, index=frame.index))


def time_drawn(config: Config, results: Sequence[Result]) -> list[svg.Figure]:
    """The picture of virtual time, where some passes."""
    if config.system is None:
        return []
    task = results[0].federation.task
    table = timing.by_time(results, task.headline)
    titles = {result.label: result.title for result in results if result.title}
    return virtual_time.drawn(table, task.title, config.system.target.get(task.headline), titles)


def write_run_page(
    out: Manifest, result: Result, frozen: Mapping[str, object], config: Config, whole: Path | None = None
) -> None:
    """Write the ``report.html`` of a run of ``config``, which is written as ``frozen``; ``whole`` is the folder of the
    experiment that it is a part of, if it is one.
    """
    part, counted = config.evaluation.part, not config.hides_sizes
    back = [("all runs together", quote(Path(os.path.relpath(whole / PAGE, out.folder)).as_posix()))] if whole else []
    page = run_page(
        f"{result.title or result.label}, seed {result.seed}",
        per_seed([result]),
        page_provenance(frozen, {result.seed: result.federation}, "raysim run config.yaml", counted=counted),
        hospitals=for_plots(per_hospital([result], part), part),
        rounds=per_round([result]),
        further=[*training.drawn([result]), *clinical.drawn(clinical.of_run(result.label, result.folder), part)],
        training=training.of_run(result),
        privacy=privacy.of_run(result),
        attack=attacks.of_run(result),
        sizes=sizes_said(result),
        part=part,
        result=result,
        links=[*back, *_tracked(frozen.get("tracking"))],
    )
    write_page(out, page)


def write_page(out: Manifest, page: Page) -> None:
    """``report.html``, and in ``report.json`` what ``raysim report`` writes it from again."""
    out.text(PAGE, page.html())
    out.text("report.json", page.json())


def _links(folder: Path, config: Config, results: Sequence[Result]) -> list[tuple[str, str]]:
    """The pages of the single runs, and where MLflow has them."""
    links = [
        (
            f"{result.title or result.label}, seed {result.seed}",
            quote((result.folder / PAGE).relative_to(folder).as_posix()),
        )
        for result in results
    ]
    return [*links, *_tracked(config.tracking.model_dump())]


def _tracked(tracking: object) -> list[tuple[str, str]]:
    """How runs are looked at in MLflow: the address of a server, or without one the command, which has no address."""
    uri = str(tracking.get("uri") or "") if isinstance(tracking, Mapping) else ""
    if uri in ("", NOWHERE) or "@" in uri:  # a password stays with whoever gave it
        return []
    if uri.startswith(("http:", "https:")):
        return [("MLflow", uri)]
    return [(f"MLflow: raysim ui --uri {shlex.quote(uri)}", "")]


def sizes_said(result: Result) -> dict[str, str]:
    """For each model whose dependence on hospitals' size has an interval, what is to be said of it."""
    slopes = {
        model: noise.slope_of(sums, result.outcome.stays(result.federation, model).tolist())
        for model, sums in result.outcome.pairs.items()
    }
    return {model: noise.size_sentence(slope) for model, slope in slopes.items() if np.isfinite(slope.low)}


def for_plots(hospitals: pd.DataFrame, part: str) -> pd.DataFrame:
    """With the columns that plots and intervals read, whichever part was evaluated."""
    return hospitals.rename(columns={"n_total": "stays", f"n_{part}": "n_test", f"events_{part}": "events_test"})


def page_provenance(
    frozen: Mapping[str, object], federations: Mapping[int, Federation], command: str, *, counted: bool
) -> Provenance:
    """From the data of each seed: what is told of it is that of the first seed, and named so where others differ.

    Where rows are not to be ``counted``, nothing is said of how many there are.
    """
    data, (first, federation) = frozen["data"], next(iter(federations.items()))
    one = len({federation.fingerprint for federation in federations.values()}) == 1
    return Provenance(
        data=str(data["source"]) if isinstance(data, Mapping) else "",
        fingerprint=federation.fingerprint,
        hospitals=len(federation.hospitals),
        rows={part: int(federation.sizes(part).sum()) for part in PARTS if counted},
        seeds=sorted(federations),
        versions=provenance(federation)["versions"],
        config=dumped(frozen),
        command=command,
        notes=federation.notes if counted else (),
        of_seed=None if one else first,
        date=time.strftime("%Y-%m-%d"),
        origin=plugins.origin(str(data["source"])) if isinstance(data, Mapping) and data.get("source") else "",
    )

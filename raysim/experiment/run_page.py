"""The page of a run, and the common elements of experiment pages: files, provenance and the address of MLflow."""

from __future__ import annotations

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
from raysim.engine.job import Result
from raysim.experiment.answering import FILE, card_of_run
from raysim.experiment.stacked_tables import for_plots, per_hospital, per_round, per_seed
from raysim.report import svg, tables
from raysim.report.figures import coefficients, importance
from raysim.report.figures.models import styles
from raysim.report.hospital import clinical, clinical_rows
from raysim.report.judgement import noise
from raysim.report.judgement.answer import answer_from
from raysim.report.naming import Key, names
from raysim.report.pages.page import run_page
from raysim.report.pages.rendering import Page, Provenance
from raysim.report.pages.section import Supplement
from raysim.report.panel import Sent, sent
from raysim.report.supplement import attacks, hospital_attributes, privacy, protection, training
from raysim.storage.manifest import Manifest
from raysim.storage.results import provenance
from raysim.tracking.stores import NOWHERE

PAGE = "report.html"


def write_run_page(
    out: Manifest,
    result: Result,
    frozen: Mapping[str, object],
    config: Config,
    whole: Path | None = None,
) -> None:
    """Write the ``report.html`` of a run of ``config``. ``frozen`` is the configuration as stored with the run.

    ``whole`` is the folder of the comparison to which the run belongs, if any. The page of such a run has no section
    on single hospitals, because the comparison's page has it.
    """
    part, counted = config.evaluation.part, not config.hides_sizes
    back = [("all runs together", quote(Path(os.path.relpath(whole / PAGE, out.folder)).as_posix()))] if whole else []
    hospitals = for_plots(per_hospital([result], part), part)
    by_chance = None if whole else noise.noise([result], config.evaluation.minimum_events)
    card = card_of_run(config, result, hospitals, by_chance)
    trained = training.of_run(result)
    limited = [text for text in (privacy.of_run(result), attacks.of_run(result)) if text]
    out.json(FILE, answer_from(card, noise=by_chance, before=[text for text in (trained, *limited) if text]).as_json())
    served, own_rows = clinical_rows.of_run(result.label, result.folder), per_seed([result])
    overview, keys = tables.comparison(own_rows), [(result.label, model) for model in result.outcome.figures]
    titles = {result.label: result.title or result.label}
    kinds = [] if whole else attribute_figures(out, hospitals, [result], overview, keys, titles, sent([result]))
    fitted = [*coefficients.plots([result]), *importance.plots([result])]
    page = run_page(
        f"{result.title or result.label}, seed {result.seed}: {card.predicts}",
        own_rows,
        page_provenance(frozen, {result.seed: result.federation}, "raysim run config.yaml", counted=counted),
        hospitals=hospitals,
        rounds=per_round([result]),
        training=trained,
        sizes=size_sentences(result),
        part=part,
        result=None if whole else result,
        card=card,
        noise=by_chance or {},
        supplement=Supplement(
            use=[*clinical.plots(served, part), *fitted],
            use_shared=[*clinical.shared(served, part), *fitted],
            equity=kinds,
            method=training.plots([result]),
            protections=protection.protections(config, [result]),
            traffic=protection.traffic([result], titles),
            privacy=limited,
            links=[*back, *tracked_at(frozen.get("tracking"))],
            files=files_in(out),
        ),
    )
    write_page(out, page)


def attribute_figures(
    out: Manifest,
    hospitals: pd.DataFrame,
    results: Sequence[Result],
    overview: pd.DataFrame,
    models: Sequence[Key],
    titles: Mapping[str, str],
    sketched: Sent,
) -> list[svg.Figure]:
    """Write the table of performance by hospital attribute, and return plots of this table for ``models``. Without
    usable attributes, nothing is written and the list is empty.

    ``overview`` is the table of :func:`raysim.report.tables.comparison`. ``sketched`` is what hospitals sent to
    estimate the covariance between models.
    """
    means = hospital_attributes.table(hospitals, results[0].federation, sketched)
    if means.empty:
        return []
    out.csv(hospital_attributes.FILE, means)
    return hospital_attributes.plots(means, list(dict.fromkeys(models)), names(overview, titles), styles(overview))


def write_page(out: Manifest, page: Page) -> None:
    """Write ``report.html``, its figures as SVG, and ``report.json``, which ``raysim report`` reads."""
    with out.together():
        out.text(PAGE, page.html())
        out.text("report.json", page.json())
        for figure in page.figures():
            out.text(figure.file, figure.standalone())


def files_in(out: Manifest) -> list[tuple[str, str]]:
    """Return the CSV tables in an experiment's folder, each with its link."""
    tables = sorted({*(name for name in out.files if name.endswith(".csv") and "/" not in name)})
    return [(name, quote(name)) for name in tables]


def size_sentences(result: Result) -> dict[str, str]:
    """Return, for each model, a sentence on its size slope: how performance depends on hospital size. Models without a
    defined slope are left out.
    """
    slopes = {
        model: noise.slope_of(sums, result.outcome.stays(result.federation, model).tolist())
        for model, sums in result.outcome.pairs.items()
    }
    return {model: noise.size_sentence(slope) for model, slope in slopes.items() if np.isfinite(slope.low)}


def page_provenance(
    frozen: Mapping[str, object], federations: Mapping[int, Federation], command: str, *, counted: bool
) -> Provenance:
    """Return how the results of a page were made: data, configuration and ``command``.

    The facts on data are from the first seed. Numbers of rows and notes on the data are omitted unless ``counted``.
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
        notes=_notes(federation, frozen) if counted else (),
        of_seed=None if one else first,
        date=time.strftime("%Y-%m-%d"),
        origin=plugins.origin(str(data["source"])) if isinstance(data, Mapping) and data.get("source") else "",
    )


def _notes(federation: Federation, frozen: Mapping[str, object]) -> tuple[str, ...]:
    """Return the notes on the data; under a privacy guarantee, only those that reveal no rows."""
    return federation.notes if frozen.get("privacy") is None else federation.notes[-2:]


def tracked_at(tracking: object) -> list[tuple[str, str]]:
    """Return a link to the MLflow server or, for a local store, the command that opens the store. The result is empty
    if there is no store, or if the store's address may contain a password.
    """
    uri = str(tracking.get("uri") or "") if isinstance(tracking, Mapping) else ""
    if uri in ("", NOWHERE) or "@" in uri:  # the page must not contain a password
        return []
    if uri.startswith(("http:", "https:")):
        return [("MLflow", uri)]
    return [(f"MLflow: raysim ui --uri {shlex.quote(uri)}", "")]

"""``raysim judge``: turn a table of predictions into the files and the page of a comparison."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from raysim.config.sections.evaluation import EvaluationSection
from raysim.core.errors import ConfigError
from raysim.core.plain_yaml import dumped
from raysim.core.words import counted
from raysim.data.federation import Federation
from raysim.engine.job import Result
from raysim.experiment.answering import FILE
from raysim.experiment.entries import folder_of
from raysim.experiment.judging.results import results_of
from raysim.experiment.judging.table import Predictions, Reading, checked
from raysim.experiment.run_page import files_in, write_page
from raysim.experiment.stacked_tables import comparison_table, for_plots, per_hospital, per_round, per_seed
from raysim.report import tables
from raysim.report.hospital import clinical, clinical_rows
from raysim.report.judgement import noise
from raysim.report.judgement.answer import Answer, answer_from
from raysim.report.judgement.compose import Remarks, comparison_card
from raysim.report.judgement.evidence import Evidence, evidence_from
from raysim.report.judgement.gathered import Asked
from raysim.report.naming import names, signed, with_interval
from raysim.report.pages.page import comparison_page
from raysim.report.pages.rendering import Provenance
from raysim.report.pages.section import Supplement
from raysim.report.panel import Panel, sent
from raysim.statistics.differences.search import Searched, searched
from raysim.storage import clinical_tables
from raysim.storage.manifest import Manifest
from raysim.storage.results import choose_folder, provenance

PART = "test"


@dataclass(frozen=True, eq=False, repr=False)
class Judged:
    """The results of evaluating a table of predictions."""

    folder: Path
    """The folder with ``answer.json``, ``hospitals.csv``, ``comparison.csv`` and the HTML page."""
    name: str
    answer: Answer
    comparison: pd.DataFrame
    """The content of ``comparison.csv``: one row per model."""
    hospitals: pd.DataFrame
    """The content of ``hospitals.csv``: one row per model, seed and hospital."""
    search: Search | None
    """The best model's gain over the reference, corrected for the number of models tried; None if it cannot be
    estimated."""
    warnings: tuple[str, ...] = ()
    """Remarks on the table."""

    @property
    def content(self) -> dict[str, Any]:
        """The content of ``answer.json``."""
        return self.answer.as_json() | ({} if self.search is None else {"search": self.search.as_json()})

    def __repr__(self) -> str:
        """Return the headline, without the tables."""
        return f"<judged: {self.answer.card.headline}>"

    def __str__(self) -> str:
        return "\n".join(self.answer.sentences)


def judge(
    table: pd.DataFrame,
    reference: str,
    *,
    tried: int | None = None,
    reading: Reading | None = None,
    predicts: str = "the label",
    name: str = "predictions",
    out: Path | None = None,
    remarks: Sequence[str] = (),
) -> Judged:
    """Evaluate a ``table`` of predictions, with one row per model, seed and test row, in the same way as a comparison.

    - ``reference``: the model that others are compared with.
    - ``tried``: how many models were tried, without the reference and models that have a role; None means the number of
      such models in the table.
    - ``reading``: how probabilities are written, and which rows are evaluated.
    - ``predicts``: the predicted event in words.
    - ``name``: the name of the page, and, if ``out`` is None, of the new folder in ``runs``.
    - ``remarks``: further warnings.

    Raises ``DataError`` or ``ConfigError`` if the table or an argument cannot be used.
    """
    predictions = checked(table, reading or Reading(), reference)
    predictions = replace(predictions, warnings=(*remarks, *predictions.warnings))
    candidates = [model for model in predictions.models if model != reference and not predictions.roles.get(model)]
    if tried is not None and tried < len(candidates):
        raise ConfigError(
            f"--tried: {tried} is fewer than the {counted(len(candidates), 'model')} of the table that are neither the "
            "reference nor have a role; count all such models that were tried"
        )
    folder = choose_folder(out, name)
    written = Manifest.begin(folder, "judge")
    section = EvaluationSection()
    with tempfile.TemporaryDirectory() as scratch:
        results = results_of(
            predictions,
            section,
            Path(scratch),
            lambda model, seed: folder / "models" / folder_of(model) / f"seed-{seed}",
        )
        for result in results:
            clinical_tables.write(written, result.folder, result.federation, result.outcome, section.clinical)
        return _write(written, name, predictions, results, reference, tried or len(candidates), predicts)


def _write(
    written: Manifest,
    name: str,
    predictions: Predictions,
    results: Sequence[Result],
    reference: str,
    tried: int,
    predicts: str,
) -> Judged:
    section = EvaluationSection()
    frame, hospitals = per_seed(results), per_hospital(results, PART)
    frame, hospitals = _known(frame, hospitals, predictions.frame)
    written.csv("hospitals.csv", hospitals)
    hospitals = for_plots(hospitals, PART)
    sketched = sent(results)
    differences = tables.differences(frame, reference, hospitals, sent=sketched)
    table = comparison_table(frame, differences, hospitals)
    by_chance = noise.noise(results, section.minimum_events)
    alone = {result.label for result in results if result.alone}
    evidence = evidence_from(frame, hospitals, reference, sketched, alone)
    cautions = _backwards(hospitals)
    search = None if evidence is None else _searched(evidence, Panel.of(hospitals, sketched), tried)
    if search is not None and evidence is not None and evidence.choice.why == "better" and not search.demonstrated:
        cautions.insert(0, f"not demonstrated once {counted(tried, 'model')} were tried")
    card = comparison_card(
        evidence,
        results,
        hospitals,
        Asked(predicts, PART, section.clinical, True, trains=False),
        names=names(tables.comparison(frame), {}),
        noise=by_chance,
        remarks=Remarks(cautions=tuple(cautions)),
        compared=len(predictions.models) > 1,
    )
    before = (*([] if search is None else [search.sentence]), *predictions.warnings)
    answer = answer_from(card, evidence, by_chance, before)
    written.csv("comparison.csv", table)
    if by_chance:
        written.csv("noise.csv", noise.table(by_chance))
    judged = Judged(written.folder, name, answer, table, hospitals, search, predictions.warnings)
    written.json(FILE, judged.content)
    served = clinical_rows.of_runs([(each.label, each.label, each.folder) for each in results])
    taken = [] if evidence is None else [evidence.entries[evidence.best].key[0], *alone]
    page = comparison_page(
        f"{name}: {predicts}",
        frame,
        _provenance(name, {result.seed: result.federation for result in results}, reference, tried),
        hospitals=hospitals,
        rounds=per_round(results),
        baseline=reference,
        differences=differences,
        evidence=evidence,
        card=card,
        before=before,
        results=results,
        supplement=Supplement(
            use=clinical.plots(served, PART, taken),
            use_shared=clinical.shared(served, PART, taken),
            files=files_in(written),
        ),
        noise=by_chance,
        part=PART,
    )
    write_page(written, page)
    return judged


def _known(frame: pd.DataFrame, hospitals: pd.DataFrame, rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return ``frame`` and ``hospitals`` without the columns that are unknown for predictions, such as seconds. If
    ``rows``, the table of predictions, has the bytes or the numbers of training rows, these are added.
    """
    unknown = ("seconds", "bytes_down", "bytes_up", "bytes_setup_down", "bytes_setup_up")
    frame = frame.drop(columns=[column for column in unknown if column in frame])
    if "bytes" in rows:
        moved = rows.groupby(["model", "seed"])["bytes"].first()
        keys = pd.MultiIndex.from_frame(frame[["strategy", "seed"]])
        frame["bytes"] = moved.reindex(keys).to_numpy(float)
    hospitals = hospitals.drop(columns=["n_train", "participated", "rounds", "cluster"], errors="ignore")
    if "train_rows" in rows:
        trained = rows.groupby("hospital")["train_rows"].first()
        hospitals.insert(2, "n_train", trained.reindex(hospitals["hospital"]).to_numpy())
    return frame, hospitals


def _backwards(hospitals: pd.DataFrame) -> list[str]:
    notes = []
    for model, of in hospitals.groupby("strategy", sort=False):
        defined = of[of["auroc"].notna()]
        if len(defined) and (defined["auroc_high"] < 0.5).any() and (defined["auroc"] < 0.5).all():
            notes.append(f"{model} has an AUROC below .5 at every hospital: its labels are probably reversed")
    return notes


@dataclass(frozen=True, eq=False)
class Search:
    """The difference between the best model and the reference, corrected for the number of models tried."""

    reference: str
    names: tuple[str, ...]
    """The models that are compared with the reference."""
    differences: tuple[float, ...]
    found: Searched

    @property
    def demonstrated(self) -> bool:
        """Whether the best model is better than the reference after correction for all models tried."""
        return self.found.limits[self.found.best].low > 0

    @property
    def sentence(self) -> str:
        """One or two sentences on the corrected difference."""
        found, limits = self.found, self.found.limits[self.found.best]
        gain = with_interval(found.estimate, *limits, 3, sign=True)
        text = (
            f"Of {counted(found.tried, 'model')} tried, {self.names[found.best]} is the best: {gain} against "
            f"{self.reference}, after correction for the number tried."
        )
        if found.estimate > 0 and len(self.names) > 1:
            gain = signed(max(found.corrected, 0.0), 3)
            text += f" The best of several is partly luck: without this luck, its gain is about {gain}."
        return text

    def as_json(self) -> dict[str, object]:
        """Return the content for ``answer.json``."""
        found = self.found
        return {
            "tried": found.tried,
            "best": self.names[found.best],
            "estimate": found.estimate,
            "corrected": found.corrected,
            "demonstrated": self.demonstrated,
            "models": [
                {"model": name, "difference": difference, "low": limits.low, "high": limits.high}
                for name, difference, limits in zip(self.names, self.differences, found.limits, strict=True)
            ],
        }


def _searched(evidence: Evidence, panel: Panel, tried: int) -> Search | None:
    """Correct the best model's difference from the reference for the number of models ``tried``.

    Returns None without another model or a second seed, or if no difference has a variance above 0.
    """
    others = [entry for i, entry in enumerate(evidence.entries) if i != evidence.base]
    if evidence.base is None or not others or evidence.one_seed:
        return None
    base = evidence.entries[evidence.base]
    pairs = [panel.difference(entry.key, base.key) for entry in others]
    if not any(pair.variance > 0 for pair in pairs):
        return None
    place = [panel.place[entry.key] for entry in others]
    rows = np.nansum(panel.rows[panel.place[base.key]], axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # for hospitals without a figure in any seed
        figures = np.nanmean(panel.figure[place] - panel.figure[panel.place[base.key]], axis=1)
    return Search(
        base.name,
        tuple(entry.name for entry in others),
        tuple(pair.difference for pair in pairs),
        searched(pairs, figures, rows, max(tried, len(pairs))),
    )


def _provenance(name: str, federations: dict[int, Federation], reference: str, tried: int) -> Provenance:
    federation = next(iter(federations.values()))
    return Provenance(
        data=name,
        fingerprint=federation.fingerprint,
        hospitals=len(federation.hospitals),
        rows={PART: int(federation.sizes(PART).sum())},
        seeds=sorted(federations),
        versions=provenance(federation)["versions"],
        config=dumped({"reference": reference, "tried": tried}),
        command=f"raysim judge PREDICTIONS --reference {reference} --tried {tried}",
        date=time.strftime("%Y-%m-%d"),
    )

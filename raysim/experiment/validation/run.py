"""``raysim validate``: how an existing model performs at every hospital of a federation, and what to expect at others.

The model is evaluated on all rows of each hospital, or only on the test rows if it was trained on the same data
with the same split.
Metrics are computed and pooled as in :mod:`raysim.experiment.unseen`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.config import plugins, reading
from raysim.config.reading import Source
from raysim.config.schema import Config
from raysim.core.errors import ConfigError, DataError
from raysim.core.plain_yaml import dumped
from raysim.core.words import counted, some
from raysim.data.build import read
from raysim.data.federation import Federation
from raysim.experiment.scores import MODEL, is_probability, margins_of
from raysim.experiment.unseen import tables
from raysim.experiment.unseen.findings import mean, next_one
from raysim.experiment.unseen.measured import Unseen, of_rows
from raysim.experiment.unseen.rows import JudgedRows
from raysim.experiment.validation.page import page
from raysim.metrics.score_counts import ScoreCounts
from raysim.report.naming import with_interval
from raysim.serving.exported import Exported
from raysim.serving.trained_on import shared
from raysim.statistics.clinical.by_hospital import HospitalCalibration, calibration_by_hospital
from raysim.storage.manifest import Manifest
from raysim.storage.results import choose_folder

NOTHING = "is neither a folder, a file nor a column of the table"


@dataclass(frozen=True, eq=False, repr=False)
class Validated:
    """The results of validating a model or score at hospitals, without training."""

    folder: Path
    name: str
    """The name of the validated model or score."""
    predicts: str
    hospitals: pd.DataFrame
    """The content of ``validation.csv``: one row per hospital."""
    summary: pd.DataFrame
    """The content of ``validation_summary.csv``: one row per metric."""
    notes: tuple[str, ...]
    """Remarks for the reader, one sentence each."""

    def __repr__(self) -> str:
        """Return the headline, without the tables."""
        return f"<validated: {self.headline}>"

    def __str__(self) -> str:
        return "\n".join([self.headline, *self.notes])

    @property
    def headline(self) -> str:
        """A sentence on the mean over these hospitals, and the range expected at a further hospital."""
        pooled = {str(row["figure"]): row for row in self.summary.to_dict("records")}
        auroc = pooled.get(tables.AUROC)
        if auroc is None or not np.isfinite(auroc["estimate"]):
            return "Too few hospitals can be judged: no statement about the model is possible."
        over = counted(int(auroc["hospitals"]), "hospital")
        text = f"AUROC {mean(auroc, 3)} over {over}{next_one(auroc, 2)}."
        ratio = pooled.get(tables.RATIO)
        if ratio is not None and np.isfinite(ratio["estimate"]):
            text += f" At a hospital there are {mean(ratio, 2)} times the expected events{next_one(ratio, 2)}."
        return text


def validate(model: str, source: Source, overrides: Sequence[str] = (), out: Path | None = None) -> Validated:
    """Evaluate an existing ``model`` at every hospital of the data that a configuration names.

    ``model`` is a folder written by ``raysim export``, an exported ONNX or JSON file, or a column of the data. Raises
    ``ConfigError`` or ``DataError`` if the model or the data cannot be used.
    """
    config, path, test = reading.resolve(source, overrides, reads=()), Path(model).expanduser(), False
    exported = Exported.open(path) if path.exists() else None
    if exported is None and ("/" in model or path.suffix in (".onnx", ".pt2")):
        raise ConfigError(f"{model}: {NOTHING}; name an exported model, or a column of the table")
    if exported is None:
        features = {
            field: [name for name in listed if name != model]
            for field in ("numeric", "categorical")
            if (listed := getattr(config.data, field, None))
        }
        config = config.replaced(data=config.data.model_copy(update={"scores": (model,), **features}))
    try:
        federation = plugins.build_federation(config, plugins.build_source(config.data), config.seed)
    except DataError as error:
        if exported is None and str(error).startswith(f"data.scores: no column '{model}'"):
            raise DataError(f"{model}: {NOTHING}; {str(error).partition('; ')[2]}") from None
        raise
    if len(federation.classes) != 2:
        raise DataError("data.label: does not have two classes; validate judges models of two classes")
    if exported is None:
        name, risks, notes = model, is_probability(federation, model), list[str]()
        margins = margins_of(federation.scores[model], risks)
    else:
        name, risks = exported.name, True
        _check_classes(exported, federation.classes)
        margins, notes = _margins(exported, config, federation)
        note, test = shared(exported.trained_on, config)
        notes = [note, *notes] if note else notes
    unseen = of_rows(
        name,
        MODEL,
        0,
        0,
        list(_rows(federation, name, margins, test)),
        federation.task,
        config.evaluation.clinical,
        risks=risks,
    )
    return _write(config, federation, unseen, notes, out, int(np.isnan(margins).sum()))


def _check_classes(exported: Exported, classes: Sequence[str]) -> None:
    """Raise ``ConfigError`` if the model does not have two classes, and ``DataError`` if its event is the first of
    ``classes`` instead of the second. A model exported without preprocessing is not checked: its classes are unknown.
    """
    theirs = None if exported.preprocessing is None else list(exported.preprocessing.classes)
    if theirs is not None and len(theirs) != 2:
        raise ConfigError(f"{exported.name}: is not a model of two classes; name a model of two classes")
    if theirs == list(reversed(classes)):
        raise DataError(
            f"data.positive: the event is '{classes[1]}', but the model predicts '{classes[0]}'; set data.positive to "
            f"'{classes[0]}'"
        )


def _margins(exported: Exported, config: Config, federation: Federation) -> tuple[NDArray[np.float64], list[str]]:
    """Return an exported model's log-odds for each row of the federation.

    Also returns remarks on differences from the model's training rows.
    """
    records = read(plugins.build_source(config.data), config.data.split)
    given, notes = exported.risks(records.features)
    order = federation.source_rows
    if records.row is not None:  # positions in the user's file, which has more rows than the federation
        order = np.searchsorted(records.row, order)
    with np.errstate(divide="ignore"):
        return np.log(given[order]) - np.log1p(-given[order]), list(notes)


def _rows(federation: Federation, name: str, margins: NDArray[np.float64], test: bool) -> Iterator[JudgedRows]:
    """Yield the rows of each hospital that have a prediction. With ``test``, only test rows are included."""
    for h, hospital in enumerate(federation.hospitals):
        rows = np.arange(federation.bounds[h, 2 if test else 0], federation.bounds[h, 3])
        rows = rows[~np.isnan(margins[rows])]
        yield JudgedRows(
            margins[rows], margins[rows], federation.y[rows], federation.identities[rows], h, hospital, 0, name
        )


def _write(
    config: Config, federation: Federation, unseen: Unseen, notes: Sequence[str], out: Path | None, lacking: int
) -> Validated:
    table = tables.by_hospital([unseen], federation.task, config.evaluation.clinical)
    summary = tables.summary([unseen], table, config.evaluation.clinical).drop(columns=["strategy", "model", "k"])
    table = table.drop(columns=["strategy", "model", "seed", "fold", "k", "served_by"])
    sentences = list(notes)
    if config.privacy is not None:
        sentences.append("These figures are exact: the configuration's guarantee of privacy does not cover them.")
    if lacking:
        sentences.append(f"{lacking:,} of {len(federation.y):,} rows without a value were left out.")
    if undefined := int(table[tables.AUROC].isna().sum()):
        sentences.append(f"{counted(undefined, 'hospital')} of {len(table):,} without both classes have no AUROC.")
    if unseen.scores is None:
        sentences.append("The score is no probability: only its ranking is judged, not its calibration.")
    else:
        sentences += [_over_all(unseen.scores), _off(calibration_by_hospital(unseen.scores), federation.hospitals)]
    folder = choose_folder(out, "validation")
    found = Validated(folder, unseen.strategy, plugins.predicted(config.data), table, summary, tuple(sentences))
    written = Manifest.begin(folder, "validate")
    text = dumped(config.frozen())
    written.text("config.yaml", text)
    written.csv("validation.csv", table)
    written.csv("validation_summary.csv", summary)
    written.text("report.html", page(found.name, found.predicts, found.headline, sentences, table, summary, text))
    return found


def _over_all(scores: ScoreCounts) -> str:
    of = calibration_by_hospital(scores.together())
    ratio = with_interval(float(of.ratio[0]), float(of.low[0]), float(of.high[0]), 2)
    return f"Over all rows there are {ratio} times the expected events."


def _off(calibration: HospitalCalibration, hospitals: Sequence[str]) -> str:
    bound = calibration.bound
    if not bound.at_least:
        return f"Its risks are demonstrably off at none of {counted(bound.of, 'hospital')}."
    where = f" ({some([hospitals[h] for h in bound.named], 5)})" if len(bound.named) else ""
    off = f"{bound.at_least:,} or more of {counted(bound.of, 'hospital')}"
    return f"Its risks are demonstrably off at {off}{where}: recalibrate."

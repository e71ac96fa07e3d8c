"""The table of predictions: the columns it needs, and the checks on them.

Each row is the prediction of one model, trained with one seed, for one test row. Required columns are ``hospital``,
``label`` (with two values), ``model``, ``seed``, ``probability``, and at least one of ``row`` and ``patient``. Optional
columns:

- ``margin``: log-odds, in place of ``probability``.
- ``part``: the part of the split; only test rows are evaluated.
- ``train_rows`` and ``all_rows``: the hospital's numbers of training rows and of all rows.
- ``bytes``: the bytes that the method exchanged.
- ``role``: ``alone`` for training alone, ``reference`` for another method that is not federated, else empty.
- ``learner``: the family of the model. Families that occur earlier in the table are taken as simpler.
- ``group_*``: attributes of patients: ``group_age`` in years, all others as names of groups.

If there is a column ``strategy``, as in a comparison's table, strategies are compared, and ``model`` names a model of
the strategy.

Error messages number rows from 1, which is the first row below the header.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from raysim.core.errors import ConfigError, DataError, nearest
from raysim.core.words import counted, some
from raysim.data.tables.blank_rows import without_blank_rows
from raysim.data.tables.rules import MISSING, unquoted, whole_name
from raysim.data.tables.spelling import check_twins, twins, written
from raysim.engine.measuring.subgroups import MOST_GROUPS

REQUIRED = ("hospital", "label", "model", "seed", "probability")

NUMBERS = ("train_rows", "all_rows", "bytes")
"""The optional columns that must be numeric."""

GROUP = "group_"
"""The prefix of columns with attributes of patients."""

AGE = f"{GROUP}age"
"""The only attribute of patients that is a number; all others are names of groups."""

IN_FILE = "row in the file"
"""The name of the index of a data frame that was read from a file. The index counts the file's rows from 0, including
blank rows."""

ROLES = ("", "reference", "alone")
"""The values of the column ``role``."""

FEW_VALUES = 5
"""A model with fewer different probabilities than this is not evaluated for calibration."""


@dataclass(frozen=True)
class Reading:
    """How probabilities and labels are written in a table of predictions, and which rows are evaluated."""

    logits: bool = False
    """Whether probabilities are written as log-odds."""
    percent: bool = False
    """Whether probabilities are written in per cent."""
    event: str | None = None
    """The label value that is the event. None means ``1`` or ``true``."""
    common: bool = False
    """Whether to evaluate only the rows that all models have. If False, it is an error if a model lacks a row that
    another model has."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """A checked table of predictions, ready for evaluation."""

    frame: pd.DataFrame
    """One row per model, seed and evaluated row. The columns include ``hospital``, ``model`` (the compared method),
    ``served`` (the method's model that predicted this row), ``seed``, ``event`` (0 or 1), ``margin`` (log-odds),
    ``identity`` (the row's number, the same in every seed), ``person`` (the patient's number)."""
    groups: tuple[str, ...]
    """The names of the patient attributes in the table, without the prefix :data:`GROUP`."""
    event: str
    models: tuple[str, ...]
    """The models in the order of the table."""
    roles: Mapping[str, str]
    """The role of each model, one of :data:`ROLES`; empty if the table has no column ``role``."""
    learners: Mapping[str, str]
    """The family of each model; empty if the table has no column ``learner``."""
    decisions: frozenset[str] = frozenset()
    """The models with fewer than :data:`FEW_VALUES` different outputs. Their calibration is not evaluated."""
    warnings: tuple[str, ...] = ()


def checked(table: pd.DataFrame, reading: Reading, reference: str) -> Predictions:
    """Check a table of predictions and return it as :class:`Predictions`.

    ``reference`` is the model that others are compared with. Raises ``DataError`` for a wrong table, and
    ``ConfigError`` if ``reference`` or an option in ``reading`` is wrong.
    """
    warnings: list[str] = []
    frame = _named(table, warnings)
    frame = _evaluated(frame)
    frame["event"], event = _events(frame["label"], reading.event)
    frame["margin"] = _margins(frame, reading, warnings)
    frame["served"] = frame["served"].astype(str) if "served" in frame else "global"
    _identify(frame, warnings)
    models = tuple(dict.fromkeys(frame["model"]))
    if reference not in models:
        raise ConfigError(f"--reference: '{reference}' is not a model of the table; {nearest(reference, models)}")
    _pair_seeds(frame, reference, warnings)
    frame, lost = _same_rows(frame, reading.common)
    if lost:
        warnings.append(f"{counted(lost, 'row')} that not every model has were left out.")
    _same(frame, "event", "label", "give each row one label")
    missing = frame[frame["margin"].isna()]
    for model, n in missing.groupby("model")["hospital"].nunique().items():
        warnings.append(
            f"{model} has rows without a prediction at {counted(int(n), 'hospital')}: it is not judged there."
        )
    different = {model: int(frame.loc[frame["model"] == model, "margin"].nunique()) for model in models}
    decisions = frozenset(model for model in models if different[model] < FEW_VALUES)
    for model in sorted(decisions):
        found = counted(different[model], "value")
        warnings.append(f"{model} has {found}: decisions, not probabilities. It is ranked, and has no calibration.")
    groups = tuple(name.removeprefix(GROUP) for name in frame.columns if name.startswith(GROUP))
    for name in groups:
        frame[GROUP + name] = _attribute(frame[GROUP + name])
        banded = GROUP + name == AGE  # ages are divided into bands
        if (values := frame[GROUP + name].nunique()) >= MOST_GROUPS and not banded:
            raise DataError(
                f"{GROUP}{name}: has {values:,} values, but groups are compared only for fewer than {MOST_GROUPS} "
                "values; drop the column"
            )
        _same(frame, GROUP + name, GROUP + name, "give each patient one value")
        rows = {str(each): int(n) for each, n in frame[GROUP + name].value_counts().items()}
        warnings += [
            f"Groups {written(alike, rows)} of '{GROUP}{name}' differ only in blanks or capitals: each counts alone."
            for alike in twins(rows)
        ]
    roles = dict(frame.groupby("model")["role"].first()) if "role" in frame else {}
    learners = dict(frame.groupby("model")["learner"].first()) if "learner" in frame else {}
    return Predictions(frame, groups, event, models, roles, learners, decisions, tuple(warnings))


def _named(table: pd.DataFrame, warnings: list[str]) -> pd.DataFrame:
    repeated = table.columns[table.columns.duplicated()]
    if len(repeated):
        raise DataError(f"column '{repeated[0]}' occurs twice; keep one")
    if not len(table):
        raise DataError("the table has no rows; write a row for each model, seed and test row")
    if "strategy" in table:  # the table of a comparison
        table = table.rename(columns={"model": "served", "strategy": "model"})
    for name in REQUIRED:
        if name not in table and not (name == "probability" and "margin" in table):
            raise DataError(f"column '{name}' is missing; {nearest(name, [str(each) for each in table.columns])}")
    if "row" not in table and "patient" not in table:
        raise DataError("column 'row' is missing; number the rows of each hospital, the same in every model and seed")
    if table.index.name == IN_FILE:
        frame = table.copy()
    else:
        frame, remarks = without_blank_rows(table.reset_index(drop=True), "The data frame")
        for name in [name for name in frame.columns if frame[name].dtype.kind == "O"]:
            frame[name] = frame[name].map(lambda value: unquoted(value) if isinstance(value, str) else value)
        warnings += [f"{remark}." for remark in remarks]
    for name in ("hospital", "label", "model", "seed"):
        if frame[name].isna().any():
            raise DataError(f"row {_first(frame[name].isna())}: '{name}' is empty; fill it in")
    for name, what in (("model", "models"), ("hospital", "hospitals")):
        frame[name] = _names(frame[name]) if name == "hospital" else frame[name].astype(str)
        check_twins(name, what, {str(each): int(n) for each, n in frame[name].value_counts().items()})
    if "role" in frame:
        frame["role"] = frame["role"].fillna("").astype(str)
        if not (known := frame["role"].isin(ROLES)).all():
            raise DataError(
                f"row {_first(~known)}: role '{frame['role'][~known].iloc[0]}' is neither empty nor "
                f"{' or '.join(ROLES[1:])}; correct it"
            )
    for name in NUMBERS:
        if name not in frame:
            continue
        wrong = pd.to_numeric(frame[name], errors="coerce").isna() & frame[name].notna()
        if wrong.any():
            raise DataError(
                f"row {_first(wrong)}: the value of column '{name}' is not a number; correct it, or leave the "
                "column out"
            )
    if "learner" in frame:
        frame["learner"] = frame["learner"].fillna("").astype(str)
    if not pd.api.types.is_integer_dtype(frame["seed"]):
        frame["seed"] = pd.factorize(frame["seed"].astype(str), sort=True)[0]
    return frame


def _attribute(values: pd.Series) -> pd.Series:
    """Return an attribute of patients: ages as numbers, if all of them are numbers, and names of groups as texts."""
    texts = _names(values.dropna()).reindex(values.index)
    texts = texts.mask(texts.str.strip().isin(MISSING))
    numbers = pd.to_numeric(texts, errors="coerce")
    return texts if values.name != AGE or (numbers.isna() & texts.notna()).any() else numbers


def _names(values: pd.Series) -> pd.Series:
    return values.astype(object).map({each: whole_name(str(each)) for each in values.unique()})


def _evaluated(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose ``part`` is ``test``; all rows if there is no column ``part``. Raises ``DataError`` if no
    row is a test row.
    """
    if "part" not in frame:
        return frame
    part = frame["part"].astype(str).str.strip().str.lower()
    parts = set(part)
    if "test" in parts:
        return frame[part == "test"].copy()
    raise DataError(f"part: has {some(sorted(parts), 5)} and no 'test'; give test rows, on which no model was trained")


def _events(label: pd.Series, event: str | None) -> tuple[NDArray[np.int64], str]:
    """Return for each row whether its label is the event (1 or 0), and the event's name."""
    texts = _names(label).str.strip()
    values = sorted(texts.unique())
    if len(values) != 2:
        count = counted(len(values), "value") + (f" ('{values[0]}')" if len(values) == 1 else "")
        raise DataError(f"label: has {count}; it needs two values, event and no event")
    known = values[1] if tuple(each.casefold() for each in values) in _ORDERED else None
    event = None if event is None else whole_name(event)
    if event is None and known is None:
        raise ConfigError(f"--event: the label is '{values[0]}' or '{values[1]}'; name the event")
    if event is not None and event not in values:
        raise ConfigError(f"--event: '{event}' is not a value of the label; {nearest(event, values)}")
    chosen = str(known if event is None else event)
    return (texts == chosen).to_numpy().astype(np.int64), chosen


_ORDERED = (("0", "1"), ("false", "true"))
"""Pairs of label values in lower case. The second value of a pair is the event, unless the user names another."""


def _margins(frame: pd.DataFrame, reading: Reading, warnings: list[str]) -> NDArray[np.floating[Any]]:
    if reading.logits and reading.percent:
        raise ConfigError(
            "--logits, --percent: probabilities cannot be log-odds and per cent at once; give one of the two"
        )
    if "margin" in frame:
        given = _given(frame, "margin")
        # Tables of raysim's own models contain the shortest decimals of single-precision numbers.
        single = given.astype(np.float32)
        return single if np.array_equal(single.astype(str).astype(np.float64), given, equal_nan=True) else given
    p = _given(frame, "probability")
    p[~np.isfinite(p)] = np.nan
    low, high = np.nanmin(p, initial=0.0), np.nanmax(p, initial=0.0)
    if (reading.logits or reading.percent) and low >= 0 and 0 < high <= 1:
        taken = "log-odds" if reading.logits else "per cent"
        warnings.append(f"All probabilities lie between 0 and 1, and are taken as {taken}: are they shares?")
    if reading.logits:
        return p
    if low < 0 or high > 100:
        wrong = pd.Series((p < 0) | (p > 100), frame.index)
        raise DataError(
            f"row {_first(wrong)}: probability {p[wrong][0]:.4g} is neither from 0 to 1 nor in per cent; correct it, "
            "or give --logits if probabilities are log-odds"
        )
    if reading.percent:
        p /= 100.0
    elif high > 1:
        wrong = pd.Series(p > 1, frame.index)
        raise DataError(
            f"row {_first(wrong)}: probability {p[wrong][0]:.4g} is above 1; give --percent if probabilities are in "
            "per cent"
        )
    from scipy.special import logit  # imported late to start runs faster

    with np.errstate(divide="ignore"):
        margins: NDArray[np.float64] = logit(p)
    return margins


def _given(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """Return the column ``name`` as numbers, with NaN for missing values."""
    numbers = pd.to_numeric(frame[name], errors="coerce")
    texts = numbers.isna() & frame[name].notna() & ~frame[name].astype(str).str.strip().isin(MISSING)
    if texts.any():
        raise DataError(
            f"row {_first(texts)}: {name} '{frame[name][texts].iloc[0]}' is not a number; correct it, or leave it empty"
        )
    return numbers.to_numpy(np.float64, copy=True)


def _identify(frame: pd.DataFrame, warnings: list[str]) -> None:
    """Add columns that number rows and patients; a row has the same number with every seed and model."""
    of_model = ["model", "served", "seed"]
    if "row" in frame:
        frame["identity"] = _numbers(frame["row"], frame["hospital"])
    else:
        turn = frame.groupby([*of_model, "hospital", "patient"]).cumcount().astype(str)
        frame["identity"] = _numbers(frame["patient"].astype(str) + "\0" + turn, frame["hospital"])
    repeated = frame.duplicated([*of_model, "identity"])
    if repeated.any():
        row = frame[repeated].iloc[0]
        raise DataError(
            f"row {_first(repeated)} of the table: model {row['model']} with seed {row['seed']} has a second "
            f"prediction for row {row['row']} of {row['hospital']}; write each row once, and name patients in a "
            "column 'patient'"
        )
    if "patient" in frame:
        frame["person"] = _numbers(frame["patient"])
    else:
        frame["person"] = frame["identity"]
        warnings.append("No column 'patient': each row counts as a patient.")


def _numbers(values: pd.Series, within: pd.Series | None = None) -> NDArray[np.int64]:
    """Return whole numbers that identify ``values``.

    If ``within`` has the hospital of each value, equal values at different hospitals get different numbers.
    """
    whole = pd.api.types.is_integer_dtype(values) and values.ge(0).all()
    if whole and (within is None or not (within.groupby(values).nunique() > 1).any()):
        return values.to_numpy(np.int64)
    texts = values.astype(str) if within is None else within + "\0" + values.astype(str)
    return np.asarray(pd.factorize(texts, sort=True)[0], dtype=np.int64)


def _pair_seeds(frame: pd.DataFrame, reference: str, warnings: list[str]) -> None:
    """Rename each model's seeds that ``reference`` lacks. In ascending order, they become the seeds of ``reference``
    that the model lacks. This pairing is arbitrary, because runs with different seeds are independent.
    """
    theirs = sorted(set(frame.loc[frame["model"] == reference, "seed"]))
    for model, of in frame.groupby("model", sort=False):
        own = sorted(set(of["seed"]))
        pairs = dict(zip([s for s in own if s not in theirs], [s for s in theirs if s not in own], strict=False))
        if pairs:
            frame.loc[of.index, "seed"] = of["seed"].replace(pairs)
            warnings.append(f"{model} was trained with other seeds than {reference}: these are paired in order.")


def _same_rows(frame: pd.DataFrame, common: bool) -> tuple[pd.DataFrame, int]:
    """Return the predictions for the rows that all models of a seed have, and the number of rows left out.

    Raises ``DataError`` if rows would be left out, unless ``common`` is set.
    """
    models = frame.groupby("seed")[["model", "served"]].apply(lambda each: len(each.drop_duplicates()))
    present = frame.groupby(["seed", "identity"]).size()
    full = present == models.reindex(present.index.get_level_values("seed")).to_numpy()
    if full.all():
        return frame, 0
    if not common:
        seed, identity = present.index[~full.to_numpy()][0]
        of_seed = frame[frame["seed"] == seed]
        row = of_seed[of_seed["identity"] == identity]
        there = set(zip(row["model"], row["served"], strict=True))
        served = dict.fromkeys(zip(of_seed["model"], of_seed["served"], strict=True))
        model, name = next(each for each in served if each not in there)
        lacking = f"{model} ({name})" if sum(each == model for each, _ in served) > 1 else model
        lacks = counted(int((~full)[seed].sum()), "row")
        raise DataError(
            f"{lacking} seed {seed} lacks {lacks} that another model has, the first at hospital "
            f"{row['hospital'].iloc[0]}; add them, or give --common to judge the rows that all models have"
        )
    complete = frame.set_index(["seed", "identity"]).index.isin(full.index[full.to_numpy()])
    return frame[complete].reset_index(drop=True), int((~full).sum())


def _same(frame: pd.DataFrame, column: str, name: str, remedy: str) -> None:
    """Raise ``DataError`` if a row's value in ``column`` differs between models or seeds."""
    differs = frame.groupby("identity")[column].transform("nunique", dropna=False) > 1
    if differs.any():
        row = frame[differs].iloc[0]
        raise DataError(
            f"{name}: has different values for the same row of {row['hospital']} under different models or seeds, "
            f"first in row {_first(differs)} of the table; {remedy}"
        )


def _first(which: pd.Series) -> int:
    """Return the number of the first row marked in ``which``, counted from 1 in the user's table."""
    return int(which.index[which][0]) + 1

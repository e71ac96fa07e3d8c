"""The card (short report) of one hospital: rows and events, metrics under each model, its cluster, and the data it
sent.

The report's reader selects a hospital; ``raysim report --hospital`` writes a page with a single card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from raysim.core.words import capitalised, listed
from raysim.data.federation import PARTS
from raysim.engine.job import Result
from raysim.metrics.labels import TaskKind
from raysim.report import possible
from raysim.report.hospital import card_tables
from raysim.report.hospital.clinical_rows import over_runs, read_rows
from raysim.report.hospital.gains import Gains, between, by_chance, compared_with, served
from raysim.report.naming import Key, of_strategy, with_interval
from raysim.statistics.differences.paired import Limits
from raysim.statistics.over_seeds import OverSeeds

MORE_OFTEN = 2
"""A text on a cluster names at most this many attributes that are more frequent in the cluster than elsewhere."""

PART_WORDS = {"train": "Training", "validation": "Validation", "test": "Test"}

ALONE = "training alone"

FLOOR = "calibration_error_floor"
"""The metric of ``clinical.csv`` for the calibration error that perfectly calibrated predictions have by chance."""

CLINICAL = {
    "calibration_slope": "Calibration slope (1 is right)",
    "calibration_in_the_large": "Calibration in the large (0 is right)",
    "calibration_error": "Calibration error (ECE)",
}
"""The metrics of ``clinical.csv`` on a card, with their headings."""

LEFT = "What this hospital sent. Patients' rows are among it only if the kind 'rows' is listed."


def cards(
    results: Sequence[Result],
    names: Mapping[Key, str],
    reference: str,
    recommended: Key | None,
    part: str,
    hospitals: pd.DataFrame,
    by_itself: Key | None = None,
) -> dict[str, Any]:
    """Return the cards of all hospitals, as a dictionary with two fields.

    - ``hospitals``: one card for each hospital, in the federation's order, with its ``name``, the sentences of its
      ``lead``, its ``facts`` and the rows of its ``tables``. ``counts`` are the lowest and highest numbers of rows and
      events over seeds.
    - ``tables``: captions and columns of the tables.

    Models are compared with the model of training alone (``by_itself`` if several were trained alone) or, without it,
    with the model of the strategy ``reference``.
    """
    first = [result for result in results if result.seed == results[0].seed]
    trained = len({result.seed for result in results})
    federation = first[0].federation
    kind = federation.task
    keys = [key for result in first for model in result.outcome.figures if (key := (result.label, model)) in names]
    figures = {key: served(results, key) for key in keys}
    base = compared_with(first, reference, recommended or ("", ""), by_itself)
    titles = _strategies(first, names)
    gains: dict[Key, Gains] = {}
    if base is not None:
        against = names[base].removesuffix(" (reference)")
        gains = {key: between(results, key, base, (names[key], _in_sentence(against))) for key in keys if key != base}
    main = recommended or (results[0].label, list(results[0].outcome.figures)[-1])
    shared = [_clusters(result, titles[result.label], trained) for result in first]
    measured = card_tables.measured(results, keys)
    clinical = _clinical(results, main)
    acted = [key for key in (main, base) if key in measured.keys]
    noisy = any(result.outcome.noisy_sizes is not None for result in results)
    counts = {f"{PART_WORDS[name]} rows": _rows(results, name) for name in PARTS if not noisy}
    events = _events(hospitals)
    left = card_tables.left(results, titles, hospitals)
    judged = {h: int(max(figure.seeds[h] for figure in figures.values())) for h in range(len(federation.hospitals))}
    took_part, built = card_tables.participation(hospitals), []
    for h, hospital in enumerate(federation.hospitals):
        counted_here = {heading: each[h] for heading, each in counts.items()}
        if hospital in events:
            counted_here[f"Events among {part} rows"] = events[hospital]
        facts = [[heading, _range(*ends)] for heading, ends in counted_here.items()]
        if trained > 1:
            facts.append([f"{kind.title} defined", f"in {judged[h]} of {trained} training seeds"])
        if (main[0], hospital) in took_part:
            facts.append([f"Took part in {titles[main[0]]}", took_part[main[0], hospital]])
        facts += [[capitalised(a), values[h] or "unknown"] for a, values in federation.attributes.items()]
        alike: dict[str, list[str]] = {}
        for name, texts in filter(None, shared):
            alike.setdefault(texts[h], []).append(name)
        facts += [[f"Cluster of {listed(of)}", text] for text, of in alike.items() if text]
        facts += clinical.get(hospital, [])
        rows = [
            [*_row(names[key], figures[key], gains, key, h, kind), *measured.calibration(key, hospital)] for key in keys
        ]
        acting = [line for key in acted for line in measured.acting(key, names[key], hospital)]
        built.append(
            {
                "name": hospital,
                "lead": own_headline(gains.get(main), figures[main], names[main], h, kind),
                "facts": facts,
                "counts": {heading: list(ends) for heading, ends in counted_here.items()},
                "tables": [rows, acting, left(h)],
            }
        )
    heading = [f"{kind.title} (95 % interval)"] + ([f"Gain over {against}"] if gains else [])
    heading += ["Observed/expected events (1 is right)"] if measured.keys else []
    over = f"mean of {trained} training seeds" if trained > 1 else f"seed {results[0].seed}"
    captions = [
        {"caption": f"Figures of each model at this hospital ({over})", "columns": ["Model", *heading]},
        {"caption": "Acting on the predictions", "columns": ["From a risk of", *card_tables.ACTING]},
        {"caption": LEFT, "columns": ["Strategy", *card_tables.SENT]},
    ]
    return {"hospitals": built, "tables": captions}


def own_headline(gains: Gains | None, figures: OverSeeds, name: str, h: int, kind: TaskKind) -> list[str]:
    """Return the first sentences about hospital ``h``: its gain or, without one, its main metric.

    ``figures`` has the hospitals' main metric under the model called ``name``. ``gains`` has the gains from this model;
    None if there is no model to compare with.
    """
    value = float(figures.value[h])
    digits = kind.decimals([value])
    if not np.isfinite(value):
        return [f"This hospital cannot be judged: {kind.undefined}, or its model was never trained."]
    if gains is None or not np.isfinite(gains.value[h]):
        reached = _reached(figures, h, kind, digits)
        return [f"{capitalised(name)}: {kind.title} {reached} at this hospital."]
    up, down = gains.gaining(), gains.losing()
    judged = int(np.isfinite(gains.low).sum())
    gained = _gained(gains, h, digits)
    both = f"{kind.title} {gained} with {gains.better} against {gains.against}"
    if gained == possible.SAYS_NOTHING:
        both = f"the interval of {gains.better} against {gains.against} {gained}"
    if not (up[h] or down[h]):
        again = "" if np.isfinite(gains.low[h]) else " It has no interval."
        return [f"No difference is demonstrated at this hospital: {both}.{again}"]
    better = gains.better if up[h] else gains.against
    alike = int((up if up[h] else down).sum())
    return [
        f"This hospital does better {'alone' if better == ALONE else f'with {better}'}: {both}.",
        f"Of {judged} judged hospitals, {alike} {'has' if alike == 1 else 'have'} an interval that demonstrates this; "
        f"at most {by_chance(judged)} would by chance, on average.",
    ]


def recommended_gains(
    results: Sequence[Result], names: Mapping[Key, str], reference: str, recommended: Key, by_itself: Key | None = None
) -> Gains | None:
    """Return each hospital's gain from the recommended model over training alone or, if no model was trained alone,
    over the reference strategy.

    If several models were trained alone, the recommended model is compared with ``by_itself``. Returns None without a
    model to compare with, or without a run of the recommended strategy.
    """
    base = compared_with(results, reference, recommended, by_itself)
    if base is None or all(result.label != recommended[0] for result in results):
        return None
    return between(
        results, recommended, base, (names[recommended], _in_sentence(names[base].removesuffix(" (reference)")))
    )


def _in_sentence(name: str) -> str:
    """Return a method's name as it is written within a sentence.

    >>> _in_sentence("Training alone with MLP"), _in_sentence("FedAvg")
    ('training alone with MLP', 'FedAvg')
    """
    return name.replace(ALONE.capitalize(), ALONE)


def _rows(results: Sequence[Result], part: str) -> list[tuple[float, float]]:
    each = np.stack([federation.sizes(part) for federation in {r.seed: r.federation for r in results}.values()])
    return list(zip(each.min(axis=0).tolist(), each.max(axis=0).tolist(), strict=True))


def _range(low: float, high: float) -> str:
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}, by seed"


def _row(name: str, figure: OverSeeds, gains: Mapping[Key, Gains], key: Key, h: int, kind: TaskKind) -> list[str]:
    digits = kind.decimals(figure.value)
    cells = [name, _reached(figure, h, kind, digits)]
    if key in gains:
        cells.append(_gained(gains[key], h, digits))
    elif gains:
        cells.append("–")
    return cells


def _reached(figures: OverSeeds, h: int, kind: TaskKind, digits: int) -> str:
    limits = possible.level(Limits(float(figures.low[h]), float(figures.high[h])), kind.larger)
    return with_interval(float(figures.value[h]), *limits, digits)


def _gained(gains: Gains, h: int, digits: int) -> str:
    limits = possible.difference(Limits(float(gains.low[h]), float(gains.high[h])), gains.kind.larger)
    return with_interval(float(gains.value[h]), *limits, digits, sign=True)


def _events(hospitals: pd.DataFrame) -> dict[str, tuple[float, float]]:
    if "events_test" not in hospitals:
        return {}
    # Labels of more than two classes have no events.
    ends = hospitals.dropna(subset="events_test").groupby("hospital")["events_test"].agg(["min", "max"])
    return {str(name): (float(low), float(high)) for name, low, high in ends.itertuples()}


def _clinical(results: Sequence[Result], main: Key) -> dict[str, list[list[str]]]:
    """Return table rows on the calibration of the model ``main``, by hospital; may be empty."""
    label, model = main
    files = [result.folder / "clinical.csv" for result in results if result.label == label]
    present = [file for file in files if file.exists()]
    if not present:
        return {}
    rows = read_rows(present, model={model}, figure={*CLINICAL, FLOOR})
    chance = rows[rows["figure"] == FLOOR].groupby("hospital")["high"].mean()
    first, estimates = over_runs(rows[rows["figure"] != FLOOR].reset_index(drop=True), ["hospital", "figure", "at"])
    lines: dict[str, list[list[str]]] = {}
    of_rows = zip(*(first[name].tolist() for name in ("hospital", "figure", "undefined")), strict=True)
    figures = zip(*(each.tolist() for each in estimates), strict=True)
    for (hospital, figure, undefined), (value, low, high, seeds) in zip(of_rows, figures, strict=True):
        text = with_interval(value, low, high, 2)
        if not seeds:
            text = f"undefined: {undefined}"
        elif figure == "calibration_error" and hospital in chance:
            text += f" (up to {chance[hospital]:.2f} by chance if calibrated)"
        elif np.isnan(low):
            text += ", no interval"
        if 0 < seeds < len(files):
            text += f", of {seeds} of {len(files)} seeds"
        lines.setdefault(str(hospital), []).append([CLINICAL[str(figure)], text])
    return lines


def _strategies(first: Sequence[Result], names: Mapping[Key, str]) -> dict[str, str]:
    """Return the display name of each strategy, by label; for a single run, the run's title."""
    if len(first) == 1:
        return {first[0].label: first[0].title or first[0].label}
    return {result.label: of_strategy(next(names[key] for key in names if key[0] == result.label)) for result in first}


def _clusters(result: Result, name: str, trained: int) -> tuple[str, list[str]] | None:
    """Return the strategy's ``name``, and one text per hospital on its cluster; None if the run has no clusters.

    ``trained`` is the number of training seeds; if it is above 1, the name says which seed the clusters are from.
    """
    rows = result.outcome.cluster
    if rows is None:
        return None
    rows = np.asarray(rows)
    attributes = result.federation.attributes
    texts = {}
    for cluster in np.unique(rows[rows > 0]).tolist():
        inside = rows == cluster
        excess = []
        for attribute, values in attributes.items():
            for level in sorted(set(values) - {""}):
                has = np.array([value == level for value in values])
                here, elsewhere = has[inside].mean(), has[~inside].mean() if (~inside).any() else 0.0
                excess.append((here - elsewhere, f"{attribute} {level} ({here:.0%}; elsewhere {elsewhere:.0%})"))
        excess.sort(key=lambda pair: -pair[0])
        more = [text for difference, text in excess[:MORE_OFTEN] if difference > 0]
        others = int(inside.sum()) - 1
        shares = f", which more often have {' and '.join(more)}" if more and others else ""
        texts[cluster] = f"{cluster}, with {others} other {'hospital' if others == 1 else 'hospitals'}{shares}"
    name += f" (seed {result.seed})" if trained > 1 else ""
    return name, [texts.get(row, "none: it uses the global model") for row in rows.tolist()]

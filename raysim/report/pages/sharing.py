"""A page for sharing: hospitals have pseudonyms, and no count of rows below five can be read or inferred.

If patients have several rows, five rows may belong to one patient.

- The page contains only the values that this module names.
- A hospital's counts of rows or events become ranges. If the total of all hospitals reveals more about a count below
  five than the count's range does, counts of this kind are left out for all hospitals.
- A hospital's metrics remain if at least five of its rows have the event and at least five do not, in every seed.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raysim.report.hospital.clinical import LEAST

SHEETS = ("comparison", "run")
"""The kinds of pages that may be shared."""

NOTE = (
    f"For sharing: hospitals have pseudonyms. Counts of rows below {LEAST} are withheld, as are totals that would "
    "reveal them. Rows of one patient count separately. The complete page stays with its author."
)

WITHHELD = "withheld"

FIGURES = frozenset(
    ("forest", "curve", "trade-offs", "by-round", "alike", "costs", "by-bytes", "training-loss", "virtual-time")
)
"""The figures that may be shared: they show no single hospital, and no count of patients."""

SHARED_VALUES = (
    "title",
    "task",
    "part",
    "few",
    "several",
    "baseline",
    "noise_seed",
    "equal",
    "columns",
    "body",
    "difference_columns",
    "differences",
    "accuracy_columns",
    "accuracy",
    "noise_columns",
    "noise",
    "protections",
    "gains",
    "gains_by_size",
)
"""The values that a page for sharing keeps, with hospitals' names and small counts replaced."""

PLOTS = ("first", "forest", "accuracy_figures", "equity", "costs", "method")
"""The values that are lists of figures. Only figures that are in :data:`FIGURES` and not collapsed are kept."""

NAMING = frozenset(("harm", "calibration"))
"""The findings whose lines on the decision card lose their parentheses with hospitals' names."""

UNITS = r"(?:rows?|events?|non-events?|patients?|stays?(?! as\b)|deaths?|admissions?)"
SMALL = re.compile(rf"(?<![\w.,])([0-{LEAST - 1}](?:\.\d+)?)( (?:\w+ )?{UNITS}\b)")
"""Matches a number below :data:`LEAST` before a word such as ``patients``, ``rows`` or ``deaths``."""

MARK = re.compile(r'<(path|circle|rect)\b[^>]*\bdata-h="(-?\d+)"[^>]*></\1>')
"""Matches a hospital's marker in an SVG figure."""


def shared(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a page for sharing, from the content of the original page's ``report.json``."""
    values = tree["values"]
    hospitals = values["cards"]["hospitals"]
    order = list(range(len(hospitals)))
    secrets.SystemRandom().shuffle(order)  # the order of hospitals would reveal their names
    names = [str(hospital["name"]) for hospital in hospitals]
    pseudonym_of = {names[h]: name for h, name in zip(order, pseudonyms(names), strict=True)}
    hidden = _hidden(hospitals)
    numbers = {h: k for k, h in enumerate(order) if not small(hospitals[h])}
    cleaned = {key: _clean(values[key], pseudonym_of) for key in SHARED_VALUES if key in values}
    empty: dict[str, Any] = {"events": [], "worst": {}, "links": [], "files": [], "runs": [], "fairness": []}
    return {
        **empty,
        **cleaned,
        "shared": NOTE,
        "provenance": _provenance(values["provenance"]),
        "card": _card(values["card"], pseudonym_of),
        "reasons": [_sentence(text, pseudonym_of) for text in values.get("reasons", [])],
        "caution": _sentence(values.get("caution", ""), pseudonym_of),
        "privacy": [_sentence(text, pseudonym_of) for text in values["privacy"]],
        "evidence": "",
        "undefined": "",
        "traffic": [[name, rows, _kinds(sent)] for name, rows, sent in values["traffic"]],
        "cards": {
            "hospitals": [_hospital(hospitals[h], pseudonym_of[names[h]], hidden) for h in order],
            "tables": values["cards"]["tables"],
        },
        **{key: _figures(values.get(key, [])) for key in PLOTS},
        "use": values.get("use_shared", []),
        "gain_figures": [_marked(figure, numbers) for figure in values["gain_figures"]],
    }


def pseudonyms(names: Sequence[str]) -> list[str]:
    """Return pseudonyms for ``names``. No pseudonym contains any of ``names``, except names that are numbers."""
    digits = len(str(len(names)))
    for prefix in ("Site", "Clinic", "Place", "Unit"):
        chosen = [f"{prefix} {k + 1:0{digits}d}" for k in range(len(names))]
        if not any(name in each for name in names if not name.isdigit() for each in chosen):
            return chosen
    return [f"{chr(0x2116)} {k + 1:0{digits}d}" for k in range(len(names))]


def band(low: float, high: float) -> tuple[int, int]:
    """Return the range that replaces counts from ``low`` to ``high``: 0 to 4, 5 to 9, 10 to 19, 20 to 49, and so on.

    >>> band(3, 3), band(0, 6), band(7, 7), band(130, 130)
    ((0, 4), (0, 9), (5, 9), (100, 199))
    """
    edges = [0, LEAST]
    while edges[-1] <= high:
        edges.append(edges[-1] * (5 if str(edges[-1])[0] == "2" else 4) // 2)
    first = max(edge for edge in edges if edge <= low)
    last = min(edge for edge in edges if edge > high) - 1
    return first, last


def gives_back(counts: Sequence[tuple[float, float]]) -> bool:
    """Whether the total of all hospitals reveals more about a count below :data:`LEAST` than the count's range does.

    ``counts`` has each hospital's lowest and highest count over seeds.
    """
    bands = [band(low, high) for low, high in counts]
    least, most = sum(low for low, _ in counts), sum(high for _, high in counts)
    lows, highs = (sum(each[k] for each in bands) for k in (0, 1))
    return any(low < LEAST and (most - (highs - high) > low or least - (lows - low) < high) for low, high in bands)


def small(hospital: Mapping[str, Any]) -> bool:
    """Whether a hospital may have, with any seed, fewer than :data:`LEAST` evaluated rows, rows with the event or rows
    without it; True without counts.
    """
    counts: Mapping[str, Sequence[float]] = hospital["counts"]
    for heading, (low, high) in counts.items():
        if heading.startswith("Events"):
            rows = counts.get(heading.removeprefix("Events among ").capitalize())
            if low < LEAST or rows is None or rows[0] - high < LEAST:
                return True
    evaluated = [ends for heading, ends in counts.items() if not heading.startswith("Training")]
    return not counts or any(high > 0 and low < LEAST for low, high in evaluated)


def _hidden(hospitals: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the kinds of counts (such as test rows) whose total would reveal a small count of a hospital."""
    kinds = dict.fromkeys(kind for hospital in hospitals for kind in hospital["counts"])
    return frozenset(
        kind
        for kind in kinds
        if gives_back([tuple(hospital["counts"][kind]) for hospital in hospitals if kind in hospital["counts"]])
    )


def _hospital(hospital: Mapping[str, Any], name: str, hidden: frozenset[str]) -> dict[str, Any]:
    """Return the texts on a hospital under the pseudonym ``name``, with ranges instead of counts.

    Counts of the kinds ``hidden`` are withheld, and so are metrics if too few patients have or lack the event.
    """
    facts = []
    for kind, (low, high) in hospital["counts"].items():
        first, last = band(low, high)
        text = f"fewer than {last + 1:,}" if first < LEAST else f"{first:,} to {last:,}"
        facts.append([kind, WITHHELD if kind in hidden else text])
    if small(hospital):
        lead = [f"Fewer than {LEAST} patients with or without the event are evaluated: its figures are withheld."]
        return {"name": name, "lead": lead, "facts": facts, "tables": [[] for _ in hospital["tables"]]}
    served, *others = hospital["tables"]
    rows = [[*cells[:-1], cells[-1].partition(" (")[0]] for cells in served]
    return {"name": name, "lead": hospital["lead"], "facts": facts, "tables": [rows, *([] for _ in others)]}


def _card(card: Mapping[str, Any], pseudonym_of: Mapping[str, str]) -> dict[str, Any]:
    """Return the decision card under pseudonyms; the lines of :data:`NAMING` lose their lists of hospitals."""
    lines = []
    for line in card["lines"]:
        text = _without_lists(line["text"], pseudonym_of) if line["fact"] in NAMING else line["text"]
        lines.append({**line, "text": _sentence(text, pseudonym_of), "remedy": _sentence(line["remedy"], pseudonym_of)})
    return {**{key: _sentence(card[key], pseudonym_of) for key in ("what", "headline")}, "lines": lines}


def _without_lists(text: str, names: Iterable[str]) -> str:
    """Remove each parenthesis whose text contains one of the ``names``.

    >>> _without_lists("At least 2 of 9 lose (7 and Mary), by .1 (.05 to .2)", ["7", "Mary"])
    'At least 2 of 9 lose, by .1 (.05 to .2)'
    """
    any_name = "|".join(re.escape(name) for name in names if name)
    return re.sub(rf" \([^()]*(?<![\w.])(?:{any_name})(?![\w.]*\w)[^()]*\)", "", text) if any_name else text


def _provenance(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Remove configuration and notes, which may name hospitals or data locations, and small numbers of rows."""
    rows = {part: count for part, count in provenance["rows"].items() if count >= LEAST}
    return {**provenance, "config": WITHHELD, "notes": [], "rows": rows}


def _figures(figures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{**figure} for figure in figures if figure["name"] in FIGURES and not figure["more"]]


def _marked(figure: Mapping[str, Any], numbers: Mapping[int, int]) -> dict[str, Any]:
    """Renumber the hospitals in a drawing, and remove those that ``numbers`` lacks."""

    def renumbered(match: re.Match[str]) -> str:
        number = numbers.get(int(match[2]))
        return "" if number is None else match[0].replace(f'data-h="{match[2]}"', f'data-h="{number}"')

    return {**figure, "markup": MARK.sub(renumbered, figure["markup"])}


def _kinds(sent: str) -> str:
    """Return the kinds of data that hospitals sent, without numbers of bytes, which grow with numbers of rows.

    >>> _kinds("size 4 bytes; class counts 8 to 16 bytes; rows 5.0 kB to 2.0 MB")
    'size; class counts; rows'
    """
    return "; ".join(re.sub(r" \d.*", "", part) for part in sent.split("; "))


def _clean(value: Any, pseudonym_of: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _sentence(value, pseudonym_of)
    if isinstance(value, list):
        return [_clean(each, pseudonym_of) for each in value]
    if isinstance(value, dict):
        return {key: _clean(each, pseudonym_of) for key, each in value.items()}
    return value


def _sentence(text: str, pseudonym_of: Mapping[str, str]) -> str:
    """Replace names by pseudonyms, and numbers of rows or patients below :data:`LEAST` by a phrase.

    If a hospital's name is a number, parentheses that contain this name are removed with their content.
    """
    text = _without_lists(text, [name for name in pseudonym_of if name.isdigit()])
    words = sorted((name for name in pseudonym_of if name and not name.isdigit()), key=len, reverse=True)
    if any(name in text for name in words):
        pattern = "|".join(re.escape(name) for name in words)
        text = re.sub(rf"(?<!\w)(?:{pattern})(?!\w)", lambda match: pseudonym_of[match[0]], text)
    return SMALL.sub(lambda match: f"fewer than {LEAST}{match[2]}", text)

"""Names of strategies, models and figures on pages: words for people instead of configuration names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

import pandas as pd

from raysim.core import words
from raysim.report.possible import NOTHING, SAYS_NOTHING
from raysim.report.tables import references
from raysim.strategies.shared.personalization import RECALIBRATED

Key = tuple[str, str]
"""The label of a strategy, and the name of one of its models."""

MODELS = {
    "global": "global model",
    "cluster": "cluster models",
    "personal": "hospitals' own models",
    RECALIBRATED: "recalibrated",
}

SHORT = {
    ", hospitals' own models": ", own",
    ", global model": ", global",
    ", cluster models": ", clusters",
    " (reference)": "",
    " (exact regression)": "",
    " with logistic regression": ", regression",
    " with linear regression": ", regression",
    " with boosted trees": ", trees",
    " with MLP": ", MLP",
}


def names(table: pd.DataFrame, titles: Mapping[str, str]) -> dict[Key, str]:
    """Return a display name for each strategy and model. The name includes the model if the strategy has several
    models.

    ``titles`` has strategies' titles by label; :func:`distinct` makes equal titles different. The names of references
    end with "(reference)".
    """
    name_of = distinct(table["strategy"], titles)
    several = table.groupby("strategy")["model"].nunique()
    return {
        (label, model): name_of[label]
        + (f", {MODELS.get(model, model)}" if several[label] > 1 else "")
        + (" (reference)" if reference else "")
        for label, model, reference in zip(table["strategy"], table["model"], references(table), strict=True)
    }


def distinct(labels: Iterable[str], titles: Mapping[str, str]) -> dict[str, str]:
    """Return a different name for each of ``labels``.

    The name is the label's title, or the label if it has none. If labels share a title, each name is the title with the
    label added.

    >>> distinct(["chip", "ifca"], {"chip": "Trees", "ifca": "Trees"})
    {'chip': 'Trees (chip)', 'ifca': 'Trees (ifca)'}
    """
    each = dict.fromkeys(labels)
    titled = [titles.get(label, label) for label in each]
    return {label: f"{t} ({label})" if titled.count(t) > 1 else t for label, t in zip(each, titled, strict=True)}


def short(name: str) -> str:
    """Shorten a display name of a strategy and model.

    >>> short("CHiP-FL, hospitals' own models"), short("Training alone with boosted trees (reference)")
    ('CHiP-FL, own', 'Training alone, trees')
    """
    for long, shorter in SHORT.items():
        name = name.replace(long, shorter)
    return name


def of_strategy(name: str) -> str:
    """Return a name from :func:`names` without the model and without "(reference)".

    >>> of_strategy("Ditto, lam 0.1, hospitals' own models"), of_strategy("Training alone (reference)")
    ('Ditto, lam 0.1', 'Training alone')
    """
    name = name.removesuffix(" (reference)")
    for model in MODELS.values():
        name = name.removesuffix(f", {model}")
    return name


def number(value: float, digits: int, *, sign: bool = False) -> str:
    r"""Format a number with a true minus sign; "undefined" if it is not finite.

    >>> number(-0.0123, 3) == "\N{MINUS SIGN}0.012", number(0.5, 2, sign=True), number(float("nan"), 2)
    (True, '+0.50', 'undefined')
    """
    if not math.isfinite(value):
        return "undefined"
    return words.number(value, digits, sign=sign).replace("-", "\N{MINUS SIGN}")


def minus(text: str) -> str:
    r"""Replace the hyphens before the numbers of a sentence with true minus signs.

    >>> minus("a-1: -0.01 (-.2 to +3)") == "a-1: \N{MINUS SIGN}0.01 (\N{MINUS SIGN}.2 to +3)"
    True
    """
    return re.sub(r"(?<![\w-])-(?=\.?\d)", "\N{MINUS SIGN}", text)


def interval(low: float, high: float, digits: int, *, sign: bool = False) -> str:
    """Format an interval; empty if a limit is NaN, 'says nothing' if uninformative (:data:`NOTHING`).

    >>> interval(0.1, 0.25, 2), interval(float("nan"), 1.0, 2), interval(*NOTHING, 2)
    ('0.10 to 0.25', '', 'says nothing')
    """
    if low != low or high != high:
        return ""
    if (low, high) == NOTHING:
        return SAYS_NOTHING
    if math.isinf(low):
        return f"{number(high, digits, sign=sign)} or less" if math.isfinite(high) else ""
    if math.isinf(high):
        return f"{number(low, digits, sign=sign)} or more"
    return " to ".join(words.ends(low, high, digits, sign=sign)).replace("-", "\N{MINUS SIGN}")


def with_interval(value: float, low: float, high: float, digits: int, *, sign: bool = False) -> str:
    """Format a number with its interval.

    >>> with_interval(0.2, 0.1, 0.25, 2), with_interval(0.2, float("nan"), 0.25, 2), with_interval(0.2, *NOTHING, 2)
    ('0.20 (0.10 to 0.25)', '0.20', 'says nothing')
    """
    if (low, high) == NOTHING:
        return SAYS_NOTHING
    limits = interval(low, high, digits, sign=sign)
    return f"{number(value, digits, sign=sign)} ({limits})" if limits else number(value, digits, sign=sign)


def size(value: float) -> str:
    """Format a number of bytes with a suitable unit.

    >>> size(900), size(12_345), size(4_000_000), size(0)
    ('900 bytes', '12.3 kB', '4.0 MB', '0')
    """
    if not math.isfinite(value):
        return "undefined"
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:,.1f} {name}"
    return f"{value:,.0f} bytes" if value else "0"


def signed(value: float, digits: int) -> str:
    r"""Format ``value`` with its sign, a true minus, and ``digits`` decimals; no sign if it rounds to 0.

    >>> signed(0.01234, 3), signed(-0.01234, 3) == "\N{MINUS SIGN}0.012", signed(-0.0001, 3)
    ('+0.012', True, '0.000')
    """
    return number(value, digits, sign=True)

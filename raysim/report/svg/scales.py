"""Axes: they map values to positions between 0 and 1, with ticks at round values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Kind = Literal["linear", "log", "names"]

LARGEST = 1e150
"""The largest absolute value with a position on an axis, so that ranges and ratios are finite.

On a logarithmic axis, values below ``1 / LARGEST`` have no position either.
"""

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""The distance between ticks is one of these numbers times a power of ten."""

MARGIN = 0.04
"""The free space at both ends of an axis, as a share of the values' range."""


@dataclass(frozen=True)
class Axis:
    """An axis from ``low`` to ``high``; ``title`` names the quantity and its unit.

    On an axis of names, the value i is the i-th name, counted from 0.
    """

    title: str
    low: float
    high: float
    ticks: tuple[float, ...]
    texts: tuple[str, ...]
    kind: Kind = "linear"

    def places(self, values: ArrayLike) -> NDArray[np.float64]:
        """Return the positions of values, from 0 at the start of the axis to 1 at its end.

        A position is NaN if the value is NaN or beyond :data:`LARGEST`, or if a logarithmic axis cannot show it.
        """
        x = np.asarray(values, dtype=np.float64)
        x = np.where(np.abs(x) <= LARGEST, x, np.nan)
        low, high = self.low, self.high
        if self.kind == "log":
            with np.errstate(divide="ignore", invalid="ignore"):
                x = np.where(x >= 1 / LARGEST, np.log(x), np.nan)
            low, high = math.log(low), math.log(high)
        return np.asarray((x - low) / (high - low))

    def place(self, value: float) -> float:
        """Return the position of one value, as :meth:`places` does."""
        return float(self.places(value))


def linear(
    title: str,
    values: ArrayLike,
    *,
    within: tuple[float, float] = (-math.inf, math.inf),
    include: Sequence[float] = (),
    margin: float = MARGIN,
    count: int = 5,
    signed: bool = False,
    whole: bool = False,
) -> Axis:
    """Build an axis that contains all finite ``values`` and the numbers ``include``.

    - ``within``: the least and the greatest value that the axis may show; the axis is cut to this range.
    - ``margin``: the free space at both ends, as a share of the values' range.
    - ``count``: the approximate number of ticks.
    - ``signed``: whether ticks have a sign.
    - ``whole``: whether ticks are integers.
    """
    low, high = _range(values, include)
    room = margin * (high - low)
    low, high = max(low - room, within[0]), min(high + room, within[1])
    ticks = round_ticks(low, high, count, least=1.0 if whole else 0.0)
    if whole:
        ticks = tuple(tick for tick in ticks if tick == round(tick))
    return Axis(title, low, high, ticks, decimals(ticks, signed=signed))


def share(title: str, values: ArrayLike = (0.0, 1.0), *, margin: float = 0.0) -> Axis:
    """Build an axis of shares between 0 and 1, with ticks in per cent."""
    low, high = _range(values, (0.0,))
    low, high = max(low - margin, 0.0), min(high + margin * (high - low), 1.0)
    ticks = round_ticks(low, high, 5)
    return Axis(title, low, high, ticks, tuple(f"{100 * tick:g} %" for tick in ticks))


def log(title: str, values: ArrayLike, *, count: int = 8) -> Axis:
    """Build a logarithmic axis that contains all positive ``values``.

    The axis has at most ``count`` ticks, or about ``count`` if the values are close together.
    """
    x = np.asarray(values, dtype=np.float64).ravel()
    x = x[(x >= 1 / LARGEST) & (x <= LARGEST)]
    low, high = (float(x.min()), float(x.max())) if len(x) else (1.0, 10.0)
    if high / low < 1 + 1e-12:
        low, high = low / 2, high * 2
    room = (high / low) ** MARGIN
    low, high = low / room, high * room
    between: tuple[float, ...] = (1.0,) if high / low > 500 else (1.0, 2.0, 5.0)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in between]
    inside = tuple(tick for tick in ticks if low <= tick <= high)
    if len(inside) > count and len(between) > 1:
        inside = tuple(tick for tick in inside if round(math.log10(tick), 9) % 1 == 0) or inside
    if len(inside) < 2:  # values so close that no power of ten is among them
        inside = round_ticks(low, high, count)
        return Axis(title, low, high, inside, decimals(inside), "log")
    every = -(-len(inside) // count)
    return Axis(title, low, high, inside[::every], tuple(plain(tick) for tick in inside[::every]), "log")


def spaced(title: str, values: ArrayLike, **options: object) -> Axis:
    """Build an axis for the tried values of a setting.

    The axis is logarithmic if the range is wide and the ratios of neighbouring values vary less than their differences;
    else it is linear.
    """
    x = np.unique(np.asarray(values, dtype=np.float64))
    x = x[np.abs(x) <= LARGEST]
    if len(x) > 2 and x[0] > 0 and x[-1] / x[0] >= 20:
        steps, ratios = np.diff(x), np.diff(np.log(x))
        if ratios.max() / ratios.min() < steps.max() / steps.min():
            return log(title, x)
    return linear(title, x, **options)  # type: ignore[arg-type]


def names(title: str, entries: Sequence[str]) -> Axis:
    """Build an axis of evenly spaced names."""
    count = len(entries)
    return Axis(title, -0.5, max(count, 1) - 0.5, tuple(float(i) for i in range(count)), tuple(entries), "names")


def round_ticks(low: float, high: float, count: int, least: float = 0.0) -> tuple[float, ...]:
    """Return about ``count`` round values from ``low`` to ``high``, at least ``least`` apart.

    >>> round_ticks(0.71, 0.93, 5)
    (0.75, 0.8, 0.85, 0.9)
    """
    width = max((high - low) / max(count, 1), least)
    power = 10.0 ** math.floor(math.log10(width))
    step = next(step * power for step in STEPS if step * power >= width * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(float(f"{k * step:.12g}") for k in range(first, last + 1))


def decimals(ticks: Sequence[float], *, signed: bool = False) -> tuple[str, ...]:
    """Format ticks, all with as many decimals as the finest tick needs.

    >>> decimals((0.75, 0.8)), decimals((-0.1, 0.0, 0.1), signed=True), decimals((1000.0, 20000.0))
    (('0.75', '0.80'), ('−0.1', '0', '+0.1'), ('1,000', '20,000'))
    """
    digits = 0
    while digits < 9 and any(abs(round(tick, digits) - tick) > 1e-9 * max(1.0, abs(tick)) for tick in ticks):
        digits += 1
    texts = (("0" if tick == 0 else f"{tick:+,.{digits}f}") if signed else f"{tick:,.{digits}f}" for tick in ticks)
    return tuple(text.replace("-", "−") for text in texts)


def fixed(value: float, digits: int) -> str:
    """Format a value with ``digits`` decimals; a value that rounds to 0 has no sign.

    >>> fixed(-0.123, 2), fixed(-0.001, 2), fixed(3.0, 1)
    ('−0.12', '0.00', '3.0')
    """
    text = f"{value:.{digits}f}"
    return (text.lstrip("-") if float(text) == 0 else text).replace("-", "−")


def plain(value: float) -> str:
    """Format a tick of a logarithmic axis.

    >>> plain(0.001), plain(20.0), plain(50000.0), plain(2e6), plain(1e-6)
    ('0.001', '20', '50,000', '2 million', '1e-06')
    """
    if value >= 1e6:
        return f"{value / 1e6:,g} million"
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _range(values: ArrayLike, include: Sequence[float]) -> tuple[float, float]:
    x = np.concatenate([np.asarray(values, dtype=np.float64).ravel(), np.asarray(include, dtype=np.float64)])
    x = x[np.abs(x) <= LARGEST]
    low, high = (float(x.min()), float(x.max())) if len(x) else (0.0, 1.0)
    if high - low < 1e-12:
        reach = abs(low) * 0.1 if abs(low) > 1 / LARGEST else 0.5
        return low - reach, high + reach
    return low, high

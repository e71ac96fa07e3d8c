"""Search spaces: the configuration keys that a sweep varies, their values, and their conditions.

A space is YAML, with a distribution for each dotted key::

    strategy.name: {choice: [chip, fedprox]}
    strategy.mu: {loguniform: [1e-3, 1]}
    strategy.clusters: {randint: [2, 12], when: {strategy.name: chip}}

Every distribution maps a number between 0 and 1 to a value. Random search derives this number from the sweep's seed,
the key and the trial's number, so a trial's values do not depend on other trials.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysim.core.errors import ConfigError, nearest
from raysim.core.streams import stream
from raysim.core.words import as_yaml

Params = dict[str, Any]
"""The values of the searched keys in a trial, by dotted key, without keys whose condition is false."""

RANGES = {"uniform": 2, "loguniform": 2, "quniform": 3, "qloguniform": 3, "randint": 2}
"""The distributions over numbers, each with its number of arguments: low, high and, for three arguments, a step."""

LISTS = ("choice", "grid")

_WITH_EXPONENT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+")

MOST_COMBINATIONS = 100_000
"""The largest number of combinations that searcher ``grid`` can list."""

FIXED = {
    "name": "it names the sweep; set it outside the space",
    "seed": "set seeds outside the space; each trial runs all of them",
    "seeds": "set them outside the space; each trial runs all of them",
    "data": "all trials share one federation; start a sweep for each federation",
    "resources": "all trials share the hospital actors; set it outside the space",
    "evaluation": "all trials are judged in the same way; set it outside the space",
    "tracking": "one store records the whole sweep; set it outside the space",
    "checkpoint": "trials have no checkpoints; a stopped sweep resumes from its journal",
    "strategies": "search strategy.name instead",
    "models": "search model.name instead",
    "reference": "a sweep has no reference; remove the key",
    "sweep": "a sweep does not search itself; remove the key",
}
"""The top-level keys that cannot be searched, each with the reason or an alternative."""


@dataclass(frozen=True)
class Dimension:
    """The distribution of one searched key: a list of ``values``, or numbers in ``[low, high]``.

    With a ``step``, the numbers are multiples of it. ``randint`` excludes ``high``, as in Ray Tune and numpy. The key
    exists in a trial only if each key in ``when`` has one of the values that ``when`` lists for it.
    """

    key: str
    kind: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    step: float | None = None
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def listed(self) -> bool:
        """Whether the values are given as a list."""
        return self.kind in LISTS

    @property
    def continuous(self) -> bool:
        """Whether the values are real numbers without a step."""
        return self.kind in ("uniform", "loguniform")

    def at(self, u: float) -> Any:
        """Return the value for a number ``u`` in [0, 1)."""
        if self.listed:
            return self.values[min(int(u * len(self.values)), len(self.values) - 1)]
        if self.kind == "randint":
            return min(int(self.low) + int(u * (self.high - self.low)), int(self.high) - 1)
        if "log" in self.kind:
            return self.rounded(math.exp(math.log(self.low) + u * (math.log(self.high) - math.log(self.low))))
        return self.rounded(self.low + u * (self.high - self.low))

    def rounded(self, value: float) -> float:
        """Clip ``value`` to the range and round it to a multiple of the step, as an integer if the step is a whole
        number."""
        value = min(max(value, self.low), self.high)
        if self.step is None:
            return value
        multiple = round(value / self.step)
        multiple = min(max(multiple, math.ceil(self.low / self.step - 1e-9)), math.floor(self.high / self.step + 1e-9))
        exact = float(f"{multiple * self.step:.12g}")
        return int(exact) if float(self.step).is_integer() else exact

    def all(self) -> list[Any]:
        """Return all values of a distribution that is not continuous, ascending or in the order of the list."""
        if self.listed:
            return list(self.values)
        if self.kind == "randint":
            return list(self._steps())
        assert self.step is not None
        return [self.rounded(k * self.step) for k in self._steps()]

    @property
    def count(self) -> int:
        """Return the number of values of a distribution that is not continuous."""
        steps = self._steps()
        return len(self.values) if self.listed else max(0, steps.stop - steps.start)

    def _steps(self) -> range:
        """Return the values divided by the step, as whole numbers; without a step, the values themselves."""
        if self.step is None:
            return range(int(self.low), int(self.high))
        return range(math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9) + 1)

    def ends(self) -> list[Any]:
        """Return the values to check before a sweep: all listed values, or both ends of a range."""
        return list(self.values) if self.listed else [self.at(0.0), self.at(math.nextafter(1.0, 0.0))]

    def holds(self, params: Params) -> bool:
        """Whether the condition of the key holds, given the values ``params`` of earlier keys."""
        return all(key in params and params[key] in values for key, values in self.when.items())


@dataclass(frozen=True)
class Space:
    """The searched keys with their distributions, ordered so that conditions refer only to earlier keys."""

    dimensions: tuple[Dimension, ...]

    def __iter__(self) -> Iterator[Dimension]:
        return iter(self.dimensions)

    @property
    def logarithmic(self) -> frozenset[str]:
        """Return the keys that are searched on a logarithmic scale."""
        return frozenset(each.key for each in self.dimensions if "log" in each.kind)

    def pick(self, value: Callable[[Dimension], Any]) -> Params:
        """Return the values of a trial: ``value(dimension)`` for each key whose condition holds."""
        params: Params = {}
        for dimension in self.dimensions:
            if dimension.holds(params):
                params[dimension.key] = value(dimension)
        return params

    def draw(self, seed: int, number: int) -> Params:
        """Sample the values of trial ``number``, independently for each key.

        Keys with ``grid`` cycle through their combinations instead.
        """
        turn = self.turn(number)

        def value(dimension: Dimension) -> Any:
            if dimension.kind == "grid":
                return turn[dimension.key]
            return dimension.at(float(stream(seed, f"sweep {dimension.key}", number).random()))

        return self.pick(value)

    def turn(self, number: int) -> Params:
        """Return the values of the keys with ``grid`` in trial ``number`` (from 1). Trials cycle through all
        combinations of these values.
        """
        grids = [dimension for dimension in self.dimensions if dimension.kind == "grid"]
        place, params = number - 1, {}
        for dimension in reversed(grids):
            place, index = divmod(place, len(dimension.values))
            params[dimension.key] = dimension.values[index]
        return params

    def grid(self) -> list[Params]:
        """Return all combinations of the keys' values, each once.

        Raises ``ConfigError`` if a distribution is continuous or there are too many combinations.
        """
        for dimension in self.dimensions:
            if dimension.continuous:
                raise ConfigError(
                    f"sweep.space.{dimension.key}: {dimension.kind} has infinitely many values, which searcher grid "
                    "cannot list; "
                    f"use grid: [...] or q{dimension.kind}, or searcher random"
                )
        if math.prod(dimension.count for dimension in self.dimensions) > MOST_COMBINATIONS:
            raise ConfigError(
                f"sweep.space: has more than {MOST_COMBINATIONS:,} combinations for searcher grid; use larger steps "
                "or searcher random"
            )
        combinations: list[Params] = []
        seen: set[str] = set()
        for values in itertools.product(*(dimension.all() for dimension in self.dimensions)):
            chosen = dict(zip((dimension.key for dimension in self.dimensions), values, strict=True))
            params = self.pick(lambda dimension, chosen=chosen: chosen[dimension.key])  # type: ignore[misc]
            if repr(params) not in seen:
                seen.add(repr(params))
                combinations.append(params)
        return combinations

    def corners(self) -> Iterator[tuple[str, Params]]:
        """Yield every key with a trial's values, once for each end of the key's range or each of its listed values.

        Keys in the key's condition have values that fulfil it; all other keys have their lowest or first listed value.
        """
        by_key = {dimension.key: dimension for dimension in self.dimensions}
        for dimension in self.dimensions:
            needed = _needed(dimension, by_key)
            for end in dimension.ends():
                fixed = needed | {dimension.key: end}
                yield dimension.key, self.pick(lambda d, fixed=fixed: fixed.get(d.key, d.ends()[0]))  # type: ignore[misc]


def parse(tree: Any) -> Space:
    """Parse the search space of a sweep file. Raises ``ConfigError``, with the key, for an invalid distribution."""
    where = "sweep.space"
    if not isinstance(tree, Mapping) or not tree:
        raise ConfigError(f"{where}: names no key to search; write for example strategy.lam: {{loguniform: [0.01, 1]}}")
    dimensions = {str(key): _dimension(str(key), value, f"{where}.{key}") for key, value in tree.items()}
    for dimension in dimensions.values():
        _check_conditions(dimension, dimensions, f"{where}.{dimension.key}.when")
    return Space(_ordered(dimensions, where))


def _dimension(key: str, value: Any, where: str) -> Dimension:
    if (head := key.partition(".")[0]) in FIXED:
        raise ConfigError(f"{where}: '{head}' is the same for all trials: {FIXED[head]}")
    kinds = [*RANGES, *LISTS]
    given = dict(value) if isinstance(value, Mapping) else {}
    when = given.pop("when", {})
    if len(given) != 1:
        raise ConfigError(f"{where}: {as_yaml(value)} is not one distribution; write one of {', '.join(kinds)}")
    kind, bounds = next(iter(given.items()))
    if kind not in kinds:
        raise ConfigError(f"{where}: '{kind}' is not a distribution; {nearest(str(kind), kinds)}")
    if not isinstance(bounds, list | tuple):
        raise ConfigError(f"{where}.{kind}: {as_yaml(bounds)} is not a list")
    if not isinstance(when, Mapping):
        raise ConfigError(
            f"{where}.when: {as_yaml(when)} is not keys and values; write for example training.optimizer: sgd"
        )
    conditions = {str(k): _values(v if isinstance(v, list | tuple) else (v,)) for k, v in when.items()}
    if kind in LISTS:
        if not bounds:
            raise ConfigError(f"{where}.{kind}: is empty; list at least one value")
        return Dimension(key, kind, values=_values(bounds), when=conditions)
    return _range(key, kind, bounds, conditions, f"{where}.{kind}")


def _range(key: str, kind: str, bounds: Sequence[Any], when: Mapping[str, tuple[Any, ...]], where: str) -> Dimension:
    if len(bounds) != RANGES[kind]:
        takes = "low, high, step" if RANGES[kind] == 3 else "low, high"
        raise ConfigError(f"{where}: {list(bounds)} is not [{takes}]")
    numbers = [_number(bound, where) for bound in bounds]
    low, high, step = numbers[0], numbers[1], numbers[2] if len(numbers) > 2 else None
    if kind == "randint":
        for number in (low, high):
            if not float(number).is_integer():
                raise ConfigError(f"{where}: {number} is not a whole number")
        if not low < high:
            raise ConfigError(
                f"{where}: [{low:g}, {high:g}] is empty, because the upper end is excluded; raise the upper end"
            )
        return Dimension(key, kind, low=int(low), high=int(high), when=when)
    if not low < high:
        raise ConfigError(f"{where}: the lower end {low:g} is not below the upper end {high:g}; correct the two ends")
    if "log" in kind and low <= 0:
        raise ConfigError(f"{where}: {low:g} has no logarithm; start above 0")
    if step is not None:
        if not step > 0:
            raise ConfigError(f"{where}: step {step:g} is not greater than 0")
        if math.floor(high / step + 1e-9) < math.ceil(low / step - 1e-9):
            raise ConfigError(f"{where}: no multiple of {step:g} lies between {low:g} and {high:g}; lower the step")
    return Dimension(key, kind, low=low, high=high, step=step, when=when)


def _values(listed: Sequence[Any]) -> tuple[Any, ...]:
    """Return listed values, with numbers in place of texts such as ``1e-3``, which YAML does not read as a number."""
    return tuple(float(each) if isinstance(each, str) and _WITH_EXPONENT.fullmatch(each) else each for each in listed)


def _number(value: Any, where: str) -> float:
    try:  # YAML reads 1e-3 as text
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{where}: {as_yaml(value)} is not a finite number")
    return number


def _check_conditions(dimension: Dimension, dimensions: Mapping[str, Dimension], where: str) -> None:
    for key, values in dimension.when.items():
        if key not in dimensions or key == dimension.key:
            others = [other for other in dimensions if other != dimension.key]
            raise ConfigError(
                f"{where}: '{key}' is not another key of this space; {nearest(key, others) if others else 'remove it'}"
            )
        parent = dimensions[key]
        if parent.continuous:
            raise ConfigError(
                f"{where}.{key}: the key is searched by {parent.kind}, which almost never gives one of the values "
                "of the condition; search it by choice"
            )
        for value in values:
            if value not in parent.all():
                raise ConfigError(
                    f"{where}.{key}: {as_yaml(value)} is not one of its values; name one of {as_yaml(parent.all())}"
                )


def _ordered(dimensions: Mapping[str, Dimension], where: str) -> tuple[Dimension, ...]:
    ordered: dict[str, Dimension] = {}
    while len(ordered) < len(dimensions):
        ready = [d for key, d in dimensions.items() if key not in ordered and all(k in ordered for k in d.when)]
        if not ready:
            circle = sorted(set(dimensions) - set(ordered))
            raise ConfigError(f"{where}: {' and '.join(circle)} depend on each other; remove one 'when'")
        ordered[ready[0].key] = ready[0]
    return tuple(ordered.values())


def _needed(dimension: Dimension, by_key: Mapping[str, Dimension]) -> Params:
    """Return values of other keys that fulfil the conditions of ``dimension``."""
    needed: Params = {}
    for key, values in dimension.when.items():
        needed |= _needed(by_key[key], by_key) | {key: values[0]}
    return needed

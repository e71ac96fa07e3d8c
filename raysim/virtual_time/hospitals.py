"""Speed, connection and reliability of each simulated hospital, from the section ``system``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raysim.config.sections.system import DRAWS, LIMITS, MEGABIT, PERFECT, Hospital, SystemSection
from raysim.core.errors import ConfigError, nearest
from raysim.core.streams import stream
from raysim.core.tabular import number, read_rows
from raysim.strategies.base import Floats, Ids
from raysim.virtual_time.availability import Trace, read_trace


@dataclass(frozen=True, eq=False)
class System:
    """The quantities of :class:`SystemSection` for ``N`` hospitals, each array ``[N]``."""

    rate: Floats
    """Rows trained per second."""
    down: Floats
    """Bytes received per second; infinite where transfers take no time."""
    up: Floats
    """Bytes sent per second; infinite where transfers take no time."""
    latency: Floats
    """Seconds before each message."""
    availability: Floats
    """The probability to be available when called."""
    dropout: Floats
    """The probability to be lost in a round."""
    trace: Trace | None
    """When hospitals are available; None: by ``availability``."""

    def seconds(self, ids: Ids, rows: Floats, down: Floats | float, up: Floats | float) -> Floats:
        """Return the time of hospitals ``ids [H]`` to receive ``down`` bytes, train ``rows`` and send ``up`` bytes
        back."""
        transfer = 2.0 * self.latency[ids] + down / self.down[ids] + up / self.up[ids]
        seconds: Floats = transfer + rows / self.rate[ids]
        return seconds


def resolve(section: SystemSection, names: Sequence[str], seed: int) -> System:
    """Return the system of hospitals with these names. Raises ``ConfigError`` for files and names that do not match."""
    values = {}
    for key, otherwise in PERFECT.items():
        amount = getattr(section, key)
        if isinstance(amount, dict):
            ((name, parameters),) = amount.items()
            values[key] = np.asarray(DRAWS[name](stream(seed, f"system/{key}"), len(names), *parameters), dtype=float)
            if key in ("availability", "dropout"):
                _check_values(key, values[key], names)
        else:
            values[key] = np.full(len(names), otherwise if amount is None else amount)
    where = {name: i for i, name in enumerate(names)}
    tabled = _read_table(section.table, names) if section.table is not None else {}
    for name in section.hospitals:
        if name not in where:
            raise ConfigError(f"system.hospitals: no hospital is called '{name}'; {nearest(name, names)}")
    for name, hospital in [*tabled.items(), *section.hospitals.items()]:
        for key, value in hospital.model_dump(exclude_none=True).items():
            values[key][where[name]] = value
    trace = None
    if section.trace is not None:
        trace = read_trace(section.trace, section.trace_period, names)
    return System(
        rate=values["rows_per_second"],
        down=values["downlink"] * MEGABIT,
        up=values["uplink"] * MEGABIT,
        latency=values["latency"],
        availability=values["availability"],
        dropout=values["dropout"],
        trace=trace,
    )


def _check_values(key: str, values: Floats, names: Sequence[str]) -> None:
    """Raise ``ConfigError`` for impossible values: a lognormal number need not be a probability."""
    words, fits = LIMITS[key]
    wrong = np.flatnonzero(~fits(values))
    if len(wrong):
        raise ConfigError(
            f"system.{key}: {names[wrong[0]]} draws {values[wrong[0]]:g}, which is not {words}; draw from uniform"
        )


def _read_table(path: Path, names: Sequence[str]) -> dict[str, Hospital]:
    """Return the quantities in a CSV file, by hospital's name."""
    hospitals: dict[str, Hospital] = {}
    federation = frozenset(names)
    for line, row in read_rows(path, "system.table", ("hospital",), tuple(LIMITS)):
        where, name, values = f"system.table: {path} line {line}", row.pop("hospital"), {}
        for key, text in row.items():
            if text:
                values[key] = number(text, f"{where}, {key}")
                words, fits = LIMITS[key]
                if not fits(np.float64(values[key])):
                    raise ConfigError(f"{where}, {key}: {values[key]:g} is not {words}")
        if name not in federation:
            raise ConfigError(f"{where}: no hospital is called '{name}'; {nearest(name, names)}")
        if name in hospitals:
            raise ConfigError(f"{where} names '{name}' again; keep one line")
        hospitals[name] = Hospital(**values)
    missing = next((name for name in names if name not in hospitals), None)
    if missing is not None:
        raise ConfigError(f"system.table: {path} has no line for hospital '{missing}'; add one")
    return hospitals

"""The file of ``raysim design``: the planned hospitals, and the assumptions on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Annotated, Any

import numpy as np
from pydantic import Field, field_validator

from raysim.config.checking import validated
from raysim.config.paths import expanded
from raysim.config.reading import TABLES, Source, read_tree
from raysim.core.arrays import Floats
from raysim.core.errors import ConfigError, TableGiven
from raysim.core.section import Section
from raysim.core.words import counted
from raysim.statistics.design.power import Sites

EXAMPLE = "sites:\n- {name: north, rows: 210, events: 25}\n- {name: south, rows: 90, events: 9}"
"""A list of hospitals as ``raysim design`` reads it."""

SIZES = 1
"""The seed from which the sizes of hospitals are sampled if only their number is given."""

Spread = Annotated[float, Field(ge=0, le=0.5)]


class Site(Section):
    """One hospital.

    - ``name``: the hospital's name.
    - ``rows``: the number of test patients, about a fifth of all its patients.
    - ``events``: the number of test patients who will have the event.
    """

    name: str
    rows: int = Field(ge=1, le=10**9)
    events: int = Field(ge=0)


class Many(Section):
    """Hospitals of which only the number is known, with numbers of test rows from a log-normal distribution.

    - ``hospitals``: the number of hospitals. ``median_rows``: the median number of test rows.
    - ``sigma``: the standard deviation of the logarithm of the number of test rows. ``prevalence``: the share of
      events; each hospital's number of events is rounded up.
    """

    hospitals: int = Field(ge=2, le=10_000)
    median_rows: float = Field(ge=1, le=10**9)
    sigma: float = Field(default=0.8, ge=0, le=3)
    prevalence: float = Field(gt=0, lt=1)


class Design(Section):
    """A planned comparison.

    - ``sites``: a list of hospitals, or :class:`Many`.
    - ``difference``: the relevant difference in AUROC between two methods. ``spread``: the relevant standard deviation
      of hospitals' AUROCs. ``halving``: the relevant increase of the difference between two methods when a hospital's
      size is halved.
    - ``seeds``: how often each method is trained. ``auroc``: the expected AUROC.
    - ``correlation``: the correlation of two methods' chance errors on the same patients.
    - ``hospital_sd``, ``seed_sd``: the standard deviations over hospitals, and over seeds, of the true difference
      between two methods.
    """

    name: str = "design"
    sites: tuple[Site, ...] | Many
    difference: float = Field(default=0.02, gt=0, lt=0.5)
    spread: float = Field(default=0.05, gt=0, lt=0.5)
    halving: float = Field(default=0.01, gt=0, lt=0.5)
    seeds: int = Field(default=5, ge=2, le=100)
    auroc: float = Field(default=0.8, gt=0.5, lt=1)
    correlation: float = Field(default=0.9, ge=0, lt=1)
    hospital_sd: Spread = 0.01
    seed_sd: Spread = 0.005

    @field_validator("sites", mode="before")
    @classmethod
    def _one_form(cls, sites: Any) -> Any:
        # Checked here by form, because a union's error would name the wrong member.
        if isinstance(sites, Mapping):
            return validated(Many, sites, "sites")
        return sites

    @field_validator("sites")
    @classmethod
    def _can_be_judged(cls, sites: tuple[Site, ...] | Many) -> tuple[Site, ...] | Many:
        if isinstance(sites, Many):
            return sites
        for site in sites:
            if site.events > site.rows:
                raise ValueError(
                    f"{site.name} has {site.events} events in {site.rows} rows; give at most as many events as rows"
                )
        names = [site.name for site in sites]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two hospitals are called '{name}'; give each a different name")
        return sites

    def judged(self) -> Sites:
        """Return the hospitals whose test rows have both classes. Raises ``ConfigError`` if fewer than two have."""
        events, rows = self._counts()
        defined = (events > 0) & (events < rows)
        if defined.sum() < 2:
            raise ConfigError(
                f"sites: {counted(int(defined.sum()), 'hospital')} will have test rows with and without the event; "
                "a comparison needs two, so name more hospitals or more rows"
            )
        events, others = events[defined], (rows - events)[defined]
        return Sites(events, others, self.auroc, self.correlation, self.hospital_sd, self.seed_sd)

    def undefined(self) -> int:
        """Return the number of hospitals without AUROC, because all their test rows are of one class."""
        events, rows = self._counts()
        return int(((events == 0) | (events >= rows)).sum())

    def _counts(self) -> tuple[Floats, Floats]:
        if not isinstance(self.sites, Many):
            events = [site.events for site in self.sites]
            return np.array(events, dtype=np.float64), np.array([site.rows for site in self.sites], dtype=np.float64)
        many = self.sites
        normals = np.random.default_rng(SIZES).standard_normal(many.hospitals)
        rows = np.maximum(1.0, np.round(many.median_rows * np.exp(many.sigma * normals)))
        # 15 % of 20 rows are 3.0000000000000004, which must not become 4.
        return np.minimum(np.ceil(np.round(rows * many.prevalence, 9)), rows), rows


def read_design(source: Source, overrides: Sequence[str] = ()) -> Design:
    """Read and check a planned comparison from a file."""
    if isinstance(source, str | PathLike):
        path = expanded(source)
        if path.is_dir() or path.name.lower().endswith(TABLES):
            raise TableGiven(
                f"{path}: is not a list of hospitals; write each hospital's numbers of test rows and events into a "
                "YAML file, as in the next lines",
                EXAMPLE,
            )
    return validated(Design, read_tree(source, overrides), "")

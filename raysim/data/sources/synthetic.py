"""An eICU-like federation generated from a seed, for first experiments without data.

A row of hospital ``h`` is generated as follows; names of whole words, such as ``signal``, are fields of
:class:`Synthetic`:

1. A patient has a severity ``s ~ N(0, 1)`` and latent features ``z_j = r_j s + sqrt(1 - r_j^2) e_j`` with
   ``e_j ~ N(0, 1)``. Here ``r_j`` is the correlation with severity.
2. The logit of death is ``c_h + signal * z.b_h``, where ``b_h`` is scaled so that ``z.b_h ~ N(0, 1)``. A part of
   ``b_h`` is common to all hospitals. The rest differs between practice groups (by ``group_effects``) and between
   hospitals (by ``site_effects``).
3. The intercept ``c_h`` is solved so that the expected share of deaths is the hospital's prevalence, which is sampled
   from the range ``prevalence``. A share ``label_noise`` of labels is sampled with the prevalence as probability,
   without regard to the patient. With ``task: regression`` the label is the logit itself, a score of risk, plus
   ``noise * N(0, 1)``.
4. The recorded value is ``z_j`` plus a shift of the hospital (by ``case_mix``) and a shift of its practice group (by
   ``group_shift``), converted to the feature's unit. The conversion is linear, exponential (creatinine, lactate ...)
   or, for a flag, a threshold.
5. The probability that a value is missing depends on the feature, the hospital and its practice group. It is higher for
   less sick patients.

Each hospital has separate random streams, so its patients do not depend on the number of hospitals. If a hospital gets
more rows, its first patients stay the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import NormalDist
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from raysim.core import memory
from raysim.core.arrays import shared_out
from raysim.core.section import Seed
from raysim.core.streams import Streams, stream
from raysim.core.words import counted
from raysim.data.records import Records
from raysim.data.sources.synthetic_features import descriptions, feature_names

Floats = NDArray[Any]

CHUNK = 200_000  # rows made at once: limits the memory of random numbers to about 70 MB with 40 features

REGIONS = ("Midwest", "Northeast", "South", "West")
BEDS = ("<100", "100 - 249", "250 - 499", ">= 500")
ETHNICITIES = ("Caucasian", "African American", "Hispanic", "Asian", "Other/Unknown")
SEXES = ("Male", "Female")
SHARES = np.array([0.74, 0.11, 0.06, 0.03, 0.06])


class Synthetic(BaseModel):
    """A synthetic federation of hospitals similar to eICU's, generated from a seed; the label is death in hospital or
    its logit.
    """

    invented: ClassVar[bool] = True

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, title="synthetic")

    task: Literal["classification", "regression"] = Field("classification", description="label: death, or its logit")
    hospitals: int = Field(208, ge=1, description="number of hospitals")
    rows: int = Field(38_700, ge=1, description="rows of all hospitals and parts together")
    rows_per_hospital: int | None = Field(
        None, ge=1, description="number of rows at every hospital; rows, smallest and size_sigma then have no effect"
    )
    smallest: int = Field(20, ge=1, description="rows of the smallest hospital (at most half of the mean size)")
    size_sigma: float = Field(1.1, ge=0, le=4, description="standard deviation of log size")
    features: int = Field(40, ge=1, description="features; from the 41st on they are called feature_41, ...")
    groups: int = Field(5, ge=1, description="practice groups, equally many hospitals in each")
    prevalence: tuple[float, float] = Field((0.03, 0.20), description="range of deaths over hospitals (log-uniform)")
    signal: float = Field(4.2, ge=0, description="standard deviation of the logit inside a hospital")
    case_mix: float = Field(0.3, ge=0, description="standard deviation of a hospital's shift of each feature")
    group_effects: float = Field(0.7, ge=0, description="deviation of a group's coefficients, relative to their size")
    site_effects: float = Field(0.25, ge=0, description="deviation of a site's coefficients, relative to their size")
    group_shift: float = Field(0.2, ge=0, description="standard deviation of a group's shift of what is recorded")
    missing: float = Field(0.2, ge=0, lt=1, description="mean share of missing values, of features that can be missing")
    group_practice: float = Field(
        0.3, ge=0, description=("standard deviation between groups of how often a feature is measured, in probits")
    )
    site_practice: float = Field(
        0.3, ge=0, description=("standard deviation between hospitals of how often a feature is measured, in probits")
    )
    sicker_measured: float = Field(
        0.5, ge=0, description=("increase of the measuring frequency per unit of severity, in probits")
    )
    label_noise: float = Field(0.02, ge=0, le=1, description="share of labels sampled without regard to the patient")
    noise: float = Field(1.0, ge=0, description="standard deviation of the noise in a regression label")
    seed: Seed = Field(0, description="seed of the federation; the run has a separate seed")

    @model_validator(mode="after")
    def _consistent(self) -> Synthetic:
        low, high = self.prevalence
        if not 0 < low <= high < 1:
            raise ValueError(f"prevalence: [{low}, {high}] must be two numbers above 0 and below 1, the smaller first")
        self._refuse_idle(self.rows_per_hospital is not None, "rows_per_hospital", "rows", "smallest", "size_sigma")
        self._refuse_idle(self.task == "regression", "task: regression", "label_noise")
        self._refuse_idle(self.task == "classification", "task: classification", "noise")
        self._refuse_idle(not self.missing, "missing: 0", "group_practice", "site_practice", "sicker_measured")
        if self.rows_per_hospital is None and self.rows < self.hospitals:
            raise ValueError(
                f"rows: {self.rows} is fewer than the {self.hospitals:,} hospitals; give each at least one"
            )
        return self

    def _refuse_idle(self, idle: bool, why: str, *names: str) -> None:
        fields = type(self).model_fields
        for name in names if idle else ():
            if (value := getattr(self, name)) != fields[name].default:
                raise ValueError(f"{name}: {value} has no effect with {why}; remove the key")

    @property
    def predicts(self) -> str:
        """The meaning of the label, as a phrase for reports."""
        return "death in hospital" if self.task == "classification" else "logit of death in hospital"

    def files(self) -> Iterator[Path]:
        """Return no files: the data are generated from the fields alone."""
        return iter(())

    def read(self) -> Records:
        """Generate the rows of all hospitals."""
        import pandas as pd

        self._check_memory()
        site = _Sites(self)
        n = int(site.sizes.sum())
        X = np.empty((n, self.features), np.float32)
        y = np.empty(n, np.int64 if self.task == "classification" else np.float64)
        ethnicity = np.empty(n, np.int8)
        for first, last in _chunks(site.sizes):
            rows = slice(int(site.starts[first]), int(site.starts[last]))
            _generate(self, site, first, last, X[rows], y[rows], ethnicity[rows])

        names = feature_names(self.features)
        patients = {"age": X[:, 0].copy(), "ethnicity": np.array(ETHNICITIES, object)[ethnicity]}
        if "female" in names:
            # Rows share texts: one text for each of 20 million rows would need a gigabyte.
            patients["sex"] = np.array(SEXES, object)[(X[:, names.index("female")] == 1).astype(np.int8)]
        hospitals = [f"hospital_{h + 1}" for h in range(self.hospitals)]
        return Records(
            features=pd.DataFrame(X, columns=names, copy=False),
            y=y,
            classes=("survived", "died") if self.task == "classification" else (),
            silo=np.repeat(np.array(hospitals, object), site.sizes),
            patients=patients,
            attributes=dict(zip(hospitals, site.attributes(), strict=True)),
            notes=(
                f"synthetic: {counted(n, 'row')} of {counted(self.hospitals, 'hospital')} in "
                f"{counted(self.groups, 'practice group')}, {counted(self.features, 'feature')}, seed {self.seed}",
            ),
        )

    def _check_memory(self) -> None:
        rows = self.rows if self.rows_per_hospital is None else self.hospitals * self.rows_per_hospital
        for name, count, size in (
            ("rows", rows, 4 * self.features + 16),
            ("hospitals", self.hospitals, 4 * (8 * self.features + 16)),
            ("groups", self.groups, 8 * (3 * self.features + 3)),
        ):
            memory.check(
                count * size,
                f"data.{name}: {count:,} with {self.features:,} features",
                f"take fewer {name} or features",
            )


class _Sites:
    """The values that are sampled before patients: sizes of the ``H`` hospitals, and coefficients and shifts ``[H, F]``
    of the features.
    """

    def __init__(self, config: Synthetic) -> None:
        H, F, G = config.hospitals, config.features, config.groups
        columns = descriptions(F, config.seed)
        self.kind = np.array([c[1] for c in columns])
        self.centre, self.spread, self.low, self.high, self.loading, weight = (
            np.array([c[i] for c in columns], np.float32) for i in range(2, 8)
        )
        self.flag_above = np.array(
            [NormalDist().inv_cdf(1 - c[2]) if c[1] == "flag" else 0 for c in columns], np.float32
        )

        # From each hospital's stream: 3 F normals for effects, mix and practice, 2 for size and beds, 4 uniforms.
        traits = np.empty((H, 3 * F + 2), np.float32)
        chance = np.empty((H, 4))
        of_hospital = Streams(config.seed, "synthetic")
        for h in range(H):
            rng = of_hospital.at(h)
            rng.standard_normal(out=traits[h], dtype=np.float32)
            rng.random(out=chance[h])
        group_traits = np.stack(
            [stream(config.seed, "synthetic-group", g).standard_normal((3, F)) for g in range(G)]
        ).astype(np.float32)
        # The mean over groups is subtracted, so that the mean coefficients are the weights in FEATURES.
        group_traits = (group_traits - group_traits.mean(0)) * np.float32(math.sqrt(G / max(1, G - 1)))
        # Every G consecutive hospitals contain each group once, in random order.
        of_block = Streams(config.seed, "synthetic-groups")
        blocks = [of_block.at(b).permutation(G) for b in range(-(-H // G))]
        self.group = np.concatenate(blocks)[:H]

        scale = np.float32(math.sqrt(float(np.mean(weight**2))) or 1.0)
        own_effects, own_mix, own_practice = (traits[:, i * F : (i + 1) * F] for i in range(3))
        effects, shift, practice = (group_traits[self.group, i] for i in range(3))
        self.weights = weight + scale * (config.group_effects * effects + config.site_effects * own_effects)
        variance = (self.weights @ self.loading) ** 2 + self.weights**2 @ (1 - self.loading**2)
        self.weights *= (config.signal / np.sqrt(np.maximum(variance, 1e-12)))[:, None]
        self.shift = config.case_mix * own_mix + config.group_shift * shift
        # The shift of a flag changes its share of ones; it is half as large.
        self.shift[:, self.kind == "flag"] *= 0.5
        self.missing_below = self._thresholds(config, columns, practice, own_practice)

        low, high = np.log(config.prevalence)
        self.prevalence = np.exp(low + (high - low) * chance[:, 0])
        self.intercept = _intercepts(self.prevalence, config.signal)
        # Hospitals of later groups are smaller: the practice of most rows differs from the practice of most hospitals.
        rank = (self.group / (G - 1) - 0.5) if G > 1 else np.zeros(H)
        self.log_size = config.size_sigma * (traits[:, 3 * F] - rank)
        self.sizes = _sizes(config, self.log_size)
        self.starts = np.concatenate([[0], np.cumsum(self.sizes)])
        self._chance, self._beds = chance, traits[:, 3 * F + 1]

    def _thresholds(self, config: Synthetic, columns: list[Any], practice: Floats, site: Floats) -> Floats:
        """Compute the thresholds of missing values, ``[H, F]``. A value is missing if a normal random number, whose
        mean rises with the patient's severity, is below the threshold.
        """
        rarity = np.array([np.nan if c[8] is None else c[8] for c in columns])
        if config.missing == 0 or np.isnan(rarity).all():
            return np.full(practice.shape, -np.inf, np.float32)
        varied = math.hypot(1, config.group_practice, config.site_practice)
        grid = np.linspace(-9, 9, 721)
        cdf = np.frompyfunc(NormalDist().cdf, 1, 1)
        offsets = rarity[~np.isnan(rarity)]
        share = np.mean([cdf((grid + r) / varied).astype(float) for r in offsets], axis=0)
        base = np.interp(config.missing, share, grid)
        raised = base + rarity + config.group_practice * practice + config.site_practice * site
        # A value is missing when m + k s is below the threshold: m + k s ~ N(0, 1 + k^2).
        raised *= math.hypot(1, config.sicker_measured)
        return np.where(np.isnan(raised), -np.inf, raised).astype(np.float32)

    def attributes(self) -> list[dict[str, str]]:
        size = (self.log_size - self.log_size.mean()) / (self.log_size.std() or 1.0)
        beds = np.searchsorted([-0.9, 0.1, 1.0], 0.8 * size + 0.6 * self._beds)
        teaching = self._chance[:, 2] < np.array([0.02, 0.08, 0.2, 0.5])[beds]
        region = (self._chance[:, 1] * len(REGIONS)).astype(int)
        return [
            {"practice": f"practice_{g + 1}", "region": REGIONS[r], "beds": BEDS[b], "teaching": "yes" if t else "no"}
            for g, r, b, t in zip(self.group, region, beds, teaching, strict=True)
        ]

    def ethnicity_bounds(self, first: int, last: int) -> Floats:
        """Compute the cumulative shares ``[last - first, 4]`` of ethnicities at the hospitals ``first`` to
        ``last - 1``.
        """
        tilt = self._chance[first:last, 3:4]
        shares = SHARES * np.where(np.arange(len(SHARES)) == 0, 1.0, 0.4 + 1.6 * tilt)
        return np.cumsum(shares / shares.sum(1, keepdims=True), axis=1)[:, :-1]


def _generate(config: Synthetic, site: _Sites, first: int, last: int, X: Floats, y: Floats, ethnicity: Floats) -> None:
    """Fill features ``X [n, F]``, labels ``y [n]`` and ``ethnicity [n]`` with the patients of hospitals ``first`` to
    ``last - 1``.
    """
    F = config.features
    sizes = site.sizes[first:last]
    starts = site.starts[first : last + 1] - site.starts[first]
    draws = np.empty((len(X), 1 + 2 * F), np.float32)
    chance = np.empty((len(X), 3), np.float32)
    of_patients, of_chance = Streams(config.seed, "synthetic-patients"), Streams(config.seed, "synthetic-chance")
    for h, rows in zip(range(first, last), map(slice, starts[:-1].tolist(), starts[1:].tolist()), strict=True):
        of_patients.at(h).standard_normal(out=draws[rows], dtype=np.float32)
        of_chance.at(h).random(out=chance[rows], dtype=np.float32)
    home = np.repeat(np.arange(first, last), sizes)

    severity = draws[:, :1]
    z = draws[:, 1 : 1 + F]
    z *= np.sqrt(1 - site.loading**2)
    z += site.loading * severity
    logit = site.intercept[home] + np.einsum("nf,nf->n", z, site.weights[home])
    prevalence = site.prevalence[home]
    if config.task == "classification":
        death = np.where(chance[:, 1] < config.label_noise, prevalence, 1 / (1 + np.exp(-logit)))
        y[:] = chance[:, 0] < death
    else:
        y[:] = logit + config.noise * _normal(chance[:, 0])
    ethnicity[:] = (chance[:, 2:] >= site.ethnicity_bounds(first, last)[home - first]).sum(1)

    z += site.shift[home]
    flags, logs = site.kind == "flag", site.kind == "log"
    recorded = site.centre + site.spread * z
    recorded[:, logs] = site.centre[logs] * np.exp(site.spread[logs] * z[:, logs])
    recorded[:, flags] = z[:, flags] > site.flag_above[flags]
    np.clip(recorded, site.low, site.high, out=X)
    measured = draws[:, 1 + F :]
    measured += np.float32(config.sicker_measured) * severity
    X[measured < site.missing_below[home]] = np.nan


def _normal(chance: Floats) -> Floats:
    """Transform uniform values ``[n]``, multiples of 2**-24 in [0, 1), into standard normal values."""
    from scipy.special import ndtri

    return np.asarray(ndtri(chance.astype(np.float64) + 2.0**-25))


def _intercepts(prevalence: Floats, signal: float) -> Floats:
    """Solve for intercepts ``c [H]`` so that the mean of ``sigmoid(c + signal * N(0, 1))`` is ``prevalence [H]``."""
    if signal == 0:
        return np.asarray(np.log(prevalence / (1 - prevalence)))
    nodes = np.linspace(-8, 8, 321)
    mass = np.exp(-(nodes**2) / 2)
    mass /= mass.sum()
    far = 30 + 8 * signal
    # The mean increases with c: its table is inverted, on a fine grid where probabilities are neither 0 nor 1.
    grid = np.linspace(-far, far, 6001)
    with np.errstate(over="ignore"):
        mean = (mass / (1 + np.exp(-(grid[:, None] + signal * nodes)))).sum(1)
    return np.interp(prevalence, mean, grid)


def _sizes(config: Synthetic, log_size: Floats) -> NDArray[np.int64]:
    H = config.hospitals
    if config.rows_per_hospital is not None:
        return np.full(H, config.rows_per_hospital, np.int64)
    floor = max(1, min(config.smallest, config.rows // (2 * H)))
    weights = np.exp(log_size - log_size.max()).astype(np.float64)
    return floor + shared_out(config.rows - floor * H, weights)


def _chunks(sizes: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield each range of hospitals as (first, last + 1). A range of several hospitals has at most ``CHUNK`` rows."""
    first, total = 0, 0
    for h, size in enumerate(sizes.tolist()):
        if h > first and total + size > CHUNK:
            yield first, h
            first, total = h, 0
        total += size
    yield first, len(sizes)

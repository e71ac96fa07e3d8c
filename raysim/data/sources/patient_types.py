"""A generated federation with several types of patients, in different proportions at each hospital."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from raysim.core.section import Seed
from raysim.core.streams import stream
from raysim.core.words import counted
from raysim.data.records import Records


class PatientTypes(BaseModel):
    """Synthetic patients of several types with different features; each type has a separate risk model.

    The ``F`` continuous ``features`` of a patient of type ``k`` are ``m_k + N(0, I)`` with ``m_k = separation * N(0, I)
    / sqrt(F)``, followed by ``flags`` random binary features without information. The logit of the label is ``signal *
    (x - m_k).w_k``, where ``x`` are the continuous features and ``w_k`` has length 1. ``w_k`` mixes weights specific to
    type ``k`` (share ``contrast``) with weights common to all types. Each hospital's shares of types are sampled from a
    Dirichlet distribution with parameter ``mixing``; with a small ``mixing``, hospitals differ more. The type is not a
    feature.
    """

    invented: ClassVar[bool] = True

    model_config = ConfigDict(frozen=True, extra="forbid")

    hospitals: int = Field(20, ge=1)
    """Number of hospitals."""
    rows: int = Field(6000, ge=1, description="rows of all hospitals together; the first hospitals are the largest")
    types: int = Field(4, ge=1, description="types of patients")
    features: int = Field(12, ge=1, description="continuous features")
    flags: int = Field(3, ge=0, description="binary features without information")
    separation: float = Field(
        10.0, ge=0, allow_inf_nan=False, description="how far types are apart, in standard deviations"
    )
    contrast: float = Field(0.8, ge=0, le=1, description="share of a type's law that is specific to the type")
    mixing: float = Field(
        0.7, gt=0, allow_inf_nan=False, description="parameter of the Dirichlet distribution of a hospital's types"
    )
    signal: float = Field(3.0, ge=0, allow_inf_nan=False, description="standard deviation of the logit within a type")
    seed: Seed = Field(0, description="seed of the federation; the run has a separate seed")

    def files(self) -> Iterator[Path]:
        """Return no files: the data are sampled from the fields alone."""
        return iter(())

    def read(self) -> Records:
        """Sample the patients of one hospital after the other."""
        import pandas as pd

        rng, F = stream(self.seed, "patient-types"), self.features
        middles = self.separation * rng.standard_normal((self.types, F)) / np.sqrt(F)
        specific, common = rng.standard_normal((self.types, F)), rng.standard_normal(F)
        laws = self.contrast * specific + (1 - self.contrast) * common
        laws /= np.linalg.norm(laws, axis=1, keepdims=True)
        sizes = _sizes(self.rows, self.hospitals)
        kinds = np.concatenate(
            [rng.choice(self.types, n, p=rng.dirichlet(np.full(self.types, self.mixing))) for n in sizes]
        )
        apart = rng.standard_normal((len(kinds), F))
        logit = self.signal * np.einsum("nf,nf->n", apart, laws[kinds])
        coins = rng.random((len(kinds), self.flags)) < 0.5
        columns = [f"x{j + 1}" for j in range(F)] + [f"flag{j + 1}" for j in range(self.flags)]
        names = np.array([f"hospital_{h + 1}" for h in range(self.hospitals)], object)
        return Records(
            features=pd.DataFrame(np.column_stack([middles[kinds] + apart, coins]).astype(np.float32), columns=columns),
            y=(rng.random(len(kinds)) < 1 / (1 + np.exp(-logit))).astype(np.int64),
            classes=("no", "yes"),
            silo=np.repeat(names, sizes),
            notes=(
                f"patient_types: {counted(len(kinds), 'row')} of {counted(self.hospitals, 'hospital')}, "
                f"{counted(self.types, 'type')} of patients, {counted(F, 'feature')} and "
                f"{counted(self.flags, 'flag')}, seed {self.seed}",
            ),
        )


def _sizes(rows: int, hospitals: int) -> list[int]:
    """Compute the number of rows of hospitals ``k`` = 1, 2, ..., proportional to ``1 / sqrt(k)``, and at least one."""
    weights = 1 / np.sqrt(np.arange(1, hospitals + 1))
    return [max(1, round(rows * weight)) for weight in (weights / weights.sum()).tolist()]

"""Stays of eICU with six features, as in CS-RCFL's experiment: will a stay be longer than a day?

X. Konti et al., *CS-RCFL*: sex, ethnicity, age, number of medicines, heart rate and APACHE score of the stays of few
hospitals. Some features, such as the APACHE score, are known no earlier than the label. The source is therefore only
for studies of federated methods; predictions for care need the source ``eicu``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from raysim.core.errors import DataError
from raysim.core.words import counted
from raysim.data.records import Records, natural
from raysim.data.sources.eicu.features import TABLES
from raysim.data.sources.eicu.tables import database, find_tables, sql

KNOWN = {name: TABLES[name] for name in ("patient", "hospital", "medication", "infusionDrug")} | {
    "apacheApsVar": ("patientunitstayid", "heartrate"),
    "apachePatientResult": ("patientunitstayid", "apachescore", "apacheversion"),
}


class EicuBrief(BaseModel):
    """Stays of the eICU database in folder ``path``, with six features. The label is whether a stay lasts over 1,440
    minutes.

    Of the hospitals with at least ``smallest`` stays, the ``hospitals`` with the most stays are kept; among hospitals
    of equal size, the first by name. Medicines are counted up to ``hours`` hours after unit admission. Stays that ended
    by this hour, or have no APACHE score or heart rate, are left out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    selected_by_size: ClassVar[bool] = True
    """Whether hospitals are included by their number of rows."""

    path: Path
    """The folder of the database's CSV files."""
    hospitals: int = Field(20, ge=1)
    """Number of hospitals to include, the largest first."""
    smallest: int = Field(10, ge=1, description="fewest stays of a hospital; smaller hospitals are left out")
    hours: float = Field(6.0, gt=0, lt=24, description="hour up to which medicines are counted")

    def files(self) -> Iterator[Path]:
        """Return the files of the tables that are used. Raises ``DataError`` if the folder or a needed table is
        missing.
        """
        tables = find_tables(self.path, KNOWN)
        for name in KNOWN:
            if name not in tables and name != "hospital":
                raise DataError(f"data.path: {self.path} has no {name}.csv(.gz), which source eicu_brief needs; add it")
        yield from tables.values()

    def read(self) -> Records:
        """Aggregate the tables to one row for each stay. Raises ``DataError`` for files that cannot be read, and for
        too few hospitals.
        """
        with database(find_tables(self.path, KNOWN), KNOWN) as connection:
            for name, value in (("minutes", self.hours * 60), ("minimum", self.hours * 60)):
                connection.execute(f"SET VARIABLE {name} = CAST({value!r} AS DOUBLE)")
            connection.execute("SET VARIABLE task = 'los'")
            connection.execute("SET VARIABLE silo = 'hospital'")
            connection.execute(f"CREATE TEMP TABLE cohort AS SELECT * FROM ({sql('cohort')}) WHERE left_out IS NULL")
            stays = connection.execute(sql("brief")).df()
        complete = stays.dropna(subset=["heart_rate", "apache_score"])
        selected = complete[complete["silo"].isin(self._largest(complete["silo"]))]
        lacking = len(stays) - len(complete)
        share = selected["label"].mean()
        notes = (
            f"eicu_brief: {counted(len(stays), 'stay')} beyond {self.hours:g} hours, {lacking:,} without APACHE score "
            "or rate",
            f"kept: {len(selected):,} stays of the {self.hospitals} largest hospitals, {share:.1%} of them over a day",
        )
        return Records(
            features=pd.DataFrame(
                {
                    "sex": selected["sex"].map({"Male": 1.0, "Female": 0.0}).astype(np.float32),
                    "ethnicity": selected["ethnicity"].astype("category"),
                    **{
                        name: selected[name].astype(np.float32)
                        for name in ("age", "medicines", "heart_rate", "apache_score")
                    },
                }
            ).reset_index(drop=True),
            y=selected["label"].to_numpy(np.int64),
            classes=("up to one day", "over one day"),
            silo=selected["silo"].to_numpy(str),
            group=selected["patient"].to_numpy(str),
            patients={
                "sex": selected["sex"].to_numpy(str),
                "ethnicity": selected["ethnicity"].to_numpy(str),
                "age": selected["age"].to_numpy(np.float64),
            },
            attributes={
                str(silo): {name: str(of[name].iloc[0]) for name in ("region", "beds", "teaching")}
                for silo, of in selected.groupby("silo")
            },
            notes=notes,
        )

    def _largest(self, silo: pd.Series[str]) -> list[str]:
        sizes = silo.value_counts()
        large = natural(sizes.index[sizes >= self.smallest])
        if len(large) < self.hospitals:
            raise DataError(
                f"data.hospitals: {self.hospitals}, but the number of hospitals with {self.smallest} stays or "
                f"more is {len(large)}; lower data.hospitals or data.smallest"
            )
        return sorted(large, key=lambda name: -int(sizes[name]))[: self.hospitals]

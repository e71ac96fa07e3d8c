"""Amazon reviews: what kind of product is a review about?

Y. Kashnitsky: *Hierarchical Text Classification*, Kaggle, 2019. The files are ``train_40k.csv`` and ``val_10k.csv``, as
published there. The columns ``Text`` and ``Cat1`` are used; ``Cat1`` is the product's category at the first of three
levels. The Clust-PSI-PFL paper also uses 50,000 reviews of 6 classes, but does not name their source.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field

from raysim.core.errors import DataError
from raysim.data.sources.pooled import check_homes, existing, read_csv
from raysim.data.sources.tokens import Texts, check_texts

FILES = ["train_40k.csv", "val_10k.csv"]
CATEGORIES = ("baby products", "beauty", "grocery gourmet food", "health personal care", "pet supplies", "toys games")


class AmazonReviews(Texts):
    """Amazon reviews: 50,000 texts, 6 product categories, from ``path``.

    With ``silo: user``, each reviewer is a hospital.
    """

    predicts: ClassVar[str] = "product category of a review"

    path: Path
    """The folder of the files of reviews."""
    silo: Literal["partition", "user"] = "partition"
    """What counts as a hospital: parts of a ``partition``, or each ``user``."""
    length: int = Field(100, ge=1, description="number of words used of a review, from its beginning")

    def files(self) -> Iterator[Path]:
        return iter(existing(self.path, FILES, "the hierarchical Amazon reviews"))

    def homed(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str, NDArray[Any]]:
        reviews = pd.concat([_reviews(file, self.silo) for file in self.files()], ignore_index=True)
        y = np.array([CATEGORIES.index(name) for name in reviews["Cat1"]], dtype=np.int64)
        note = f"Amazon reviews: {len(reviews):,} texts"
        return self.tokens(reviews["Text"].tolist()), y, CATEGORIES, note, reviews["userId"].to_numpy(object)


def _reviews(file: Path, silo: str) -> pd.DataFrame:
    wanted = ["Cat1", "userId", "Text"]
    reviews = read_csv(file, "is not a file of these reviews", usecols=wanted, dtype=str, keep_default_na=False)
    strange = np.flatnonzero(~reviews["Cat1"].isin(CATEGORIES))
    if len(strange):
        value = reviews["Cat1"].iloc[strange[0]]
        raise DataError(
            f"data.path: {file} has category '{value}' in row {strange[0] + 1:,}, which is not one of "
            f"{', '.join(CATEGORIES)}; fetch it again"
        )
    check_texts(reviews["Text"], str(file))
    check_homes(reviews["userId"], silo, str(file))
    return reviews

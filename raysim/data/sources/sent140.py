"""Sentiment140: is a tweet negative, neutral or positive?

A. Go, R. Bhayani, L. Huang: *Twitter Sentiment Classification using Distant Supervision*, Stanford, 2009. The files are
CSV in Latin-1 without a header, as published, with the columns polarity (0 negative, 2 neutral, 4 positive), id, date,
query, user and text. Only the 498 rows labelled by hand, ``testdata.manual.2009.06.14.csv``, contain neutral tweets.
Neutral tweets make a third class if this file is in the folder.
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

TRAINING, BY_HAND = "training.1600000.processed.noemoticon.csv", "testdata.manual.2009.06.14.csv"
COLUMNS = ["polarity", "id", "date", "query", "user", "text"]
POLARITIES = {"0": "negative", "2": "neutral", "4": "positive"}


class Sent140(Texts):
    """Sentiment140: 1.6 million tweets, 2 or 3 classes, from ``path``.

    With ``silo: user``, each user is a hospital.
    """

    predicts: ClassVar[str] = "sentiment of a tweet"

    path: Path
    """The folder of the files of tweets."""
    silo: Literal["partition", "user"] = "partition"
    """What counts as a hospital: parts of a ``partition``, or each ``user``."""
    length: int = Field(30, ge=1, description="number of words used of a tweet, from its beginning")

    def files(self) -> Iterator[Path]:
        files = existing(self.path, [TRAINING], "Sentiment140")
        return iter([*files, *(file for file in [self.path / BY_HAND] if file.is_file())])

    def homed(self) -> tuple[pd.DataFrame, NDArray[np.int64], tuple[str, ...], str, NDArray[Any]]:
        tweets = pd.concat([_tweets(file, self.silo) for file in self.files()], ignore_index=True)
        present = [polarity for polarity in POLARITIES if (tweets["polarity"] == polarity).any()]
        y = np.array([present.index(polarity) for polarity in tweets["polarity"]], dtype=np.int64)
        classes = tuple(POLARITIES[polarity] for polarity in present)
        note = f"Sentiment140: {len(tweets):,} tweets, {len(classes)} classes"
        return self.tokens(tweets["text"].tolist()), y, classes, note, tweets["user"].to_numpy(object)


def _tweets(file: Path, silo: str) -> pd.DataFrame:
    tweets = read_csv(file, "cannot be read", header=None, encoding="latin-1", dtype=str, keep_default_na=False)
    if tweets.shape[1] != len(COLUMNS):
        raise DataError(f"data.path: {file} has {tweets.shape[1]} columns, not the six of Sentiment140; fetch it again")
    tweets.columns = pd.Index(COLUMNS)
    strange = np.flatnonzero(~tweets["polarity"].isin(POLARITIES))
    if len(strange):
        value = tweets["polarity"].iloc[strange[0]]
        raise DataError(
            f"data.path: {file} has polarity '{value}' in row {strange[0] + 1:,}, not 0, 2 or 4; fetch it again"
        )
    check_texts(tweets["text"], str(file))
    check_homes(tweets["user"], silo, str(file))
    return tweets[["polarity", "user", "text"]]

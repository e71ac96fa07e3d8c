"""Texts as rows of token ids, for models that begin with an embedding.

Words are hashed (K. Weinberger, A. Dasgupta, J. Langford, A. Smola, J. Attenberg: *Feature Hashing for Large Scale
Multitask Learning*, ICML 2009) rather than looked up in a list of the most frequent words. For such a list, hospitals
would have to count the words of all texts, test rows included, and send the counts. The cost of hashing is that some
words share an id.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from raysim.core.errors import DataError
from raysim.data.sources.pooled import Homed

PADDING, WORDLESS = 0, 1
"""The ids that stand for no word: ``PADDING`` precedes the words of a short text, and ``WORDLESS`` stands for a text
without words, such as ``:-)``.
"""

FIRST = 2
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


class Texts(Homed):
    """A pooled data set of texts, each a row of ``length`` ids below ``vocabulary``."""

    untouched: ClassVar[bool] = True
    tabular: ClassVar[bool] = False

    vocabulary: int = Field(10_000, ge=FIRST + 1, le=2**24, description="number of ids; float32 is exact up to 2^24")
    length: int = Field(50, ge=1, description="number of words used of a text, from its beginning")

    def tokens(self, texts: Sequence[str]) -> pd.DataFrame:
        """Return the token ids of ``texts [N]``, as a data frame with the columns ``token_0`` to
        ``token_<length - 1>``.
        """
        columns = [f"token_{j}" for j in range(self.length)]
        return pd.DataFrame(token_ids(texts, self.vocabulary, self.length), columns=columns)


def token_ids(texts: Sequence[str], vocabulary: int, length: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Compute the ids of the first ``length`` lower-cased words of each text, ``[N, length]``. Shorter texts have
    padding in front, so that a recurrent model reads the last word last.

    Ids are whole numbers stored as float32.
    """
    ids = np.full((len(texts), length), PADDING, dtype=np.float32)
    id_of: dict[str, int] = {}
    for row, text in zip(ids, texts, strict=True):
        words = _WORD.findall(text.lower())[:length]
        for word in words:
            if word not in id_of:
                id_of[word] = word_id(word, vocabulary)
        row[length - max(len(words), 1) :] = [id_of[word] for word in words] or WORDLESS
    return ids


def word_id(word: str, vocabulary: int) -> int:
    """Hash a word to its id, from 2 to ``vocabulary - 1``. A word has the same id in every run."""
    digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
    return FIRST + int.from_bytes(digest, "little") % (vocabulary - FIRST)


def check_texts(texts: pd.Series, what: str) -> None:
    """Raise ``DataError`` if a text is empty. The error names the first such row, counted from 1; ``what`` is the name
    of the data set.
    """
    empty = np.flatnonzero(texts.str.strip().fillna("") == "")
    if len(empty):
        raise DataError(
            f"data.path: {what} has {len(empty):,} empty texts, the first in row {empty[0] + 1:,}; remove such rows"
        )

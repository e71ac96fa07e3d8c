"""Texts in their publishers' layouts become token ids that nothing changes on their way to the model."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysim.core.errors import DataError
from raysim.data.build import build
from raysim.data.sources.amazon_reviews import CATEGORIES, FILES, AmazonReviews
from raysim.data.sources.pooled import Partition
from raysim.data.sources.sent140 import BY_HAND, TRAINING, Sent140
from raysim.data.sources.tokens import PADDING, WORDLESS, token_ids
from raysim.data.split import Split

ALIKE = Partition(name="similarity", share=1.0)


def digest(word: str, vocabulary: int) -> int:
    """The id of a word, from the definition: 2 and the first eight bytes of BLAKE2b modulo the ids that words have."""
    return 2 + int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little") % (vocabulary - 2)


def test_words_are_lower_cased_hashed_cut_off_and_padded_in_front():
    ids = token_ids(["The cat", "Don't! STOP; the_cat 2 times", ":-)"], 100, 4)
    the, cat, dont, stop = (digest(word, 100) for word in ("the", "cat", "don't", "stop"))
    assert ids.tolist() == [
        [PADDING, PADDING, the, cat],
        [dont, stop, the, cat],
        [PADDING, PADDING, PADDING, WORDLESS],
    ]
    assert ids.dtype == np.float32


@given(st.lists(st.text(max_size=30), max_size=8), st.integers(3, 50), st.integers(1, 6))
def test_ids_are_whole_and_below_the_vocabulary(texts, vocabulary, length):
    ids = token_ids(texts, vocabulary, length)
    assert ids.shape == (len(texts), length)
    assert ((ids >= 0) & (ids < vocabulary) & (ids == np.round(ids))).all()
    assert (ids[:, -1:] != PADDING).all(), "a text ends with a word, or says that it has none"


def test_a_text_has_the_same_ids_whoever_else_has_texts():
    alone = token_ids(["one fine day"], 1000, 3)
    assert (token_ids(["another", "one fine day", "fine"], 1000, 3)[1] == alone[0]).all()


def tweets(path: Path, rows: Sequence[tuple[str, str, str]]) -> None:
    """A file of polarity, user and text as its publisher writes it: quoted, in Latin-1, without a header."""
    with path.open("w", encoding="latin-1", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        for k, (polarity, user, text) in enumerate(rows):
            writer.writerow([polarity, 1467810369 + k, "Mon Apr 06 22:19:45 PDT 2009", "NO_QUERY", user, text])


@pytest.fixture
def sentiment(tmp_path: Path) -> Path:
    """Twenty tweets of four users, every other one positive."""
    rows = [("04"[k % 2], f"user{k % 4}", f'@you said "caf\xe9 {k}", null') for k in range(20)]
    tweets(tmp_path / TRAINING, rows)
    return tmp_path


def test_sent140_has_the_two_classes_of_its_training_file(sentiment):
    source = Sent140(path=sentiment, clients=2, partition=ALIKE, vocabulary=500, length=6)
    features, y, classes, note = source.pool()
    assert classes == ("negative", "positive")
    assert y.tolist() == [0, 1] * 10
    words = ["you", "said", "caf\xe9", "3", "null"]
    assert features.iloc[3].tolist() == [PADDING, *(digest(word, 500) for word in words)]
    assert list(features.columns) == [f"token_{j}" for j in range(6)]
    assert note == "Sentiment140: 20 tweets, 2 classes"


def test_sent140_has_neutral_tweets_from_the_file_labelled_by_hand(sentiment):
    tweets(sentiment / BY_HAND, [("2", "someone", "so so"), ("4", "someone", "great")])
    _, y, classes, _ = Sent140(path=sentiment).pool()
    assert classes == ("negative", "neutral", "positive")
    assert y.tolist() == [0, 2] * 10 + [1, 2]


def test_users_can_be_the_hospitals(sentiment, cache_folder):
    tweets(sentiment / BY_HAND, [("4", "rare", "hello")])
    source = Sent140(path=sentiment, silo="user", smallest=5)
    federation = build(source, Split(column="part"), "none")
    assert federation.hospitals == ("user0", "user1", "user2", "user3")
    assert federation.totals.tolist() == [5] * 4
    assert federation.notes[1] == "20 rows by user; left out: 1 of 5 with fewer than 5 rows"


def test_token_ids_reach_the_model_as_they_are(sentiment, cache_folder):
    source = Sent140(path=sentiment, clients=2, partition=ALIKE, vocabulary=500, length=6)
    federation = build(source, Split(column="part"), "none")
    assert sorted(map(tuple, federation.X.tolist())) == sorted(map(tuple, source.pool()[0].to_numpy().tolist()))
    for method in ("standard", "median"):
        with pytest.raises(DataError, match=f"data.preprocessing: '{method}' would scale the token ids of source"):
            build(source, Split(column="part"), method)


def reviews(folder: Path, rows: Sequence[tuple[str, str]]) -> None:
    """The two files of reviews, half of the rows each; ``rows`` are category and text."""
    head = ["productId", "Title", "userId", "Helpfulness", "Score", "Time", "Text", "Cat1", "Cat2", "Cat3"]
    half = len(rows) // 2
    for name, part in zip(FILES, (rows[:half], rows[half:]), strict=True):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(head)
            for category, text in part:
                writer.writerow(["B000", "", "A1", "0/0", 5.0, 1315353600, text, category, "other", "unknown"])


def test_amazon_reviews_are_both_files_and_six_categories(tmp_path):
    reviews(tmp_path, [(name, f"about {name},\nin two lines") for name in (*CATEGORIES, *CATEGORIES[::-1])])
    features, y, classes, _ = AmazonReviews(path=tmp_path, vocabulary=5000).pool()
    assert classes == tuple(sorted(classes))
    assert y.tolist() == [0, 1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 0]
    assert features.shape == (12, 100)
    words = ["about", "baby", "products", "in", "two", "lines"]
    assert features.iloc[0].tolist() == [PADDING] * 94 + [digest(word, 5000) for word in words]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("4", "a", "fine"), ("0", "b", "  "), ("0", "b", "")], "has 2 empty texts, the first in row 2"),
        ([("4", "a", "fine"), ("1", "b", "bad")], "has polarity '1' in row 2, not 0, 2 or 4"),
    ],
)
def test_tweets_that_cannot_be_used_are_named(rows, message, tmp_path):
    tweets(tmp_path / TRAINING, rows)
    with pytest.raises(DataError, match=message):
        Sent140(path=tmp_path).pool()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n", "has 2 columns, not the six of Sentiment140"),
        ("", "cannot be read"),
    ],
)
def test_a_file_of_another_layout_is_no_sent140(content, message, tmp_path):
    (tmp_path / TRAINING).write_text(content)
    with pytest.raises(DataError, match=message):
        Sent140(path=tmp_path).pool()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda rows: rows.__setitem__(7, (CATEGORIES[0], " ")), "val_10k.csv has 1 empty texts, the first in row 2"),
        (lambda rows: rows.__setitem__(0, ("books", "x")), "train_40k.csv has category 'books' in row 1"),
    ],
)
def test_reviews_that_cannot_be_used_are_named(spoil, message, tmp_path):
    rows = [(name, "text") for name in CATEGORIES * 2]
    spoil(rows)
    reviews(tmp_path, rows)
    with pytest.raises(DataError, match=message):
        AmazonReviews(path=tmp_path).pool()


def test_reviews_of_another_layout(tmp_path):
    for name in FILES:
        (tmp_path / name).write_text("Text,Category\na,b\n")
    with pytest.raises(DataError, match="is not a file of these reviews"):
        AmazonReviews(path=tmp_path).pool()

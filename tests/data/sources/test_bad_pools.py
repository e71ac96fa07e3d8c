"""Pools that cannot be divided or learned from end with exit code 2 and one line naming field, value and remedy."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from raysim.data.sources import partition
from raysim.data.sources.amazon_reviews import CATEGORIES, FILES
from raysim.data.sources.images import CIFAR_FILES, IDX_FILES, NPZ
from raysim.data.sources.sent140 import TRAINING
from tests.config import test_bad_input
from tests.config.test_bad_input import settings
from tests.data.sources.test_pooled import idx

DIGITS = {"data.source": "digits", "data.clients": 10, "data.split": "{column: part}", "training.rounds": 1}


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The line that refuses them, with files of the working directory named from there."""
    return test_bad_input.refused(arguments, capsys, monkeypatch).replace(f"{Path.cwd()}/", "")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, where anything that is written would be seen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data.clients": 100, "data.partition": "{alpha: 0.01, min_size: 17}"},
            "data.partition.alpha: 0.01 over 100 hospitals and 10 classes left a hospital with fewer than 17 rows "
            "in each of 50 tries",
        ),
        ({"data.clients": 200}, "data.clients: 200 with at least 10 rows each need 2,000 rows, but there are 1,797"),
        (
            {"data.clients": 2000, "data.partition": "{name: similarity}"},
            "data.clients: 2000 is more than the 1,797 rows",
        ),
        ({"data.partition": "{alpha: 0}"}, "data.partition.alpha: 0 is not greater than 0"),
        ({"data.partition": "{name: similarity, share: 2}"}, "data.partition.share: 2 is not at most 1"),
        (
            {"data.partition": "{share: 0.0}"},
            "data.partition.share: has no effect where name is dirichlet; leave it out",
        ),
        (
            {"data.partition": "{alpha: 1.0e+308}"},
            "data.partition.alpha: 1e+308 over 10 hospitals is too large for sampling",
        ),
        (
            {"data.clients": 1200, "data.partition": "{name: similarity, share: 0.5}"},
            "data.partition.share: 0.5 divides 898 rows at random and 899 by label among 1200 hospitals, which leaves",
        ),
        ({"data.partition": "{name: shards}"}, "data.partition.name: 'shards' is not one of"),
        ({"data.clients": 0}, "data.clients: 0 is not at least 1"),
        ({"data.seed": 2**63}, "data.seed: 9223372036854775808 is not less than 9223372036854775808"),
        ({"data.source": "coalitions", "data.seed": 2**63}, "data.seed: 9223372036854775808 is not less than"),
        ({"data.rows": 3, "data.clients": 2}, "data.rows: a sample of 3 has no row of class '"),
        ({"strategy": "{name: clust_psi, clusters: 11}"}, "strategy.clusters: 11 is more than the 10 hospitals with"),
        ({"strategy": "{name: chip, clusters: 11}"}, "strategy.clusters: 11 is more than the 10 hospitals with"),
        ({"strategy": "{name: ifca, clusters: 11}"}, "strategy.clusters: 11 is more than the 10 hospitals with"),
        ({"data.split": "{by: patient}"}, "data.split.by: 'patient', but these rows have no groups; use row"),
        ({"data.split": "{column: fold}"}, "data.split.column: 'fold' does not exist; use 'part'"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, dict) else "",
)
def test_a_pool_that_cannot_be_divided(changes, message, capsys, monkeypatch):
    monkeypatch.setattr(partition, "TRIES", 50)  # a thousand draws take seconds
    assert refused(["run", *settings(DIGITS | changes)], capsys, monkeypatch).startswith(message)


def images(shape: tuple[int, ...] = (28, 28), labels: int = 10) -> None:
    """A folder of Fashion-MNIST's files, of images of a shape and labels 0 to ``labels - 1``."""
    Path("images").mkdir()
    arrays = [np.zeros((40, *shape)), np.arange(40) % labels] * 2
    for name, array in zip(IDX_FILES, arrays, strict=True):
        (Path("images") / name).write_bytes(idx(array))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: None, "data.path: images has no train-images-idx3-ubyte.gz; name the folder of Fashion-MNIST"),
        (lambda: images((27, 27)), "data.path: images (train) holds images of shape (40, 27, 27) and type uint8"),
        (lambda: images(labels=11), "data.path: images (train) holds labels outside 0..9, the first 10 in row 11;"),
        (lambda: images(labels=9), "data.source: the pool has no row of class 'boot'; check the files of the source"),
    ],
    ids=["missing", "shape", "labels", "absent"],
)
def test_images_that_cannot_be_used(make: Callable[[], None], message, capsys, monkeypatch):
    make()
    data = DIGITS | {"data.source": "fashion_mnist", "data.path": "images", "data.preprocessing": "none"}
    assert refused(["run", *settings(data)], capsys, monkeypatch).startswith(message)


def npz(damage: Callable[[bytes], bytes]) -> None:
    """A folder of Fashion-MNIST in one file, damaged."""
    Path("images").mkdir()
    rng, file = np.random.default_rng(0), Path("images") / NPZ
    pixels, labels = rng.integers(0, 255, (40, 28, 28)).astype(np.uint8), np.arange(40) % 10
    np.savez_compressed(file, x_train=pixels, y_train=labels, x_test=pixels, y_test=labels)
    file.write_bytes(damage(file.read_bytes()))


PIXELS, LABELS = np.zeros((40, 28, 28), dtype=np.uint8), np.arange(40) % 10


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ((PIXELS, LABELS.astype(str)), (PIXELS, LABELS), "(train) holds labels of shape (40,) and type <U21, not one"),
        ((PIXELS, LABELS[:, None]), (PIXELS, LABELS), "(train) holds labels of shape (40, 1) and type int64, not one"),
        ((PIXELS, np.eye(10)[LABELS]), (PIXELS, LABELS), "(train) holds labels of shape (40, 10) and type float64"),
        ((PIXELS, LABELS), (PIXELS, LABELS + 0.7), "(test) holds labels outside 0..9, the first 0.7 in row 1; fetch"),
        ((PIXELS, LABELS), (PIXELS, np.where(LABELS == 3, np.nan, LABELS)), "(test) holds labels outside 0..9, the"),
        (
            (PIXELS / 255, LABELS),
            (PIXELS, LABELS),
            "(train) holds images of shape (40, 28, 28) and type float64; images",
        ),
        ((PIXELS.astype(str), LABELS), (PIXELS, LABELS), "(train) holds images of shape (40, 28, 28) and type <U"),
        ((PIXELS, LABELS), (PIXELS[:0], LABELS[:0]), "(test) holds images of shape (0, 28, 28) and type uint8; images"),
        ((PIXELS[:20], LABELS), (PIXELS, LABELS[:20]), "(train) holds 20 images and 40 labels; Fashion-MNIST has one"),
    ],
    ids=["text", "column", "one-hot", "fraction", "nan", "scaled", "text pixels", "no rows", "swapped"],
)
def test_archives_in_another_layout(train, test, message, capsys, monkeypatch):
    Path("images").mkdir()
    np.savez(Path("images") / NPZ, x_train=train[0], y_train=train[1], x_test=test[0], y_test=test[1])
    data = DIGITS | {"data.source": "fashion_mnist", "data.path": "images", "data.preprocessing": "none"}
    assert refused(["run", *settings(data)], capsys, monkeypatch).startswith(f"data.path: images {message}")


def test_label_files_that_were_swapped(capsys, monkeypatch):
    """As many images as labels in all, but every one of them with another's label."""
    images()
    for name, array in zip(IDX_FILES[:2], (PIXELS[:20], LABELS[:20]), strict=True):
        (Path("images") / name).write_bytes(idx(array))
    train, test = Path("images") / IDX_FILES[1], Path("images") / IDX_FILES[3]
    swapped = train.read_bytes(), test.read_bytes()
    for file, content in zip((test, train), swapped, strict=True):
        file.write_bytes(content)
    data = DIGITS | {"data.source": "fashion_mnist", "data.path": "images", "data.preprocessing": "none"}
    said = refused(["run", *settings(data)], capsys, monkeypatch)
    assert said.startswith(
        "data.path: images (train) holds 20 images and 40 labels; Fashion-MNIST has one label for each image"
    )


def test_one_array_under_the_name_of_an_archive(capsys, monkeypatch):
    Path("images").mkdir()
    with (Path("images") / NPZ).open("wb") as file:
        np.save(file, PIXELS)
    data = DIGITS | {"data.source": "fashion_mnist", "data.path": "images", "data.preprocessing": "none"}
    said = refused(["run", *settings(data)], capsys, monkeypatch)
    assert said == f"data.path: images/{NPZ} cannot be read (it is one array, not an archive of four); fetch it again"


def gz(damage: Callable[[bytes], bytes]) -> None:
    """A folder of Fashion-MNIST's files, the first of them damaged."""
    images()
    first = Path("images") / IDX_FILES[0]
    first.write_bytes(damage(first.read_bytes()))


def overwritten(content: bytes, at: int) -> bytes:
    """With bytes in the place of the compressed data's first that no compression writes."""
    return content[:at] + b"\xff" * 20 + content[at + 20 :]


@pytest.mark.parametrize(
    ("make", "damage", "message"),
    [
        (npz, lambda content: b"", f"{NPZ} cannot be read (No data left in file); fetch it again"),
        (npz, lambda content: content[:100], f"{NPZ} cannot be read ("),
        (npz, lambda content: overwritten(content, 60), f"{NPZ} cannot be read (Error -3 while decompressing"),
        (gz, lambda content: content[:50], f"{IDX_FILES[0]} is not a complete gzip file ("),
        (gz, lambda content: overwritten(content, 10), f"{IDX_FILES[0]} is not a complete gzip file (Error -3 while"),
    ],
    ids=["empty npz", "short npz", "overwritten npz", "short gz", "overwritten gz"],
)
def test_damaged_image_files(make, damage, message, capsys, monkeypatch):
    make(damage)
    data = DIGITS | {"data.source": "fashion_mnist", "data.path": "images", "data.preprocessing": "none"}
    assert refused(["run", *settings(data)], capsys, monkeypatch).startswith(f"data.path: images/{message}")


def test_images_of_a_shape_that_the_model_does_not_take(capsys, monkeypatch):
    said = refused(["run", *settings(DIGITS | {"model": "fashion_cnn"})], capsys, monkeypatch)
    assert said.startswith("model.name: fashion_cnn takes images of 28 x 28, 784 features, not 64"), said


@pytest.mark.parametrize(("size", "label"), [(3073, 10), (3072, 0)], ids=["label", "size"])
def test_cifar10_that_cannot_be_used(size, label, capsys, monkeypatch):
    Path("cifar").mkdir()
    for name in CIFAR_FILES:
        (Path("cifar") / name).write_bytes(bytes([label]) * size)
    said = refused(["run", *settings(DIGITS | {"data.source": "cifar10", "data.path": "cifar"})], capsys, monkeypatch)
    assert said.startswith("data.path: cifar")


def tweets(*texts: str) -> None:
    with open(TRAINING, "w", encoding="latin-1", newline="") as file:
        rows = [["04"[k % 2], k, "date", "NO_QUERY", f"user{k}", text] for k, text in enumerate(texts)]
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)


@pytest.mark.parametrize(
    ("texts", "changes", "message"),
    [
        (
            ["fine", ""],
            {},
            f"data.path: {TRAINING} has 1 empty texts, the first in row 2; remove such rows",
        ),
        (
            ["fine", "bad"],
            {"data.preprocessing": "standard"},
            "data.preprocessing: 'standard' would scale the token ids of source",
        ),
        (["fine", "bad"], {"data.vocabulary": 2}, "data.vocabulary: 2 is not at least 3"),
        (["fine", "bad"], {"data.length": 0}, "data.length: 0 is not at least 1"),
        (["fine", "bad"], {"data.silo": "query"}, "data.silo: 'query' is not one of 'partition' or 'user'"),
        (["fine", "bad"], {"data.silo": "user"}, "data.clients: has no effect where silo is user; leave it out"),
        (["fine", "bad"], {"data.smallest": 2}, "data.smallest: has no effect where silo is partition; leave it out"),
    ],
)
def test_texts_that_cannot_be_used(texts, changes, message, capsys, monkeypatch):
    tweets(*texts)
    data = DIGITS | {"data.source": "sent140", "data.path": ".", "data.preprocessing": "none"}
    assert refused(["run", *settings(data | changes)], capsys, monkeypatch).startswith(message)


@pytest.mark.parametrize("user", ["", " "])
def test_a_tweet_of_no_user_where_users_are_hospitals(user, capsys, monkeypatch):
    tweets("one", "two", "three")
    Path(TRAINING).write_text(Path(TRAINING).read_text().replace("user1", user))
    data = {"data.source": "sent140", "data.path": ".", "data.preprocessing": "none", "data.silo": "user"}
    said = refused(["run", *settings(data)], capsys, monkeypatch)
    assert said == f"data.silo: user, but {TRAINING} has 1 row without a value (first: row 2); remove these rows"


def test_a_review_of_nobody_where_reviewers_are_hospitals(capsys, monkeypatch):
    for name in ("train_40k.csv", "val_10k.csv"):
        Path(name).write_text("userId,Text,Cat1\nA,fine,beauty\n,bad,beauty\n")
    data = {"data.source": "amazon_reviews", "data.path": ".", "data.preprocessing": "none", "data.silo": "user"}
    said = refused(["run", *settings(data)], capsys, monkeypatch)
    assert said == "data.silo: user, but train_40k.csv has 1 row without a value (first: row 2); remove these rows"
    said = refused(["run", *settings(data | {"data.silo": "partition"})], capsys, monkeypatch)
    assert said.startswith("data.source: the pool has no row of class 'baby products'")


@pytest.mark.parametrize(
    ("smallest", "message"),
    [
        (50, "data.smallest: 50 rows are more than any user has (the largest: 2); lower it"),
        (2, "data.smallest: the pool of hospitals with 2 rows or more has no row of class 'positive'; lower it"),
    ],
)
def test_users_too_small_to_be_hospitals(smallest, message, capsys, monkeypatch):
    tweets("one", "two", "three")
    rows = Path(TRAINING).read_text().replace("user2", "user0")
    Path(TRAINING).write_text(rows)
    data = {"data.source": "sent140", "data.path": ".", "data.preprocessing": "none", "data.silo": "user"}
    said = refused(["run", *settings(data | {"data.smallest": smallest})], capsys, monkeypatch)
    assert said.startswith(message)


def test_a_category_that_no_review_has(capsys, monkeypatch):
    for name in FILES:
        Path(name).write_text("userId,Text,Cat1\n" + "".join(f"A,text,{c}\n" for c in CATEGORIES[1:]))
    data = DIGITS | {"data.source": "amazon_reviews", "data.path": ".", "data.preprocessing": "none"}
    said = refused(["run", *settings(data)], capsys, monkeypatch)
    assert said == "data.source: the pool has no row of class 'baby products'; check the files of the source"


STUDY = {"data.source": "digits", "study.alphas": "[50, 1]", "study.clients": "[5]", "study.seeds": "[0, 1]"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"study": None}, "study: missing; add this section"),
        ({"study.alphas": "[1]"}, "study.alphas: [1.0] are too few to compare; name at least two"),
        ({"study.alphas": "[1, 0]"}, "study.alphas: 0 is not a finite number above 0"),
        ({"study.alphas": "[1, 1]"}, "study.alphas: [1.0, 1.0] repeats a value; name each once"),
        ({"study.seeds": "[3]"}, "study.seeds: [3] are too few; name at least two"),
        ({"study.seeds": f"[0, {2**63}]"}, "study.seeds.1: 9223372036854775808 is not less than"),
        ({"study.seeds": "[0, -1]"}, "study.seeds.1: -1 is not at least 0"),
        ({"study.clients": "[1]"}, "study.clients: [1] must name numbers of at least 2"),
        ({"study.metrics": "[wspi]"}, "study.metrics: 'wspi' is not a metric; did you mean 'wpsi'?"),
        ({"study.alpha": 1}, "study.alpha: unknown key; did you mean 'alphas'?"),
        ({"study.strategy": "clust_sip"}, "study.strategy.name: 'clust_sip' is not a known name"),
        ({"study.strategy": "fedavg"}, "study.strategy: FedAvg makes no clusters; name a strategy"),
        ({"study.strategy": "{name: chip, clusters: 2}"}, "study.strategy: Chip requests 'signature' from hospitals"),
        ({"study.strategy": "{name: clust_psi, clusters: 6}"}, "study.strategy.clusters: 6 is more than the 5"),
        ({"study.clients": "[300]"}, "study.alphas: 4 of 4 partitions leave a client with too few rows"),
        ({"data.clients": 5}, "data.clients: the study's grid sets this key; remove it from data"),
        ({"data.source": "synthetic"}, "data.source: 'synthetic' already has hospitals, but a study divides pooled"),
        ({"training.round": 1}, "training.round: unknown key; did you mean 'rounds'?"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, dict) else "",
)
def test_a_bad_study(changes, message, capsys, monkeypatch):
    Path("study.yaml").write_text("name: s\n")
    chosen = {key: value for key, value in (STUDY | changes).items() if "study" not in changes or "study" not in key}
    assert refused(["study", "study.yaml", *settings(chosen)], capsys, monkeypatch).startswith(message)

"""Pooled data sets in their publishers' layouts, divided among clients."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from raysim.config.serialise import fields_of
from raysim.core.errors import DataError
from raysim.data.build import build
from raysim.data.sources.acs_income import AcsIncome
from raysim.data.sources.bundled import BreastCancer, Digits
from raysim.data.sources.images import CIFAR_FILES, IDX_FILES, Cifar10, FashionMnist
from raysim.data.sources.pooled import Partition
from raysim.data.sources.sent140 import Sent140
from raysim.data.split import Split

ALIKE = Partition(name="similarity", share=1.0)


def idx(array: np.ndarray) -> bytes:
    """An IDX file of unsigned bytes, as its publishers write it, gzipped."""
    head = bytes([0, 0, 8, array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    return gzip.compress(head + array.astype(np.uint8).tobytes())


@pytest.fixture
def fashion(tmp_path: Path) -> Path:
    """Twenty training and ten test images; every pixel of image i is i, its label i mod 10."""
    folder = tmp_path / "fashion"
    folder.mkdir()
    for part, first, count in (("train", 0, 20), ("t10k", 20, 10)):
        numbers = np.arange(first, first + count)
        images = np.broadcast_to(numbers[:, None, None], (count, 28, 28))
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(idx(numbers % 10))
    return folder


def test_fashion_mnist_from_idx_files_and_from_one_npz(fashion, tmp_path):
    read = FashionMnist(path=fashion, clients=3, partition=ALIKE).read()
    assert read.features.shape == (30, 784)
    assert read.features.iloc[25].unique() == pytest.approx([25 / 255])
    assert read.y.tolist() == [i % 10 for i in range(30)]
    images = np.broadcast_to(np.arange(30, dtype=np.uint8)[:, None, None], (30, 28, 28))
    labels = np.arange(30) % 10
    (tmp_path / "npz").mkdir()
    np.savez(
        tmp_path / "npz" / "fashion_mnist.npz",
        x_train=images[:20], y_train=labels[:20], x_test=images[20:], y_test=labels[20:],
    )  # fmt: skip
    other = FashionMnist(path=tmp_path / "npz", clients=3, partition=ALIKE).read()
    assert (other.features.to_numpy() == read.features.to_numpy()).all()
    assert (other.y == read.y).all()


def test_cifar10_from_its_binary_version(tmp_path):
    for k, name in enumerate(CIFAR_FILES):
        rows = np.zeros((2, 3073), dtype=np.uint8)
        rows[:, 0], rows[:, 1:] = (2 * k % 10, (2 * k + 1) % 10), 51
        (tmp_path / name).write_bytes(rows.tobytes())
    read = Cifar10(path=tmp_path, clients=2, partition=ALIKE).read()
    assert read.features.shape == (12, 3072)
    assert read.features.to_numpy() == pytest.approx(0.2)
    assert read.y.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


def test_acs_income_filters_and_labels_as_folktables(tmp_path):
    head = "SERIALNO,AGEP,COW,SCHL,MAR,OCCP,POBP,RELP,WKHP,SEX,RAC1P,PINCP,PWGTP\n"
    rows = [
        "a,40,1,16,1,10,6,0,40,1,1,50001,10",
        "b,41,1,16,1,10,6,0,40,2,1,50000,10",
        "c,16,1,16,1,10,6,0,40,2,1,60000,10",  # too young
        "d,41,1,16,1,10,6,0,,2,1,60000,10",  # no hours
        "e,41,1,16,1,10,6,0,40,2,1,100,10",  # earns too little
        "f,41,1,16,1,10,6,0,40,2,1,60000,0",  # no weight
    ]
    (tmp_path / "2018").mkdir()
    (tmp_path / "2018" / "psam_p06.csv").write_text(head + "\n".join(rows) + "\n")
    features, y, classes, _ = AcsIncome(path=tmp_path).pool()
    assert y.tolist() == [1, 0]
    assert classes == ("up to 50000", "above 50000")
    assert features["AGEP"].tolist() == [40, 41]
    (tmp_path / "2018" / "psam_p48.csv").write_text(head)
    assert [file.name for file in AcsIncome(path=tmp_path, states=("06",)).files()] == ["psam_p06.csv"]
    with pytest.raises(DataError, match=r"^data.path: .*nowhere has no psam_p<state>.csv"):
        list(AcsIncome(path=tmp_path / "nowhere").files())


@pytest.mark.parametrize("states", [("6",), ("06", "6")])
def test_a_state_without_a_file_is_named_whichever_others_have_one(states, tmp_path):
    for state in ("06", "48"):
        (tmp_path / f"psam_p{state}.csv").touch()
    with pytest.raises(DataError, match=r"^data.states: '6' has no psam_p6.csv in .*; known: 06, 48$"):
        list(AcsIncome(path=tmp_path, states=states).files())


@pytest.mark.parametrize(
    ("source", "left_out"),
    [
        (Digits(partition=ALIKE), {"alpha", "min_size"}),
        (Digits(), {"share"}),
        (Sent140(path=Path("there"), partition=ALIKE), {"alpha", "min_size", "smallest"}),
        (Sent140(path=Path("there"), silo="user", smallest=3), {"clients", "partition"}),
    ],
)
def test_what_is_written_of_a_source_can_be_read_again(source, left_out):
    written = fields_of(source)
    assert not left_out & {*written, *written.get("partition", {})}
    assert type(source).model_validate(written) == source


def test_clients_without_rows_are_reported():
    read = BreastCancer(clients=40, partition=Partition(alpha=0.05, min_size=0)).read()
    there = len(np.unique(read.silo))
    assert there < 40
    assert read.notes[1].endswith(f"seed 0; left out: {40 - there} clients that got no row")
    assert Digits(clients=10, rows=500).read().notes[1].endswith("seed 0")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"share": 0.0}, "share: has no effect where name is dirichlet"),
        ({"name": "similarity", "alpha": 0.3}, "alpha: has no effect where name is similarity"),
        ({"name": "similarity", "min_size": 10}, "min_size: has no effect where name is similarity"),
    ],
)
def test_a_partition_refuses_keys_of_the_other_one(settings, key):
    with pytest.raises(ValidationError, match=f"{key}; leave it out"):
        Partition.model_validate(settings)


def test_bundled_data_become_federations(tmp_path, monkeypatch):
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path))
    skewed = build(Digits(clients=10, partition=Partition(alpha=0.5)), Split(column="part"), "standard")
    assert len(skewed.hospitals) == 10
    assert skewed.sizes("train").sum() + skewed.sizes("test").sum() == 1797
    assert skewed.sizes("test").sum() == pytest.approx(0.2 * 1797, abs=10)
    cancer = build(BreastCancer(clients=5, partition=ALIKE), Split(column="part"), "standard")
    assert cancer.classes == ("benign", "malignant")
    assert int(cancer.y.sum()) == 212


def test_a_sample_of_rows_and_shards_of_few_classes():
    read = Digits(clients=10, rows=500, partition=Partition(name="similarity", share=0.0)).read()
    assert len(read.y) == 500
    kinds = [len(np.unique(read.y[read.silo == f"client_{j + 1}"])) for j in range(10)]
    assert max(kinds) <= 3


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / IDX_FILES[0]).unlink(), "has no train-images-idx3-ubyte.gz"),
        (lambda folder: (folder / IDX_FILES[0]).write_bytes(b"\x1f\x8b12"), "is not a complete gzip file"),
        (lambda folder: (folder / IDX_FILES[0]).write_bytes(gzip.compress(b"abcd")), "is not an IDX file"),
        (lambda folder: (folder / IDX_FILES[2]).write_bytes(idx(np.zeros((10, 27, 28)))), r"shape \(10, 27, 28\)"),
        (
            lambda folder: (folder / IDX_FILES[1]).write_bytes(idx(np.full(20, 10))),
            r"0..9, the first 10 in row 1;",
        ),
    ],
)
def test_files_in_another_layout_are_named(fashion, spoil, message):
    spoil(fashion)
    with pytest.raises(DataError, match=message):
        FashionMnist(path=fashion, clients=3, partition=ALIKE).read()


@pytest.mark.parametrize(
    ("clients", "partition", "message"),
    [
        (100, Partition(alpha=0.01, min_size=17), "in each of 1000 tries"),
        (200, Partition(min_size=10), "need 2,000 rows"),
        (2000, ALIKE, "more than the 1,797 rows"),
    ],
)
def test_infeasible_partitions_say_so(clients, partition, message):
    with pytest.raises(DataError, match=message):
        Digits(clients=clients, partition=partition).read()


def test_real_fashion_mnist_has_what_it_should(data_folder):
    read = FashionMnist(path=data_folder / "fashion_mnist", clients=10).read()
    assert np.bincount(read.y).tolist() == [7000] * 10

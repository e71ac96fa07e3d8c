"""A patient is taken out of the table, before the split: everything else that leaves hospitals moves by one clip.

This is what a guarantee for patients compares. Data are prepared without looking at them, or by declared ranges, and
what is declared public is held fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from raysim.config import plugins
from raysim.config.reading import resolve
from raysim.config.schema import Config
from raysim.core import registry
from raysim.core.errors import ConfigError, DataError
from raysim.data.build import build
from raysim.data.federation import Federation
from raysim.data.records import Records, Source
from raysim.data.sources.acs_income import FEATURES, AcsIncome
from raysim.data.sources.amazon_reviews import CATEGORIES, AmazonReviews
from raysim.data.sources.bundled import BreastCancer, Digits
from raysim.data.sources.coalitions import Coalitions
from raysim.data.sources.images import CIFAR_FILES, NPZ, Cifar10, FashionMnist
from raysim.data.sources.patient_types import PatientTypes
from raysim.data.sources.sent140 import TRAINING, Sent140
from raysim.data.sources.serengeti import Serengeti
from raysim.data.sources.synthetic import Synthetic
from raysim.data.split import Split
from raysim.engine.job import Job
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import job_of
from tests.data.in_memory_sources import Parted
from tests.data.sources.test_serengeti import capture, write
from tests.data.sources.test_texts import ALIKE, reviews, tweets
from tests.privacy.test_sensitivity import check_pair, guarantee

REMOVED = ("p3", "p17", "p30", "p41")
"""One patient of each hospital; the third has three rows."""

SPLITS: dict[str, dict[str, Any]] = {
    "fractions": {"train": 0.6, "validation": 0.2, "test": 0.2},
    "folds": {"folds": 4},
    "column": {"column": "part"},
}
RANGES = {"a": [-4, 4], "b": [-4, 4], "c": [-4, 4]}


def table(folder: Path) -> pd.DataFrame:
    """Four hospitals with twelve patients each, who have one to three rows."""
    rng, rows = np.random.default_rng(7), []
    for p in range(48):
        part = ("train", "train", "validation", "test")[p % 4]
        for _ in range(1 + p % 3):
            a, b, c = rng.normal(size=3).round(3)
            rows.append((f"h{p // 12}", f"p{p}", part, a, b, c, int(a + rng.normal() > 0)))
    made = pd.DataFrame(rows, columns=["hospital", "patient", "part", "a", "b", "c", "died"])
    made.to_csv(folder / "with.csv", index=False)
    return made


def config(path: Path, split: dict[str, Any], preprocessing: str, unit: str = "patient") -> Config:
    data = {"source": "table", "path": str(path), "silo": "hospital", "label": "died", "group": "patient"}
    return resolve(
        {
            "data": {**data, "split": split, "preprocessing": preprocessing}
            | ({"drop": ["part"]} if "column" not in split else {})
            | ({"ranges": RANGES} if preprocessing == "declared" else {}),
            "privacy": {"unit": unit, "epsilon": 2, "delta": 1e-4},
        }
    )


def federation(made: Config, seed: int = 3) -> Federation:
    return plugins.build_federation(made, plugins.build_source(made.data), seed)


def placed(federation: Federation, rows: np.ndarray) -> set[tuple[int, int, int, bytes]]:
    """The hospital, the part, the row of the whole table, and the values of each row; the table holds ``rows``."""
    return {
        (h, p, int(rows[federation.source_rows[i]]), federation.X[i].tobytes() + federation.y[i].tobytes())
        for h in range(len(federation.hospitals))
        for p in range(3)
        for i in range(federation.bounds[h, p], federation.bounds[h, p + 1])
    }


def job_on(mode: str) -> Callable[[Federation], Job]:
    """Two rounds that draw every patient, with at most two rows of each, and all that can be released with noise."""
    section = guarantee(mode, normal=True).model_copy(
        update={"rows_per_patient": 2} | ({"rate": 1.0} if mode == "pooled" else {})
    )

    def on(federation: Federation) -> Job:
        return replace(job_of(federation, FedAvg(), rounds=2, batch_size=0, every=1), privacy=section)

    return on


@pytest.mark.parametrize("preprocessing", ["none", "declared"])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("patient", REMOVED)
def test_a_removed_patient_moves_nothing_but_one_clip(tmp_path, patient, split, preprocessing):
    whole = table(tmp_path)
    stay = (whole["patient"] != patient).to_numpy()
    whole[stay].to_csv(tmp_path / "without.csv", index=False)
    one, other = (
        federation(config(tmp_path / f"{name}.csv", SPLITS[split], preprocessing)) for name in ("with", "without")
    )
    everybody, others = placed(one, np.arange(len(whole))), placed(other, np.flatnonzero(stay))
    gone = {place for place in everybody if not stay[place[2]]}
    assert everybody - others == gone
    assert others < everybody
    (hospital,) = {h for h, *_ in gone}
    for mode in ("pooled", "local") if split == "fractions" else ():  # the rows are those of two neighbours
        kinds = check_pair(job_on(mode), one, other, hospital)
        assert kinds >= {"size", "metrics", "update"}


@pytest.mark.parametrize("split", [{"column": "part", "used": 0.5}, {"folds": 4, "used": 0.4}])
@pytest.mark.parametrize("patient", REMOVED)
def test_a_removed_patient_changes_nobodys_use(tmp_path, patient, split):
    """Where a share of the training rows is used, too, whoever decides who trains."""
    whole = table(tmp_path)
    stay = (whole["patient"] != patient).to_numpy()
    whole[stay].to_csv(tmp_path / "without.csv", index=False)
    one, other = (federation(config(tmp_path / f"{name}.csv", split, "none")) for name in ("with", "without"))
    others = placed(other, np.flatnonzero(stay))
    assert {place for place in placed(one, np.arange(len(whole))) if stay[place[2]]} == others
    assert len(others) < stay.sum()


def taken(records: Records, rows: np.ndarray) -> Records:
    """These ``rows`` of some records alone."""
    return replace(
        records,
        features=records.features.iloc[rows].reset_index(drop=True),
        y=records.y[rows],
        silo=records.silo[rows],
        patients={name: values[rows] for name, values in records.patients.items()},
        part=None if records.part is None else records.part[rows],
    )


WITHOUT_PATIENTS: dict[str, Source] = {
    "synthetic": Synthetic(hospitals=3, rows=120, features=3, missing=0),
    "patient types": PatientTypes(hospitals=3, rows=120, features=3),
    "coalitions": Coalitions(hospitals=4),
    "breast cancer": BreastCancer(clients=4, partition={"name": "dirichlet", "alpha": 1.0}),
    "digits": Digits(clients=4, rows=200, partition={"name": "similarity", "share": 0.5}),
}
"""Sources that know no patients. The clients of pooled data, and the sample of them, are public and stay."""


WORDS = ("fine", "bad", "late", "sun", "rain", "home", "work", "never")


def texts(count: int) -> list[str]:
    rng = np.random.default_rng(1)
    return [" ".join(rng.choice(WORDS, 6)) + f" {k}" for k in range(count)]


def of_tweets(folder: Path) -> Source:
    tweets(folder / TRAINING, [("04"[k % 2], f"user{k % 5}", text) for k, text in enumerate(texts(120))])
    return Sent140(path=folder, clients=4, partition=ALIKE, vocabulary=50, length=6)


def of_users(folder: Path) -> Source:
    of_tweets(folder)
    return Sent140(path=folder, silo="user", smallest=5, vocabulary=50, length=6)


def of_reviews(folder: Path) -> Source:
    reviews(folder, [(tuple(CATEGORIES)[k % len(CATEGORIES)], text) for k, text in enumerate(texts(120))])
    return AmazonReviews(path=folder, clients=4, partition=ALIKE, vocabulary=50, length=6)


def of_images(folder: Path) -> Source:
    images = np.random.default_rng(1).integers(0, 256, (120, 28, 28), np.uint8)
    labels = np.arange(120, dtype=np.uint8) % 10
    parts = {"x_train": images[:100], "y_train": labels[:100], "x_test": images[100:], "y_test": labels[100:]}
    np.savez(folder / NPZ, **parts)
    return FashionMnist(path=folder, clients=4, partition=ALIKE)


def of_colours(folder: Path) -> Source:
    rng = np.random.default_rng(1)
    for file in CIFAR_FILES:
        rows = rng.integers(0, 256, (10, 3073), np.uint8)
        rows[:, 0] = np.arange(10)
        rows.tofile(folder / file)
    return Cifar10(path=folder, clients=4, partition=ALIKE)


def of_animals(folder: Path) -> Source:
    rng = np.random.default_rng(1)
    rows = [
        capture(
            k, ("zebra", "lion", "impala")[k % 3], f"{'BCD'[k % 3]}0{k % 5}", question__count_median=rng.integers(9)
        )
        for k in range(120)
    ]
    return Serengeti(path=write(folder, rows), species=3, clients=4, partition=ALIKE)


def of_sites(folder: Path) -> Source:
    of_animals(folder)
    return Serengeti(path=folder, species=3, silo="site", smallest=5)


def of_census(folder: Path) -> Source:
    rng = np.random.default_rng(1)
    persons = pd.DataFrame({name: rng.integers(20, 60, 120) for name in [*FEATURES, "PWGTP"]})
    persons.assign(PINCP=rng.integers(20_000, 90_000, 120)).to_csv(folder / "psam_p06.csv", index=False)
    return AcsIncome(path=folder, clients=4, partition=ALIKE)


OF_FILES = {
    "tweets": of_tweets,
    "users": of_users,
    "reviews": of_reviews,
    "images": of_images,
    "colours": of_colours,
    "animals": of_animals,
    "sites": of_sites,
    "census": of_census,
}
"""Sources of files of others, in their layouts."""


@pytest.mark.parametrize(
    ("name", "split"),
    [
        *product([*WITHOUT_PATIENTS, *OF_FILES], ["fractions"]),
        *product([*WITHOUT_PATIENTS, "sites", "census"], ["folds"]),
        ("coalitions", "column"),
    ],
)
def test_a_row_without_a_patient_is_known_by_its_content(name, split, tmp_path):
    """What one clip bounds is the sum over rows, of which all others are the same, bit for bit, at the same places."""
    source = WITHOUT_PATIENTS[name] if name in WITHOUT_PATIENTS else OF_FILES[name](tmp_path)
    records = source.read()
    rows = np.arange(len(records.y))
    divided = Split(**SPLITS[split]).by_itself()

    def divided_rows(stay: np.ndarray) -> set[tuple[int, int, int, bytes]]:
        Parted.kept[kept := f"{name} {split} {stay[0]} {len(stay)} {stay.sum()}"] = taken(records, stay)
        return placed(build(Parted(name=kept), divided, "none", seed=3), stay)

    everybody = divided_rows(rows)
    # The first and the last row are rows of any split; pixels are many.
    for row in (50,) if name in ("images", "colours") else (0, 50, 119):
        others = divided_rows(rows[rows != row])
        assert {place[2] for place in everybody - others} == {row}
        assert others < everybody


OF_EICU: dict[str, dict[str, Any]] = {
    "mortality": {"source": "eicu", "silo": "region_beds"},
    "injury": {"source": "eicu", "task": "aki", "silo": "region_beds"},
    "brief": {"source": "eicu_brief", "hospitals": 13},
    "hourly": {"source": "yaib", "path": "eicu_demo_hourly/mortality24", "silo": "region_beds"},
}
"""Sources that read the tables of eICU. Of the brief one the patient leaves the same hospitals the largest."""


@pytest.mark.parametrize("name", OF_EICU)
def test_a_patient_removed_from_the_tables_of_eicu_changes_no_other_row(tmp_path, data_folder, name, monkeypatch):
    keys = OF_EICU[name]
    folder = "eicu" if keys["source"] == "yaib" else "path"
    if "path" in keys:
        keys = keys | {"path": str(data_folder / keys["path"])}
    for table_file in (data_folder / "eicu_demo").iterdir():
        (tmp_path / table_file.name).symlink_to(table_file)
    source = plugins.build_source(resolve({"data": {**keys, folder: str(tmp_path)}}).data)
    records = source.read()
    largest = pd.Series(records.silo).value_counts().index[0]
    stays = pd.Series(records.group)[records.silo == largest].value_counts()
    patient = stays.index[stays > 1][-1]
    everybody = pd.read_csv(data_folder / "eicu_demo" / "patient.csv.gz", dtype=str)
    (without := tmp_path / "without").mkdir()
    for table_file in (data_folder / "eicu_demo").iterdir():
        (without / table_file.name).symlink_to(table_file)
    (without / "patient.csv.gz").unlink()
    everybody[everybody["uniquepid"] != patient].to_csv(without / "patient.csv.gz", index=False)

    kinds = {column: values.dtype.name == "category" for column, values in records.features.items()}
    words = {"sex": ["female", "male", "Female", "Male"]}
    ranges = {
        str(column): [*(words.get(str(column), ["no", "yes"]) if texts else [0, 1000]), None]
        for column, texts in kinds.items()
    }
    stay = np.asarray(records.group) != patient
    split = "fractions" if name in ("mortality", "brief") else "folds"
    declared = {"split": SPLITS[split], "preprocessing": "declared", "ranges": ranges}

    def federated(where: Path) -> Federation:
        privacy = {"unit": "patient", "epsilon": 2, "delta": 1e-4}
        return federation(resolve({"data": {**keys, folder: str(where), **declared}, "privacy": privacy}))

    with monkeypatch.context() as patch:  # they take a second to read
        patch.setattr(type(source), "read", lambda self: records)
        one = federated(tmp_path)
    other = federated(without)
    there, others = placed(one, np.arange(len(stay))), placed(other, np.flatnonzero(stay))
    assert {row for _, _, row, _ in there - others} == set(np.flatnonzero(~stay).tolist())
    assert others < there
    assert len({h for h, *_ in there - others}) == 1


@pytest.mark.parametrize("name", sorted(set(registry.entries("sources")) - {"table", "coalitions"}))
def test_no_other_source_has_a_column_of_parts_under_a_guarantee(name, tmp_path):
    """The parts of sources of pooled rows are dealt to all rows at once; the rows of others have none."""
    made = config(tmp_path / "with.csv", {}, "none", "example")
    keys = {"path": tmp_path} if "path" in registry.load("sources", name, "data.source").model_fields else {}
    section = made.data.model_copy(update={"source": name, "split": Split(column="part")})
    source = registry.load("sources", name, "data.source").model_construct(**keys)
    with pytest.raises((ConfigError, DataError), match=r"data.split.column: 'part'"):
        plugins.build_federation(made.replaced(data=section), source, 3)


def test_a_split_that_deals_all_rows_again_is_refused(tmp_path):
    table(tmp_path)
    with pytest.raises(ConfigError, match=r"data.split.independent: is false.* privacy.unit: example cannot"):
        config(tmp_path / "with.csv", {"independent": False}, "none", "example")
    made = resolve(
        {"data": {"source": "fashion_mnist", "path": ".", "split": {"column": "part"}, "preprocessing": "none"}}
    )
    private = made.replaced(privacy=config(tmp_path / "with.csv", {}, "none", "example").privacy)
    with pytest.raises(ConfigError, match=r"data.split.column: 'part' of source fashion_mnist is a stratified holdout"):
        federation(private)


def test_a_source_that_keeps_large_hospitals_is_refused_where_sizes_are_hidden(tmp_path):
    made = resolve({"data": {"source": "eicu_brief", "path": str(tmp_path)}})
    table(tmp_path)
    private = config(tmp_path / "with.csv", {}, "none").privacy
    hidden = made.replaced(privacy=private.model_copy(update={"sizes": "noisy"}))
    with pytest.raises(ConfigError, match=r"data.source: eicu_brief leaves out hospitals by their number of rows"):
        federation(hidden)


def test_the_note_says_what_becomes_of_shares_and_other_runs_deal_as_before(tmp_path):
    table(tmp_path)
    private = federation(config(tmp_path / "with.csv", SPLITS["fractions"], "none"))
    assert any("each patient by a separate hash, so that shares are met on average" in n for n in private.notes)
    whole = config(tmp_path / "with.csv", SPLITS["fractions"], "none").replaced(privacy=None)
    dealt = federation(whole)
    assert not any("on average" in note for note in dealt.notes)
    assert not np.array_equal(private.bounds, dealt.bounds)
    asked = whole.replaced(data=whole.data.model_copy(update={"split": whole.data.split.by_itself()}))
    assert federation(asked).fingerprint == private.fingerprint

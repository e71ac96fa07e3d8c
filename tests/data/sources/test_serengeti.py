"""Snapshot Serengeti from the table that LILA publishes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.core.errors import DataError
from raysim.data.build import build
from raysim.data.sources.pooled import Partition
from raysim.data.sources.serengeti import Serengeti
from raysim.data.split import Split

ALIKE = Partition(name="similarity", share=1.0)


def capture(number: int, species: str, site: str = "B04", **changed: Any) -> dict[str, Any]:
    """A row of the table, its questions answered alike."""
    return {
        "": number,
        "capture_id": f"SER_S1#{site}#1#{number}",
        "season": "S1",
        "site": site,
        "roll": 1,
        "capture": number,
        "capture_date_local": "2010-07-18",
        "capture_time_local": "06:00:00",
        "subject_id": f"ASG{number:07}",
        "question__species": species,
        "question__count_max": 3,
        "question__count_median": 2.0,
        "question__count_min": 1,
        **{
            f"question__{what}": 0.25
            for what in ("standing", "resting", "moving", "eating", "interacting", "young_present")
        },
        "p_users_identified_this_species": 0.9,
        "pielous_evenness_index": 0.1,
        **changed,
    }


def write(folder: Path, rows: list[dict[str, Any]], name: str = "SnapshotSerengeti_v2_1_annotations.csv") -> Path:
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def test_animals_seen_alone_by_count_behaviour_time_and_place(tmp_path):
    rows = [
        capture(1, "zebra", "C12", question__count_max="11-50", question__count_median="Nov-50"),
        capture(2, "blank", **{f"question__{what}": "" for what in ("count_max", "count_median", "count_min")}),
        capture(3, "Lion", capture_time_local="12:00:00", question__count_max="51+"),
        capture(4, "zebra"),
        capture(5, "impala"),  # two species in one capture
        capture(5, "zebra"),
        capture(6, "lion", capture_date_local="", question__standing=""),
        capture(7, "zebra", "XX"),
        capture(8, "topi"),  # the least frequent
        capture(9, "human"),
    ]
    source = Serengeti(path=write(tmp_path, rows), species=2)
    features, y, classes, note = source.pool()
    assert classes == ("lion", "zebra")
    assert y.tolist() == [1, 0, 1, 0, 1]
    assert note == "Snapshot Serengeti: 5 captures of 2 species, of 6"
    assert features["count_max"].tolist() == [11, 51, 3, 3, 3]
    assert features["count_median"].tolist() == [11, 2, 2, 2, 2]
    assert np.isnan(features["standing"].tolist()).tolist() == [False, False, False, True, False]
    assert features["site_row"].tolist()[:2] == [2, 1]
    assert features["site_column"].tolist()[:2] == [12, 4]
    assert np.isnan(features["site_row"].iloc[4])
    assert features["day_sin"].to_numpy() == pytest.approx([1, 0, 1, 1, 1], abs=1e-6)
    assert features["day_cos"].to_numpy() == pytest.approx([0, -1, 0, 0, 0], abs=1e-6)
    july = 2 * math.pi * (31 + 28 + 31 + 30 + 31 + 30 + 18) / 365.25
    assert features["year_sin"].iloc[0] == pytest.approx(math.sin(july), abs=1e-6)
    assert np.isnan(features["year_cos"].iloc[3])
    assert not {"p_users_identified_this_species", "pielous_evenness_index"} & set(features.columns)


def test_ties_of_frequency_go_to_the_name_that_comes_first(tmp_path):
    rows = [capture(k, species) for k, species in enumerate(["topi", "lion", "eland", "lion"])]
    assert Serengeti(path=write(tmp_path, rows), species=2).pool()[2] == ("eland", "lion")


def test_sites_can_be_the_hospitals(tmp_path, cache_folder):
    rows = [capture(k, ("lion", "zebra")[k % 2], ("B04", "C01", "D10")[k % 3]) for k in range(60)]
    rows += [capture(60, "lion", "E05")]
    folder = write(tmp_path, rows)
    federation = build(Serengeti(path=folder, species=2, silo="site"), Split(column="part"))
    assert federation.hospitals == ("B04", "C01", "D10")
    assert federation.sizes("test").tolist() == [4, 4, 4]
    assert not any(name.startswith("site") for name in federation.features)
    pooled = build(Serengeti(path=folder, species=2, clients=4, partition=ALIKE), Split(column="part"))
    assert pooled.totals.sum() == 61
    assert "site_row" in pooled.features


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([capture(1, "lion"), capture(2, "zebra")], "data.species: 13, but .* has 2 species; lower it"),
        ([capture(1, "")], "has no question__species in row 1; remove that row"),
        (
            [capture(k, f"animal{k}", question__count_max="many") for k in range(13)],
            "has 'many' as question__count_max",
        ),
    ],
)
def test_tables_that_cannot_be_used_are_named(rows, message, tmp_path):
    with pytest.raises(DataError, match=message):
        Serengeti(path=write(tmp_path, rows)).pool()


def test_the_table_must_be_there_once_and_have_its_columns(tmp_path):
    with pytest.raises(DataError, match=r"has no SnapshotSerengeti\*annotations\*.csv"):
        Serengeti(path=tmp_path).read()
    (tmp_path / "SnapshotSerengeti_v2_0_annotations.csv").write_text("capture_id,site\na,b\n")
    with pytest.raises(DataError, match="is not LILA's table of annotations"):
        Serengeti(path=tmp_path).read()
    write(tmp_path, [capture(1, "lion")])
    with pytest.raises(DataError, match="keep one"):
        Serengeti(path=tmp_path).read()

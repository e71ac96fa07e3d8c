"""Small CSV files that a configuration names, as spreadsheets of several countries write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysim.core.errors import ConfigError
from raysim.virtual_time.hospitals import number, read_rows

ROWS = [(2, {"hospital": "Köln", "uplink": "1.5"}), (3, {"hospital": "Genève, nord", "uplink": "20"})]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_encodings_and_separators(encoding: str, separator: str, tmp_path: Path):
    lines = [separator.join(cells) for cells in (("hospital ", "uplink"), ("Köln", "1.5"), ('"Genève, nord"', "20"))]
    path = tmp_path / "speeds.csv"
    path.write_bytes("\r\n".join(lines).encode(encoding))
    assert read_rows(path, "system.table", ("hospital",), ("uplink",)) == ROWS


def test_what_is_no_text_is_one_line(tmp_path: Path):
    path = tmp_path / "speeds.csv"
    path.write_bytes(b"hospital,uplink\nK\x81ln,1\n")  # no letter of Western Windows
    with pytest.raises(ConfigError, match=r"^system.table: .* is not UTF-8 \(first in line 2\), and its encoding"):
        read_rows(path, "system.table", ("hospital",), ("uplink",))


def test_numbers_have_a_point_or_a_comma(tmp_path: Path):
    path = tmp_path / "speeds.csv"
    path.write_text("hospital;uplink;latency\n007;1,5;0,125\nNA;12,25;1e3\n")
    rows = read_rows(path, "system.table", ("hospital",), ("uplink", "latency"))
    assert [(row["hospital"], number(row["uplink"], "x"), number(row["latency"], "x")) for _, row in rows] == [
        ("007", 1.5, 0.125),
        ("NA", 12.25, 1000),
    ]
    with pytest.raises(ConfigError, match=r"^speeds: '1,2,3' is not a number"):
        number("1,2,3", "speeds")

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
    with pytest.raises(ConfigError, match=r"^system.table: .* cannot be read \(.*\); name a CSV file$"):
        read_rows(path, "system.table", ("hospital",), ("uplink",))


def test_numbers_have_a_point_or_a_comma():
    assert [number(text, "x") for text in ("1.5", "1,5", "-,25", "0,125", "12", "1e3")] == [
        1.5,
        1.5,
        -0.25,
        0.125,
        12,
        1e3,
    ]
    for text, said in (("1,234", "the comma of '1,234' may mark decimals or thousands"), ("1,2,3", "'1,2,3' is not a")):
        with pytest.raises(ConfigError, match=f"^speeds: {said}"):
            number(text, "speeds")

"""Marks of missing values are compared as they are written: what YAML would change is refused until it is quoted."""

from __future__ import annotations

import pytest

from raysim.config import loading, overrides
from raysim.core.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("null", "null"),
        ("~", "null"),
        ("00", "0"),
        ("no", "false"),
        ("True", "true"),
        ("12:30", "750"),
        ("0x1F", "31"),
        ("1_000", "1000"),
        (".5", "0.5"),
        ("2020-01-02", "datetime.date(2020, 1, 2)"),
    ],
)
def test_what_yaml_changes_is_refused(written: str, read: str) -> None:
    said = f"YAML reads {written} as {read}, but marks of missing values are compared as texts; quote it: '{written}'"
    for value in (f"[{written}]", f"{{lactate: ['?', {written}]}}", f"\n    - -999\n    - {written}", written):
        with pytest.raises(loading.InvalidConfiguration) as caught:
            loading.load(f"data:\n  path: x.csv\n  na_values: {value}\n")
        assert str(caught.value).endswith(f": data.na_values: {said}")
    for key in ("data.na_values", "data.na_values.lactate"):
        with pytest.raises(ConfigError) as refused:
            overrides.parsed([f"{key}=[{written}]"])
        assert str(refused.value) == f"--set {key}: line 1: data.na_values: {said}"


def test_the_line_is_named() -> None:
    with pytest.raises(loading.InvalidConfiguration, match=r"^line 3: data.na_values: YAML reads no as false"):
        loading.load("data:\n  na_values:\n    - no\n")
    with pytest.raises(
        loading.InvalidConfiguration,
        match=r"YAML reads an unquoted mark as the start of a key; "
        r"quote the mark, such as '\?'",
    ):
        loading.load("data: {na_values: [?, x]}")


def test_what_is_written_so_stays() -> None:
    marks = [-999, -1.5, "?", "n.d.", "00", "no", "1e5"]
    assert loading.load("na_values: [-999, -1.5, '?', n.d., '00', \"no\", 1e5]") == {"na_values": marks}
    assert overrides.parsed(["data.na_values=[-999, '00']"]) == {"data.na_values": [-999, "00"]}
    assert loading.load("other: [no, 00]") == {"other": [False, 0]}

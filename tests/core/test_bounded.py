"""YAML and JSON of others: what they may cost is bounded, and whatever is refused is a ``ValueError`` of one line."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from raysim.config import loading
from raysim.core import bounded
from raysim.core.bounded import DEPTH, json_value, read_json, yaml_value

BOMB = "a: &a [" + ", ".join("x" * 10) + "]\n"
for name, below in zip("bcdefgh", "abcdefg", strict=True):
    BOMB += f"{name}: &{name} [" + ", ".join([f"*{below}"] * 10) + "]\n"


def test_aliases_count_as_often_as_they_stand_for_something(monkeypatch):
    with pytest.raises(
        ValueError, match="holds more than 100,000 values, with each alias counted as the values that it repeats"
    ):
        yaml_value(BOMB)
    assert yaml_value("a: &a [1, 2]\nb: [*a, *a]") == {"a": [1, 2], "b": [[1, 2], [1, 2]]}
    monkeypatch.setattr(bounded, "NODES", 1000)
    half = f"a: &a [{', '.join('x' * 490)}]\n"
    assert len(yaml_value(half + "b: 1")["a"]) == 490
    assert yaml_value(half + "b: *a")["b"] == ["x"] * 490
    with pytest.raises(ValueError, match="values"):
        yaml_value(half + "b: *a\nc: *a")


def test_depth_is_counted_through_aliases():
    deep = DEPTH // 2
    nested = f"a: &a {'[' * deep}{']' * deep}\n"
    assert yaml_value(nested + f"b: {'[' * (deep - 2)}*a{']' * (deep - 2)}")
    with pytest.raises(ValueError, match="it is nested deeper than 40 levels"):
        yaml_value(nested + f"b: {'[' * (deep + 1)}*a{']' * (deep + 1)}")
    assert yaml_value("[" * DEPTH + "]" * DEPTH)
    with pytest.raises(ValueError, match="it is nested deeper than 40 levels"):
        yaml_value("[" * (DEPTH + 1) + "]" * (DEPTH + 1))
    # The depth of what came before does not add up.
    assert len(yaml_value("\n".join(["- " + "[" * 30 + "]" * 30] * 50))) == 50


def test_an_alias_of_what_holds_it_is_refused():
    with pytest.raises(ValueError, match="an alias refers to a value that contains the alias"):
        yaml_value("a: &a {b: [*a]}")


@pytest.mark.parametrize("text", ["!!timestamp x", "!!int ''", "!!bool x", "!!float x", "? [a]\n: b", "\0"])
def test_what_pyyaml_trips_over_is_a_value_error_of_one_line(text):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        yaml_value(text)


def test_long_numbers_are_not_computed():
    assert yaml_value("9" * 400) == int("9" * 400)
    for text in ("9" * 401, "0x" + "f" * 400, "1" + ":1" * 300):
        with pytest.raises(ValueError, match="digits"):
            yaml_value(text)


def test_files_are_read_up_to_their_limit(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text("[1, 2]")
    monkeypatch.setattr(bounded, "JSON_BYTES", 6)
    assert read_json(path) == [1, 2]
    monkeypatch.setattr(bounded, "JSON_BYTES", 5)
    with pytest.raises(ValueError, match="more than 5 bytes"):
        read_json(path)
    monkeypatch.setattr(bounded, "YAML_BYTES", 5)
    with pytest.raises(ValueError, match="more than 5 bytes"):
        loading.read(path)
    with pytest.raises(ValueError, match="more than 5 characters"):
        yaml_value("[1, 2]")


def test_json_that_nests_too_deep():
    with pytest.raises(ValueError, match="it is nested deeper than 100 levels"):
        json_value("[" * 100_000)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(max_size=5), below, max_size=4),
    max_leaves=20,
)


@given(plain)
def test_what_is_within_bounds_is_read_as_pyyaml_reads_it(value):
    text = yaml.safe_dump(value)
    assert yaml_value(text) == yaml.safe_load(text)

"""From records to a federation: order, bounds, errors, and the cache."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raysim.core import memory
from raysim.core.errors import DataError
from raysim.core.package import cache_folder
from raysim.data import cache
from raysim.data.assembly import _plain
from raysim.data.build import build, fingerprint
from raysim.data.federation import Coded, Federation, write
from raysim.data.records import natural
from raysim.data.sources.synthetic import Synthetic
from raysim.data.sources.table import Table
from raysim.data.split import Split
from tests.data.in_memory_sources import Fixed, fixed, records

SMALL = Synthetic(hospitals=3, rows=90, features=4)


def test_order_and_bounds_by_hand() -> None:
    given_parts = np.array([2, 0, 1, 0, 0, 2, 0], np.int8)
    source = fixed(
        records(
            {"x": range(7)},
            [0, 1, 0, 1, 1, 0, 1],
            ["10", "9", "10", "10", "9", "9", "10"],
            part=given_parts,
            attributes={"9": {"beds": "<100"}},
            patients={"sex": np.array(list("abcdefg"), object), "age": np.arange(7.0)},
            notes=("seven rows",),
            warnings=("one warning",),
        ),
        "order",
    )
    # A source of its own says the parts; natural order puts 9 before 10.
    source.__class__.reserve = lambda self, by, column: self
    try:
        federation = build(source, Split(column="part"), "none", seed=0)
    finally:
        del source.__class__.reserve
    assert federation.hospitals == ("9", "10")
    assert federation.X[:, 0].tolist() == [1, 4, 5, 3, 6, 2, 0]
    assert federation.y.tolist() == [1, 1, 0, 1, 1, 0, 0]
    assert federation.bounds.tolist() == [[0, 2, 2, 3], [3, 5, 6, 7]]
    assert federation.patients["sex"].tolist() == list("befdgca")
    assert federation.patients["age"].tolist() == [1, 4, 5, 3, 6, 2, 0]
    assert federation.attributes == {"beds": ["<100", ""]}
    assert federation.warnings == ("one warning",)
    assert federation.notes[0] == "seven rows"
    assert federation.notes[1] == "split: by column 'part'"


def test_preprocessing_is_fitted_on_training_rows_of_all_hospitals() -> None:
    parts = Split(train=0.5, validation=0.25, test=0.25)  # and on no validation row
    federation = build(Synthetic(hospitals=6, rows=500, missing=0), parts, "standard", seed=0)
    train = np.concatenate([federation.X[federation.rows(h, "train")] for h in range(6)]).astype(float)
    varies = train.std(axis=0) > 0
    np.testing.assert_allclose(train.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(train.std(axis=0)[varies], 1, atol=1e-5)
    assert federation.preprocessing_scalars == 3 * 40


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(silo=st.lists(st.sampled_from(["2", "10", "a", "b 9", "b 10"]), min_size=6, max_size=40), seed=st.integers(0, 3))
def test_every_row_is_there_once(silo: list[str], seed: int) -> None:
    # Six rows in five hospitals: one has two, and so a test row.
    n = len(silo)
    source = fixed(records({"x": range(n)}, [i % 2 for i in range(n)], silo), f"once {silo}")
    federation = build(source, Split(train=0.4, test=0.6), "none", seed)
    rows = federation.X[:, 0].astype(int)
    assert sorted(rows) == list(range(n))
    assert federation.bounds[0, 0] == 0
    assert federation.bounds[-1, 3] == n
    assert (federation.bounds[1:, 0] == federation.bounds[:-1, 3]).all()
    for h, name in enumerate(federation.hospitals):
        assert {silo[i] for i in rows[federation.bounds[h, 0] : federation.bounds[h, 3]]} == {name}
        for part in ("train", "test"):
            assert (np.diff(rows[federation.rows(h, part)]) > 0).all()


def test_natural_order() -> None:
    assert natural(["10", "-1", "2"]) == ["-1", "2", "10"]
    assert natural(["ward 10", "Ward 9", "ward", "3"]) == ["3", "ward", "Ward 9", "ward 10"]


@given(st.text("aB-1e ", max_size=4), st.lists(st.text("0123456789", max_size=3), max_size=8))
def test_numbered_names_are_in_the_order_of_all_others(before: str, numbers: list[str]) -> None:
    names = [before + number for number in numbers]
    plain = [*names, "another"]  # not numbered, so that the general way is gone
    if all(name and not _is_number(name) for name in names):
        assert natural(names) == [name for name in natural(plain) if name != "another"]


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


def test_a_warning_names_columns_without_a_training_value() -> None:
    rows = records({"a": [np.nan] * 8, "b": range(8)}, [0, 1] * 4, ["h", "i"] * 4)
    federation = build(fixed(rows, "empty column"), Split(train=0.5, test=0.5), seed=0)
    assert federation.features == ("b",)
    assert "left out as features: 'a', which has no value in training rows" in federation.warnings


def test_small_hospitals_can_be_left_out() -> None:
    source = fixed(records({"x": range(12)}, [0, 1] * 6, ["a"] * 6 + ["b"] + ["c"] * 5), "minimum")
    federation = build(source, Split(), "none", 0, minimum=5)
    assert federation.hospitals == ("a", "c")
    assert set(federation.X[:, 0].astype(int)) == {*range(6), *range(7, 12)}
    assert "left out: 1 hospital with fewer than 5 rows" in federation.notes
    with pytest.raises(DataError, match=r"data.minimum: 7 rows are more than any hospital has .the largest: 6.; lower"):
        build(source, Split(), "none", 0, minimum=7)


def test_what_cannot_be_federated() -> None:
    one_class = fixed(records({"x": range(4)}, [1] * 4, list("aabb")), "one class")
    with pytest.raises(DataError, match=r"all 4 rows are of one class \('yes'\); check the label"):
        build(one_class, Split(), "standard", 0)
    tiny = fixed(records({"x": range(4)}, [0, 1] * 2, list("abcd")), "tiny")
    with pytest.raises(DataError, match=r"data.split: no hospital has a row to test on \(largest hospital: 1 row\)"):
        build(tiny, Split(), "standard", 0)
    empty = fixed(records({"x": []}, [], []), "empty")
    with pytest.raises(DataError, match=r"data.source: fixed gives no rows"):
        build(empty, Split(), "standard", 0)
    with pytest.raises(DataError, match=r"data.split.by: 'patient' is not known to source synthetic; use row"):
        build(SMALL, Split(by="patient"), "standard", 0)
    with pytest.raises(DataError, match=r"data.split.by: 'ward', but source synthetic has no columns"):
        build(SMALL, Split(by="ward"), "standard", 0)
    with pytest.raises(DataError, match=r"data.split.column: 'part', but source synthetic has no columns"):
        build(SMALL, Split(column="part"), "standard", 0)
    with pytest.raises(DataError, match=r"data.preprocessing: 'standart' is not known; did you mean 'standard'"):
        build(SMALL, Split(), "standart", 0)


def test_the_key_is_configuration_and_seed() -> None:
    first = build(SMALL, Split(), "standard", 0)
    assert build(SMALL, Split(), "standard", 0).folder == first.folder
    assert build(SMALL, Split(seed=0), "standard", 5).folder == first.folder
    others = [
        build(SMALL, Split(), "standard", 1),
        build(SMALL, Split(), "median", 0),
        build(SMALL, Split(train=0.5, test=0.5), "standard", 0),
        build(SMALL.model_copy(update={"seed": 1}), Split(), "standard", 0),
    ]
    assert len({first.folder, *(other.folder for other in others)}) == 5
    assert len({first.fingerprint, *(other.fingerprint for other in others)}) == 5


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("X",), np.zeros((3, 1), np.float32)),
        (("y",), np.array([1, 1, 1])),
        (("y",), np.array([0.0, 1.0, 1.0])),
        (("observed",), np.zeros((3, 1), np.bool_)),
        (("bounds",), np.array([[0, 1, 2, 3]])),
        (("patients", "sex"), np.array(["F", "F", "F"])),
        (("meta", "hospitals"), ["b"]),
        (("meta", "features"), ["z"]),
        (("meta", "classes"), ["yes", "no"]),
        (("meta", "attributes"), {"beds": ["many"]}),
        (("meta", "preprocessing_scalars"), 3),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_a_fingerprint_is_of_all_that_a_run_computes_with(path: tuple[str, ...], value: Any) -> None:
    first, other = content(), content()
    other["meta"]["notes"] = ["read elsewhere"]
    assert fingerprint(first) == fingerprint(other)
    inner = other if len(path) == 1 else other[path[0]]
    inner[path[-1]] = value
    assert fingerprint(first) != fingerprint(other)


def test_a_fingerprint_is_the_same_where_a_processor_computes_other_last_bits() -> None:
    first, other = content(), content()
    first["y"] = np.array([0.1, 1.0, 2.5])
    other["y"] = np.nextafter(first["y"], 9.0)
    assert fingerprint(first) == fingerprint(other)
    other["y"] = first["y"] + 1e-6
    assert fingerprint(first) != fingerprint(other)


def content() -> dict[str, Any]:
    """What a federation of three rows is stored as."""
    names = {"hospitals": ["a"], "features": ["x"], "classes": ["no", "yes"], "attributes": {"beds": ["few"]}}
    return {
        "X": np.ones((3, 1), np.float32),
        "y": np.array([0, 1, 1]),
        "observed": np.ones((3, 1), np.bool_),
        "bounds": np.array([[0, 2, 2, 3]]),
        "patients": {"sex": np.array(["F", "M", "F"])},
        "meta": {**names, "preprocessing_scalars": 2, "notes": ["read here"]},
    }


def test_a_source_is_read_once_for_all_splits(tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_text("one")
    some = records(
        {"x": [1.5, np.nan, 3, 4], "u": ["b", None, "a", "b"]},
        [0, 1, 0, 1],
        list("aabb"),
        group=np.array([4, 4, 5, 6]),
        warnings=("table lab is missing: 3 % of features",),
        attributes={"a": {"beds": "few"}, "b": {"beds": "many"}},
        patients={"sex": np.array(["F", "M", "F", "M"]), "age": np.array([1.0, 2, np.nan, 4])},
    )
    source = fixed(some, "cached", file)
    Fixed.reads.clear()
    halves = Split(train=0.5, test=0.5, by="row")
    first = build(source, halves, "standard", 0)
    again = build(source, halves, "standard", 1)
    assert Fixed.reads == ["cached"]
    assert again.warnings == first.warnings == ("table lab is missing: 3 % of features",)
    # What is read back is what was kept.
    entry = next((cache_folder() / "records").iterdir())
    kept = cache.load_records(entry)
    assert kept.features.equals(some.features)
    assert (kept.silo.tolist(), kept.y.tolist(), kept.classes) == (list("aabb"), [0, 1, 0, 1], ("no", "yes"))
    assert kept.group is not None
    assert kept.group.tolist() == [4, 4, 5, 6]
    assert kept.attributes == some.attributes
    np.testing.assert_array_equal(kept.patients["age"], some.patients["age"])
    assert kept.part is None
    # Another content is another entry, even of the same size.
    file.write_text("two")
    os.utime(file, (1, 1))
    other = build(source, halves, "standard", 0)
    assert Fixed.reads == ["cached", "cached"]
    assert other.folder != first.folder
    assert other.fingerprint == first.fingerprint  # the source gave the same rows again


def test_a_large_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "data.csv"
    file.write_text("content")
    os.utime(file, (1e9, 1e9))
    first = cache.file_digest(file)

    def refuse(*_: object) -> None:
        raise AssertionError("the file was read again")

    monkeypatch.setattr("hashlib.file_digest", refuse)
    assert cache.file_digest(file) == first
    os.utime(file, (1e9, 1e9 + 1))
    with pytest.raises(AssertionError, match="read again"):
        cache.file_digest(file)


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "manifest", "list", "no manifest"])
def test_a_damaged_entry_is_built_again(damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = build(SMALL, Split(), "standard", 0)
    X = np.array(first.X)
    if damage == "flip":
        content = bytearray((first.folder / "X.npy").read_bytes())
        content[-2] ^= 1
        (first.folder / "X.npy").write_bytes(content)
    elif damage == "list":
        (first.folder / "complete.json").write_text('{"X.npy": ["many", 3]}')
    elif damage == "truncate":
        (first.folder / "X.npy").write_bytes(b"x")
    elif damage == "remove":
        (first.folder / "y.npy").unlink()
    elif damage == "manifest":
        (first.folder / "complete.json").write_text("{")
    else:
        (first.folder / "complete.json").unlink()
    again = build(SMALL, Split(), "standard", 0)
    np.testing.assert_array_equal(again.X, X)
    assert again.fingerprint == first.fingerprint
    said = capsys.readouterr().err
    assert bool(said) == (damage != "no manifest")
    if damage in ("flip", "truncate"):
        assert (
            f"raysim: warning: {first.folder} in the cache is damaged (X.npy has changed since it was written); it"
        ) in said
    assert cache.find("federations", again.folder.name) == again.folder == first.folder
    assert [*again.folder.parent.iterdir()] == [again.folder]


def test_a_failed_build_leaves_nothing(cache_folder: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("written")
        raise DataError("stop")

    with pytest.raises(DataError, match="stop"):
        cache.store("federations", "key", fail)
    assert list((cache_folder / "federations").iterdir()) == []
    assert cache.find("federations", "key") is None


def _build_small(barrier: object, folders: object) -> None:
    barrier.wait()
    folders.put(str(build(SMALL, Split(), "standard", 0).folder))


def test_two_processes_build_at_once() -> None:
    context = multiprocessing.get_context("spawn")
    barrier, folders = context.Barrier(2), context.Queue()
    builders = [context.Process(target=_build_small, args=(barrier, folders)) for _ in range(2)]
    for process in builders:
        process.start()
    built = {folders.get(timeout=600) for _ in builders}
    for process in builders:
        process.join()
        assert process.exitcode == 0
    assert len(built) == 1
    assert json.loads((Path(built.pop()) / "complete.json").read_text())


def test_the_one_that_comes_second_takes_what_is_there(cache_folder: Path) -> None:
    def write(folder: Path) -> None:
        # Another process finishes while this one writes.
        if not (cache_folder / "shelf" / "key").exists():
            cache.store("shelf", "key", lambda other: (other / "who").write_text("first"))
        (folder / "who").write_text("second")

    assert (cache.store("shelf", "key", write) / "who").read_text() == "first"


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"RAYSIM_CACHE: the cache folder '.*file/cache' cannot be written \(.+\); set"):
        build(SMALL, Split(), "standard", 0)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYSIM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/raysim")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/raysim")


def test_a_cached_federation_opens_without_pandas() -> None:
    build(SMALL, Split(), "standard", 0)
    code = (
        "import sys; from raysim.data.build import build; from raysim.data.split import Split; "
        "from raysim.data.sources.synthetic import Synthetic; "
        "build(Synthetic(hospitals=3, rows=90, features=4), Split(), 'standard', 0); "
        "print([m for m in ('pandas', 'pyarrow', 'torch', 'ray', 'sklearn', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_table_that_changes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("h,y,x\n" + "a,0,1\na,1,2\n" * 5)
    source = Table(path=path, silo="h", label="y")
    first = build(source, Split(), "none", 0)
    path.write_text("h,y,x\n" + "a,0,3\na,1,4\n" * 5)
    second = build(source, Split(), "none", 0)
    assert set(first.X[:, 0]) == {1.0, 2.0}
    assert set(second.X[:, 0]) == {3.0, 4.0}


def test_texts_of_patients_are_stored_once_and_the_fingerprint_is_that_of_the_texts(tmp_path):
    sexes = np.array(["Female", "Male", "", "Female"], dtype=object)
    order = np.array([3, 1, 0, 2])
    coded, plain = _plain(sexes, order), sexes[order].astype(str)
    assert isinstance(coded, Coded)
    assert coded.codes.dtype == np.uint8
    assert sorted(coded.texts.tolist()) == ["", "Female", "Male"]
    assert coded[:].tolist() == plain.tolist()
    X, y = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([0, 1, 0, 1])
    meta: dict[str, Any] = {"hospitals": ["a"], "features": ["x", "z"], "classes": ["0", "1"], "attributes": {}}
    meta |= {"notes": [], "preprocessing_scalars": 0}
    arrays = {"X": X, "y": y, "observed": X > 0, "bounds": np.array([[0, 2, 2, 4]]), "meta": meta}
    prints = {fingerprint(arrays | {"patients": {"sex": values, "age": np.ones(4)}}) for values in (coded, plain)}
    assert len(prints) == 1
    assert fingerprint(arrays | {"patients": {"sex": plain[::-1], "age": np.ones(4)}}) not in prints

    write(tmp_path, **arrays | {"meta": meta | {"fingerprint": "f"}}, patients={"sex": coded, "age": np.ones(4)})
    federation = Federation.open(tmp_path)
    assert federation.patient_attributes == ("sex", "age")
    assert federation.patients["sex"].dtype == plain.dtype
    assert federation.patients["sex"].tolist() == plain.tolist()


@pytest.mark.parametrize("values", [["a", None, "b"], ["a", 1, "1"], ["a", np.nan, "b"]])
def test_patients_that_are_not_all_texts_become_texts_as_they_always_did(values):
    objects = np.array(values, dtype=object)
    texts = _plain(objects, np.arange(3))
    assert not isinstance(texts, Coded)
    assert texts.tolist() == objects.astype(str).tolist()


def test_memory_is_given_back_once_the_records_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    class Read(type(SMALL)):
        def read(self) -> Any:
            calls.append("read")
            return super().read()

    monkeypatch.setattr(memory, "give_back", lambda: calls.append("given back"))
    for _ in range(2):
        build(Read(hospitals=3, rows=90, features=4, seed=77), Split())
    assert calls == ["read", "given back"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"y": [0, 1, 2]}, "gives a value of y that is not 0 to 1; correct it"),
        ({"y": [0.0, 1.0, float("nan")]}, "gives labels of type float64; give indices of classes"),
        ({"part": np.array([0, 2, 3], np.int8)}, "gives a value of part that is not 0 to 2; correct it"),
        ({"silo": ["a", "b", "c"]}, "gives a list for silo; give a numpy array"),
        ({"features": np.zeros((3, 1))}, "gives a ndarray for features; give a data frame"),
        ({"features": pd.DataFrame([[1.0, 2.0]] * 3, columns=["x", "x"])}, "gives two features one name"),
    ],
)
def test_records_that_a_source_of_ones_own_gets_wrong_are_one_line(change: dict[str, Any], line: str) -> None:
    right = records({"x": range(3)}, [0, 1, 1], ["a", "b", "c"])
    values = {name: np.array(value) if name == "y" else value for name, value in change.items()}
    with pytest.raises(DataError, match=f"data.source: fixed {line}"):
        build(fixed(dataclasses.replace(right, **values), f"wrong {line}"), Split())


def test_an_error_of_a_source_of_ones_own_names_it() -> None:
    with pytest.raises(DataError, match=r"data.source: fixed cannot be read \(KeyError: 'nothing'\); mend tests.data"):
        build(Fixed(name="nothing"), Split())
    absent = fixed(records({"x": range(3)}, [0, 1, 1], ["a", "b", "c"]), "absent", Path("nowhere.csv"))
    with pytest.raises(DataError, match=r"data: file '.*nowhere.csv' of source fixed does not exist"):
        build(absent, Split())
    nothing = fixed(None, "no records")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"data.source: fixed returns a NoneType; return raysim.data.records.Records"):
        build(nothing, Split())

"""The mutants of a small module by hand, what a sample is made of, and whether the core's tests are still there."""

from __future__ import annotations

import ast
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.__main__ import excused, is_excused, sample
from tests.mutation.mutants import Mutant, mutants
from tests.mutation.rooms import ROOT, TESTS, core, files_judging, modules_judged
from tests.mutation.stored import StoredMeasurements
from tests.mutation.trials import Measured, MeasuredTest, _Recorder, digests


def afters(source: str) -> list[str]:
    """What becomes of the line of a module that has one."""
    made = mutants("m.py", source)
    for mutant in made:
        ast.parse(mutant.source)
        assert (mutant.line, mutant.before) == (1, source)
    return [mutant.after for mutant in made]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("x = a + b", ["x = a - b"]),
        ("x += a // b", ["x -= a // b", "x += a / b"]),
        ("x = a ** b & c", ["x = a * b & c", "x = a ** b | c"]),
        ("x = a < b", ["x = a <= b", "x = a >= b"]),
        ("x = a is None", ["x = a is not None"]),
        ("x = a not in b", ["x = a in b"]),
        ("x = a and b and c", ["x = a or b and c", "x = a and b or c"]),
        ("x = not a", ["x = a"]),
        ("x = -a", ["x = a"]),
        ("x = 0", ["x = 1"]),
        ("x = 5", ["x = 4", "x = 6"]),
        ("x = 0.25", ["x = 0.5"]),
        ("x = 1e-12", ["x = 1.0"]),
        ("x = True", ["x = False"]),
        ("x = b if a else c", ["x = b", "x = b if not a else c", "x = c"]),
        ("x = np.minimum(a, b)", ["x = np.maximum(a, b)"]),
        ("x = a.sum(axis=1)", ["x = a.mean(axis=1)", "x = a.sum(axis=0)"]),
        ("x = a.any(axis=-1)", ["x = a.all(axis=-1)", "x = a.any(axis=0)"]),
        ("x = np.sqrt(a)", ["x = a"]),
        ("x = a[i]", ["x = a[i - 1]"]),
        ("x = a[i:n]", ["x = a[i + 1:n]", "x = a[i:n - 1]"]),
        ("x = range(n)", ["x = range(n - 1)"]),
    ],
)
def test_mutants_of_a_line(line: str, expected: list[str]) -> None:
    assert sorted(afters(line)) == sorted(expected)


@pytest.mark.parametrize(
    "source",
    [
        '"""From 1 to 2."""',
        "from a import b",
        "x: Literal[1, 2]",
        "raise ValueError(f'{a + 1} is not 2')",
        "x = f'{a + 1}'",
        "x = 'a - b'",
        "x = zip(a, b, strict=True)",
        "if TYPE_CHECKING: import a",
        "class A(B[1]): pass",
        "@overload\ndef f(a: int, b: bool = True) -> int: ...",
    ],
)
def test_what_computes_nothing_has_no_mutants(source: str) -> None:
    assert afters(source) == []


def test_lines_stay_where_they_are() -> None:
    source = "def f(é):\n    # a comment, é\n    return (é  # before\n        + 2)\n"
    made = mutants("m.py", source)
    assert [(m.line, m.before, m.after) for m in made] == [
        (4, "+ 2)", "- 2)"),
        (4, "+ 2)", "+ 1)"),
        (4, "+ 2)", "+ 3)"),
    ]
    assert all(m.source.count("\n") == 4 for m in made)


def test_a_sample_takes_modules_in_turn_and_depends_on_its_seed_alone() -> None:
    made = {
        name: [Mutant(name, i, "", "", f"{name}{i}") for i in range(count)] for name, count in (("a", 50), ("b", 2))
    }
    chosen = sample(made, 9, 4)
    assert Counter(mutant.file for mutant in chosen) == {"a": 7, "b": 2}
    assert [(m.file, m.line) for m in chosen] == sorted((m.file, m.line) for m in chosen)
    assert chosen == sample(made, 9, 4) != sample(made, 9, 5)
    assert len(sample(made, None, 0)) == len(sample(made, 99, 0)) == 52


def test_every_module_of_the_core_has_tests_and_every_name_is_of_some() -> None:
    modules = core()
    assert [module for module in modules if not files_judging(module)] == []
    assert [pattern for pattern in TESTS if not any(fnmatch(module, pattern) for module in modules)] == []
    missing = {name for names in TESTS.values() for name in names if not list((ROOT / "tests").glob(f"{name}.py"))}
    assert missing == set()
    with pytest.raises(ValueError, match=r"^--files: raysim/cli/main\.py is not of the core"):
        files_judging("raysim/cli/main.py")


def test_a_test_file_is_measured_for_all_that_it_judges() -> None:
    judged = modules_judged()
    assert judged["tests/tune/test_pareto.py"] == ["tune/pareto.py"]
    assert "raysim/metrics/labels.py" in judged["tests/tune/test_results.py"]
    assert {module for modules in judged.values() for module in modules} == set(core())


def test_a_measurement_is_stored_until_something_that_was_read_changes(tmp_path: Path) -> None:
    (tmp_path / "test_m.py").write_text("1")
    (tmp_path / "m.py").write_text("2")
    one = MeasuredTest("test_m.py::test_one", 0.5, "passed", {"m.py": {3, 1}})
    other = MeasuredTest("test_m.py::test_other", 0.25, "skipped", {})
    measured = Measured([one, other], digests(["test_m.py", "m.py"], tmp_path))
    stored = StoredMeasurements(tmp_path / "stored.json", tmp_path)
    assert stored.get("test_m.py", ["m.py"]) is None
    stored.put("test_m.py", ["m.py"], measured)
    stored.put("test_n.py", ["n.py"], Measured([], {}))
    assert StoredMeasurements(tmp_path / "stored.json", tmp_path).get("test_m.py", ["m.py"]) == [one, other]
    assert stored.get("test_n.py", ["n.py"]) == []
    assert stored.get("test_m.py", ["m.py", "n.py"]) is None
    (tmp_path / "m.py").write_text("3")
    assert stored.get("test_m.py", ["m.py"]) is None
    (tmp_path / "m.py").unlink()
    assert stored.get("test_m.py", ["m.py"]) is None
    (tmp_path / "m.py").write_text("2")
    assert stored.get("test_m.py", ["m.py"]) == [one, other]


def test_a_failure_is_not_stored_and_without_a_file_nothing_is(tmp_path: Path) -> None:
    failed, passed = (MeasuredTest(f"test_m.py::test_{outcome}", 1.0, outcome) for outcome in ("failed", "passed"))
    stored = StoredMeasurements(tmp_path / "stored.json", tmp_path)
    stored.put("test_m.py", [], Measured([passed, failed], {}))
    assert stored.get("test_m.py", []) is None
    assert not (tmp_path / "stored.json").exists()
    nowhere = StoredMeasurements(None, tmp_path)
    nowhere.put("test_m.py", [], Measured([passed], {}))
    assert nowhere.get("test_m.py", []) is None
    assert list(tmp_path.iterdir()) == []


def test_an_excuse_is_for_one_mutant_or_for_a_line() -> None:
    one, other = mutants("m.py", "x = 5\n")
    by_line = {("m.py", "x = 5", None)}
    assert [
        is_excused(one, {("m.py", one.before, one.after)}),
        is_excused(other, {("m.py", one.before, one.after)}),
    ] == [
        True,
        False,
    ]
    assert is_excused(one, by_line)
    assert is_excused(other, by_line)
    assert not is_excused(Mutant("n.py", 1, "x = 5", "x = 6", ""), by_line)


def test_every_excuse_is_for_a_mutant_that_there_is() -> None:
    """A line that has changed since is judged again."""
    excuses = excused()
    made = {
        (mutant.file, mutant.before, after)
        for file in {file for file, _, _ in excuses}
        if (ROOT / file).exists()
        for mutant in mutants(file, (ROOT / file).read_text())
        for after in (mutant.after, None)
    }
    assert excuses - made == set()


def test_lines_that_are_run_as_a_module_is_imported_are_no_test_s_own(tmp_path: Path) -> None:
    source = (
        "LIMIT = 3\n\nclass A:\n    most = 4\n\n    def least(self):\n        return self.most\n\nleast = A().least()\n"
    )
    (tmp_path / "m.py").write_text(source)
    recorder = _Recorder(tmp_path.resolve(), frozenset({"m.py"}))
    recorder.pytest_runtest_logstart("first")
    namespace: dict[str, Any] = {}
    exec(compile(source, str(tmp_path / "m.py"), "exec"), namespace)
    recorder.pytest_runtest_logfinish("first")
    recorder.pytest_runtest_logstart("second")
    namespace["A"]()
    recorder.pytest_runtest_logfinish("second")
    assert recorder.tests["first"].lines == {"m.py": {6, 7}}
    assert recorder.tests["second"].lines == {}

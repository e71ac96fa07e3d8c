"""A sample of the cases that ``python -m tests.fuzz`` draws, the same each time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from raysim.core import host
from tests.fuzz import cases, finished_runs, stopped_runs, sweeps
from tests.fuzz.command import Answer, Hangs, limited

pytestmark = pytest.mark.faults

SAMPLE = settings(
    max_examples=8,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches and folders of these tests, in a process that stays a host's."""
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(host, "take", lambda: None)


@pytest.mark.parametrize("family", ["configurations", "texts", "tables"])
def test_a_sample_of_what_is_handed_to_a_command(family, tmp_path):
    @SAMPLE
    @given(getattr(cases, family)())
    def each(case: cases.Case) -> None:
        assert cases.fault(case, tmp_path / "case") is None, case

    each()


@pytest.mark.parametrize("compare", [False, True])
def test_a_sample_of_what_is_resumed(compare, tmp_path):
    (template := tmp_path / "template").mkdir()
    stopped_runs.stopped(template, compare=compare)
    unchanged = cases.Case(("resume", "out", "--in-process"), template=template, same=())
    assert cases.fault(unchanged, tmp_path / "case") is None

    @settings(SAMPLE, max_examples=1 if compare else 3)  # a comparison takes three times as long
    @given(stopped_runs.resumptions(template))
    def each(case: cases.Case) -> None:
        assert cases.fault(case, tmp_path / "case") is None, case

    each()


def test_a_sample_of_what_is_done_with_finished_runs(tmp_path):
    (template := tmp_path / "template").mkdir()
    finished_runs.ended(template)
    for arguments in finished_runs.COMMANDS:
        assert cases.fault(cases.Case(arguments, template=template), tmp_path / "case") is None

    @SAMPLE
    @given(finished_runs.uses(template))
    def each(case: cases.Case) -> None:
        assert cases.fault(case, tmp_path / "case") is None, case

    each()


@pytest.mark.xdist_group("sweeps")
@pytest.mark.usefixtures("ray_here")
def test_a_sample_of_sweeps_that_are_resumed(tmp_path):
    (template := tmp_path / "template").mkdir()
    sweeps.ended(template)
    unchanged = cases.Case(("resume", "out"), template=template)
    assert cases.fault(unchanged, tmp_path / "case") is None

    @settings(SAMPLE, max_examples=1)
    @given(sweeps.resumptions(template, trials=True))
    def with_trials(case: cases.Case) -> None:
        assert cases.fault(case, tmp_path / "case") is None, case

    @settings(SAMPLE, max_examples=3)
    @given(sweeps.resumptions(template))
    def without(case: cases.Case) -> None:
        with sweeps.up_to_trials():
            assert cases.fault(case, tmp_path / "case") is None, case

    with_trials()
    without()


def test_what_counts_as_a_fault():
    line = "raysim: seed: 'x' is not a whole number\n"
    assert Answer(0, "").fault(False) is None
    assert Answer(0, "").fault(True) is not None
    assert Answer(2, line).fault(True) is None
    assert Answer(2, line + line).fault(False) is not None
    assert Answer(2, "Traceback\n").fault(False) is not None
    assert Answer(2, "raysim: " + "x" * 5000).fault(False) is not None
    assert Answer(1, line).fault(False) is not None
    assert Answer(None, "Traceback").fault(False) is not None


def test_a_case_that_hangs_is_noticed():
    def hang() -> None:
        while True:
            pass

    with pytest.raises(Hangs), limited(0.01):
        hang()


def test_cases_differ():
    seen: list[str] = []

    @SAMPLE
    @given(st.one_of(cases.configurations(), cases.texts(), cases.tables()))
    def each(case: cases.Case) -> None:
        seen.append(repr(case))

    each()
    assert len(set(seen)) > 5

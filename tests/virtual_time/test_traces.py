"""Traces of who is there when: what they say of a moment, and rounds of those who are there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.strategies.asynchronous.fedasync import FedAsync
from raysim.strategies.asynchronous.fedbuff import FedBuff
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.virtual_time.clock import Clock
from raysim.virtual_time.hospitals import Trace, read_trace
from raysim.virtual_time.scheduling import WAITS, ClockedScheduler
from tests.conftest import MakeFederation, run_strategy
from tests.virtual_time.unreliable import SIZES, moments, seconds, system, trace


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate(SIZES, [5, 6, 0, 8, 4, 3])


def test_only_who_is_there_is_selected_and_who_leaves_is_lost(federation, tmp_path):
    """Rounds of 4 s. Hospital 1 comes at 8, hospital 2 leaves within the second round, 3 is never there."""
    path = trace(tmp_path, "h0,0,100", "h1,8,100", "h2,0,7", "h3,,", "h4,0,100", "h5,0,4", "h5,8,100")
    here = seconds(*[4] * 6, trace=str(path))
    outcome = run_strategy(federation, FedAvg(), rounds=3, system=here)
    trained_in = {t: ids.tolist() for t, kind, ids, _, _ in outcome.ledger.entries if kind == "update"}
    assert trained_in == {1: [0, 2, 4, 5], 2: [0, 4], 3: [0, 1, 4, 5]}
    assert [row.asked for row in outcome.rounds] == [4, 3, 4]
    assert moments(outcome) == pytest.approx([4, 8, 12])


def test_the_server_waits_until_enough_are_there_and_traces_repeat(federation, tmp_path):
    path = trace(tmp_path, "h0,10,20", "h1,15,25", "h2,18,28", "h3,,", "h4,,", "h5,,")
    here = {"trace": str(path), "rows_per_second": 13.0, "rounds": {"minimum_cohort": 2}}
    outcome = run_strategy(federation, FedAvg(), rounds=30, system=system(**here, trace_period=40))
    assert moments(outcome)[0] == pytest.approx(15 + 9 / 13)
    assert moments(outcome)[-1] > 40
    with pytest.raises(ConfigError, match=r"^system.trace: after .* s fewer than 2 hospitals are available, and no"):
        run_strategy(federation, FedAvg(), rounds=30, system=system(**here))
    for strategy in (FedAsync(), FedBuff(buffer=3)):
        assert moments(run_strategy(federation, strategy, rounds=150, system=system(**here, trace_period=40)))[-1] > 80
        with pytest.raises(ConfigError, match=r"^system.trace: after .* s no hospital is available, and no hospital"):
            run_strategy(federation, strategy, rounds=300, system=system(**here))


def test_a_server_waits_in_vain_once_more_for_each_moment_at_which_somebody_comes(federation, tmp_path, monkeypatch):
    """Three come each 40 s, one after the other, never two at a time: the sixth wait begins with h1."""
    monkeypatch.setattr("raysim.virtual_time.scheduling.WAITS", 2)
    path = trace(tmp_path, "h0,5,10", "h1,15,20", "h2,25,30", "h3,,", "h4,,", "h5,,")
    here = system(trace=str(path), trace_period=40, rows_per_second=1000.0, rounds={"minimum_cohort": 2})
    with pytest.raises(
        ConfigError, match=(r"^system: fewer than 2 hospitals are available, 6 times in a row until 55 s; ")
    ):
        run_strategy(federation, FedAvg(), rounds=1, system=here)


def test_no_strategy_is_asked_for_a_cohort_while_nobody_with_rows_is_there(federate, tmp_path):
    """At first the hospital without rows is there alone; the other comes at 10 and takes 5 rows at 1 a second."""

    class Watched(FedAsync):
        def select(self, view, state, round):
            assert (view.available & (view.sizes > 0)).any()
            return super().select(view, state, round)

    path = trace(tmp_path, "h0,10,99", "h1,0,99")
    outcome = run_strategy(federate([5, 0]), Watched(), rounds=2, system=system(trace=str(path), rows_per_second=1.0))
    assert moments(outcome) == pytest.approx([15, 20])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("h0,5,", r"line 2, to"),
        ("h0,,5", r"line 2, from"),
        ("h0,5,5", r"line 2: from 5 to 5 is not an interval"),
        ("h0,-1,5", r"line 2: from -1 to 5 is not an interval"),
        ("h0,5,41", r"line 2: the value 41 of column 'to' is after the end of the period, 40; raise system\."),
        ("h1,5,6", r"line 2: no hospital is called 'h1'"),
        ("h0,,", r"has no interval for any hospital; add some"),
    ],
)
def test_lines_of_no_use_are_refused(tmp_path, line, message):
    with pytest.raises(ConfigError, match=rf"^system\.trace: .*{message}"):
        read_trace(trace(tmp_path, line), 40, ("h0",))


def test_a_trace_may_begin_at_0_and_end_with_its_period(tmp_path):
    whole = read_trace(trace(tmp_path, "h0,0,40", "h1,0,5", "h1,30,40", "h2,1,40"), 40, ("h0", "h1", "h2"))
    assert whole.carry.tolist() == [np.inf, 5, 0]
    assert whole.moments == 3
    assert whole.until(35.0).tolist() == [np.inf, 45, 40]
    with pytest.raises(ConfigError, match="has no line for hospital 'h1'; add one"):
        read_trace(trace(tmp_path, "h0,0,40"), None, ("h0", "h1"))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40)).filter(lambda pair: pair[0] < pair[1]), min_size=1, max_size=6
    ),
    st.sampled_from([40, 50, None]),
)
def test_a_trace_is_its_intervals(tmp_path_factory, intervals, period):
    lines = [f"h0,{begin},{end}" for begin, end in intervals]
    availability = read_trace(trace(tmp_path_factory.mktemp("trace"), *lines, "h1,,"), period, ("h0", "h1"))
    moments = np.arange(0, 100, 1.0)

    def there(moment):
        phase = moment if period is None else moment % period
        return any(begin <= phase < end for begin, end in intervals)

    for moment in moments:
        until, never = availability.until(moment)
        assert (until > moment) == there(moment)
        assert never == -np.inf
        if until > moment:
            assert all(there(later) for later in moments if moment <= later < until)
            assert until > 99 or not there(until)
        # Somebody comes where nobody was; in a period of 40 also at its end, who was there already.
        later = [m for m in np.arange(moment + 1, moment + 101) if there(m) and not there(m - 1)]
        first = later[0] if later else np.inf
        assert availability.following(moment) == first or (period == 40 and availability.following(moment) % 40 == 0)


@pytest.mark.parametrize("period", [0.1, 1 / 3, 0.7 * 10, 7.3, 86400.0])
def test_time_goes_on_in_periods_that_no_binary_number_is(period):
    """Somebody comes three times a period, at its beginning, and is there when the time has come."""
    begin, end = period * np.array([0.0, 0.3, 0.7]), period * np.array([0.2, 0.6, 0.9])
    daily = Trace(np.zeros(3, dtype=np.int64), begin, end, period, end[:1])
    now = 0.0
    for k in range(1, 300):
        now = daily.following(now)
        assert now == pytest.approx(period * (k // 3) + begin[k % 3], rel=1e-9)
        assert daily.until(now)[0] == pytest.approx(period * (k // 3) + end[k % 3], rel=1e-9)


def test_a_trace_of_any_period_repeats(federation, tmp_path):
    """In each period one round of all, of 2.6 s, and one of the hospital with a single row, until the others leave."""
    path = trace(tmp_path, *(f"h{i},0,3" for i in range(6)))
    for period in (7.0, 7.3):
        here = system(trace=str(path), trace_period=period, rows_per_second=5.0)
        outcome = run_strategy(federation, FedAvg(), rounds=24, system=here)
        assert [row.cohort_size for row in outcome.rounds] == [6, 1] * 12
        assert moments(outcome) == pytest.approx([period * k + ends for k in range(12) for ends in (2.6, 3.0)])


def test_it_is_waited_a_thousand_times_in_a_row_where_availability_is_sampled():
    scheduler: Any = ClockedScheduler.__new__(ClockedScheduler)
    scheduler._system, scheduler._section = SimpleNamespace(trace=None), SimpleNamespace(wait=2.0)
    scheduler.clock = Clock.zero(1).at(3.0, WAITS - 1)
    scheduler._wait("nobody is there")
    assert (scheduler.clock.now, scheduler.clock.waits) == (5.0, WAITS)
    with pytest.raises(ConfigError, match=f"nobody is there, {WAITS + 1} times in a row until 5 s"):
        scheduler._wait("nobody is there")

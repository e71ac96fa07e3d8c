"""Client programs: sums to the last bit, memory as a transaction, and one line for each thing that is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.secure import SecureSection
from raysim.config.sections.system import SystemSection
from raysim.core.errors import ConfigError, HospitalFailed, StrategyError
from raysim.data.federation import Federation
from raysim.engine.job import Job, Outcome
from raysim.engine.messages.program_sums import SumLayout
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.storage.encoding import decode, encode
from raysim.strategies.base import Bound, Reply, Send
from raysim.strategies.regressions.newton import Newton
from raysim.strategies.selections.sampling import Uniform
from tests.conftest import MakeFederation, job_of, run, run_strategy, store
from tests.engine.probing import AtOnce, BoundedSums, CallsWrong, Means, Probe, Training
from tests.equality import same_models


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate([9, 4, 13, 0, 1, 6, 8], features=4)


def run_once(federation: Federation, job: Job, since: RunState | None = None) -> tuple[Outcome, list[RunState]]:
    pool = LocalPool(Placement(balance(federation.totals, 3), 1, 0), "cpu")
    *events, outcome = JobRun(pool, job, since).events(1)
    assert isinstance(outcome, Outcome)
    return outcome, [event for event in events if isinstance(event, RunState)]


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_neither_placement_nor_grouping_changes_a_bit(federation: Federation, precision: str):
    how = {"precision": precision, "selection": Uniform(0.7, 2)}
    alone = run_strategy(federation, Probe(), **how)
    for actors in (2, 7):
        same_models(alone, run_strategy(federation, Probe(), actors=actors, **how))
    for together in (0, 1, 2, 7):
        same_models(alone, run_strategy(federation, Probe(fused=together), actors=2, **how))
    assert np.abs(alone.models).max() > 0.01
    assert set(alone.own_models) <= {0, 1, 2, 4, 5, 6}


def test_a_run_goes_on_from_any_of_its_checkpoints(federation: Federation):
    job = job_of(federation, Probe(), selection=Uniform(0.7, 2), rounds=4)
    whole, checkpoints = run_once(federation, job)
    for state in checkpoints[:3]:
        since, _ = decode(encode(state, "run", job.strategy), job.strategy)
        again = run_from(federation, job, since)
        same_models(whole, again)
        assert [entry[:2] for entry in again.ledger.entries] == [entry[:2] for entry in whole.ledger.entries]


def run_from(federation: Federation, job: Job, since: RunState) -> Outcome:
    """The rest of a run, with other actors."""
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    *_, outcome = JobRun(pool, job, since).events()
    assert isinstance(outcome, Outcome)
    return outcome


def test_masked_sums_have_the_same_bits(federation: Federation):
    plain = run_strategy(federation, Probe(each=False))
    for mode, actors in (("model", 1), ("execute", 1), ("execute", 3)):
        job = replace(job_of(federation, Probe(each=False)), secure=SecureSection(mode=mode))
        check_job(job, federation)
        outcome = run(federation, job, actors)
        same_models(plain, outcome)
        assert outcome.facts["secure_sums"] == 9
    assert sum(row.bytes_up for row in outcome.rounds) > sum(row.bytes_up for row in plain.rounds)


def test_a_hospital_that_is_lost_remembers_nothing_of_the_round(federation: Federation):
    secure = SecureSection(mode="execute", minimum=3, drop={"mask": 0.3})
    job = replace(job_of(federation, Probe(each=False), rounds=4), secure=secure)
    outcome, checkpoints = run_once(federation, job)
    calls = np.array([[int((c.states or {}).get(h, {}).get("kept calls", 0)) for h in range(7)] for c in checkpoints])
    made = np.diff(calls, axis=0, prepend=0)
    assert set(made[:, [0, 1, 2, 4, 5, 6]].ravel().tolist()) == {0, 2}, "both calls of a round, or none"
    model = replace(job, secure=SecureSection(mode="model", minimum=3, drop={"mask": 0.3}))
    same_models(outcome, run(federation, model, 2))


def test_each_is_refused_where_sums_are_hidden(federation: Federation):
    job = replace(job_of(federation, Probe()), secure=SecureSection())
    line = (
        r"^secure.mode: 'model' hides what each hospital sends, and strategy 'Probe', round 1, program 'probe' needs 'l"
    )
    with pytest.raises(ConfigError, match=line):
        run(federation, job, 1)


def test_rows_add_up_to_the_same_bits_pooled_and_federated(federation: Federation):
    apart, together = (
        run_strategy(federation, Means(), rounds=1),
        run_strategy(federation, Means(pooled=True), rounds=1),
    )
    np.testing.assert_array_equal(apart.models, together.models)
    rows = np.concatenate([federation.X[federation.rows(h, "train")] for h in range(7)]).astype(np.float64)
    np.testing.assert_allclose(apart.models[0], [*rows.sum(axis=0), 41], atol=1e-11)
    assert {kind for _, kind, _, _, _ in together.ledger.entries} == {"size", "rows", "metrics"}


@pytest.mark.parametrize("unit", ["row", "patient", "hospital"])
def test_one_unit_moves_a_sum_by_its_bound_at_most(federation: Federation, unit):
    """Rows, patients (of two rows each) or hospitals are shortened by hand; what is not a number counts nowhere."""
    np.save(federation.folder / "people.npy", np.arange(len(federation.y)) // 2)
    federation = Federation.open(federation.folder)
    length, total, cut = 0.9, np.zeros(4), 0
    for h in range(7):
        rows = federation.rows(h, "train")
        X = federation.X[rows].astype(np.float64)
        if h == 0:
            X[0] = np.inf
        people = {"row": np.arange(len(X)), "patient": federation.people[rows], "hospital": np.zeros(len(X))}[unit]
        for person in np.unique(people):
            added = X[people == person].sum(axis=0)
            norm = np.linalg.norm(added)
            cut += int(norm > length)
            total += 0 if not np.isfinite(added).all() else added * min(1, length / norm)
    outcome = run_strategy(federation, BoundedSums(Bound(unit, length)), rounds=1, actors=3)
    np.testing.assert_allclose(outcome.models[0, :4], total, atol=1e-11)
    assert cut > 2


def test_a_bound_that_does_not_fit_is_refused(federation: Federation):
    with pytest.raises(StrategyError, match=r"program 'bounded': sum.bound.l2: 0 is not a number above 0"):
        run_strategy(federation, BoundedSums(Bound("row", 0)))


def test_what_leaves_is_counted_by_kind(federation: Federation):
    outcome = run_strategy(federation, Probe(), rounds=1)
    sent = {kind: bytes for t, kind, _, bytes, _ in outcome.ledger.entries if t == 1 and kind != "metrics"}
    assert {kind: set(each.tolist()) for kind, each in sent.items()} == {
        "update": {8 * 2 * 5},
        "size": {8},
        "moments": {16},
        "loss": {8},
        "squares": {40},
    }
    (row,) = outcome.rounds
    assert row.bytes_up == 6 * (2 * (80 + 8 + 16 + 8) + 40)
    assert row.bytes_down == 6 * (2 * 40 + 8)
    assert row.cohort_size == 6


LINES = {
    "undeclared": r"secret: is not declared in sends \(total, rows\); declare or remove it",
    "missing": "total: is declared in sends, but the program did not return it; return it, or do not declare it",
    "shape": r"total: has shape \[3\] but \[2\] is declared",
    "nan": "total: has an entry that is not finite; send finite numbers",
    "large": "total: an entry has the magnitude 1000, but 'largest' in its Send allows only magnitudes below 1000; .*",
    "memory": r"other: is not declared in keeps \(state\); declare or remove it",
    "memory shape": r"state: has shape \[3\] but \[2\] is declared",
    "group": "group: 1 is not the number of a sum; sums are numbered 0 to 0",
    "text": "total: has values of type <U1; give numbers",
    "returns": "run: returns a? ?.*; return a Reply",
    "group text": "group: '0' is not the number of a sum; sums are numbered 0 to 0",
    "ragged": r"total: a list cannot be made into an array \(ValueError\); give numbers",
    "unnamed": "sent: is of type list; give a mapping whose keys are texts",
    "unnamed memory": "memory: is of type list; give a mapping whose keys are texts",
    "complex": "total: has values of type complex128; give numbers",
    "each large": "total: an entry has the magnitude 1, but 'largest' in its Send allows only magnitudes below 1; .*",
}


@pytest.mark.parametrize("what", LINES)
def test_a_wrong_reply_ends_the_run_with_one_line(federation: Federation, what: str):
    line = rf"^strategy 'CallsWrong', round 1, program 'wrong', hospital 'h0': {LINES[what]}$"
    with pytest.raises(StrategyError, match=line):
        run_strategy(federation, CallsWrong(what))


def test_what_is_wrong_at_one_hospital_names_it(federation: Federation):
    line = r"^strategy 'CallsWrong', round 1, program 'wrong', hospital 'h2': total: has shape \[3\] but \[2\] is decl"
    with pytest.raises(StrategyError, match=line):
        run_strategy(federation, CallsWrong("one hospital"))


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("few together", "run_many: returns 5 results for 6 hospitals; return one for each"),
        ("raises together", "run_many: ValueError: no"),
    ],
)
def test_what_is_wrong_for_hospitals_together_names_the_program(federation: Federation, what: str, line: str):
    with pytest.raises(StrategyError, match=rf"^strategy 'CallsWrong', round 1, program 'wrong': {line}$"):
        run_strategy(federation, CallsWrong(what))


CALLS = {
    "sends": "program 'wrong': sends: is of type list; give a mapping whose keys are texts",
    "no names": "program 'wrong': received: is of type list; give a mapping whose keys are texts",
    "largest": "program 'wrong': total.largest: nan is not a number above 0",
    "kind": "program 'wrong': total.kind: 3 is not of type str; give a value of this type",
    "huge": "program 'wrong': total.shape: 4294967296 bytes are more than the limit of 2147483648; send less",
    "dtype": "program 'wrong': state.dtype: 'O' is not a type of numbers; write f8, for example",
    "nothing": "program 'wrong': it sends nothing and keeps nothing, so its result would be lost; declare what it "
    "sends",
    "validates": "program 'wrong': it reads validation rows and must therefore send nothing; leave validates or sends "
    "out",
    "overflow": r"program 'wrong': total.largest: with 1.04858e\+06 a sum of 6 terms, stored in 64 bits in "
    r"steps of 2\^-44, can overflow; give at most 43690.7, or fewer bits",
    "strangers": "select: 7 is not a hospital's id; give ids from 0 to 6",
    "received": r"program 'wrong': received\['theta'\] is an array \[1\] of <U1; send numbers",
    "each_of text": r"program 'wrong': each_of\['theta'\] is an array \[1\] of <U1; send numbers",
    "each_of": r"program 'wrong': each_of 'theta' has shape \[1\]; its first length must be 6, the number of hospitals "
    "in ids",
    "answer": r"round: yields Wrong\(what='answer', name='wrong'\); yield a Call",
    "state": "state: None is not a State; return one",
    "forever": "round: made more than 1000 calls without returning a state; return a state",
}


@pytest.mark.parametrize("what", CALLS)
def test_a_wrong_call_ends_the_run_with_one_line(federation: Federation, what: str):
    with pytest.raises(StrategyError, match=rf"^strategy 'CallsWrong', round 1: {CALLS[what]}$"):
        run_strategy(federation, CallsWrong(what))


def test_a_round_that_is_no_generator_is_refused(federation: Federation):
    with pytest.raises(
        StrategyError, match="round: returns State instead of yielding; yield a Call, and return the state"
    ):
        run_strategy(federation, AtOnce())


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("raises", "ValueError: the parameters have shape .1., but the model needs shape .5."),
        ("writes", "ValueError: assignment destin"),
        (
            "peeks",
            "ValueError: validation: only a program with validates = True can read validation rows, and not pooled "
            "ones; set validates = True in its class",
        ),
        ("writes memory", "TypeError: 'mappingproxy' object does not support item assignment"),
        ("writes received", "TypeError: 'mappingproxy' object does not support item assignment"),
        ("purpose", "TypeError: rng: the purpose is of type object; give a text"),
    ],
)
def test_an_error_of_a_program_names_where_it_ran(federation: Federation, what: str, line: str):
    where = "hospital 'h0' failed while running strategy 'CallsWrong', round 1, program 'wrong': "
    with pytest.raises(HospitalFailed, match=where + line):
        run_strategy(federation, CallsWrong(what))


@pytest.mark.parametrize("actors", [1, 3])
def test_an_attack_on_rows_is_that_of_hospitals_with_other_rows(federation: Federation, tmp_path, actors: int):
    """Wrong labels at bad hospitals give the bits of a federation whose files have these labels."""
    job = replace(job_of(federation, Newton()), adversary=AdversarySection(attack="label_flip", share=0.5, rows=1.0))
    attacked = run(federation, check_job(job, federation), actors)
    y, bounds = federation.y.copy(), federation.bounds
    for hospital in attacked.bad.tolist():
        y[federation.rows(hospital, "train")] = 1 - y[federation.rows(hospital, "train")]
    flipped = store(tmp_path, federation.X, y, bounds)
    same_models(attacked, run(flipped, job_of(flipped, Newton()), 1))
    assert (attacked.models != run(federation, job_of(federation, Newton()), 1).models).any()
    assert attacked.facts["largest_bad_share"] == (federation.sizes("train")[attacked.bad] > 0).sum() / 6


def test_sections_about_updates_are_refused(federation: Federation):
    job = job_of(federation, Probe())
    for section, changed in {
        "adversary": replace(job, adversary=AdversarySection(attack="sign_flip", share=0.2)),
        "system": replace(job, system=SystemSection()),
    }.items():
        with pytest.raises(ConfigError, match=rf"^{section}: .* strategy 'Probe' uses client programs; remove"):
            check_job(changed, federation)


@settings(max_examples=30)
@given(
    shapes=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=1, max_size=4),
    hospitals=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_sums_of_any_shapes_come_back_by_name_and_group(shapes, hospitals: int, seed: int):
    rng = np.random.default_rng(seed)

    class Any(Training):
        sends = {f"s{i}": Send((length,), groups=groups) for i, (length, groups) in enumerate(shapes)}  # noqa: RUF012

    layout = SumLayout(Any(1))
    total, due = np.zeros(layout.size, np.int64), dict.fromkeys(Any.sends, 0.0)
    least = min(send.groups for send in Any.sends.values())
    for _ in range(hospitals):
        sent = {name: rng.integers(-9, 9, send.shape) / 8 for name, send in Any.sends.items()}
        group = int(rng.integers(0, least))
        total += layout.units(Reply(sent, group=group))
        for name, send in Any.sends.items():
            one_hot = np.eye(send.groups)[group if send.groups > 1 else 0]
            due[name] = due[name] + one_hot[:, None] * sent[name]
    sums, counts = layout.values(total)
    assert counts.sum() == hospitals
    for name, send in Any.sends.items():
        np.testing.assert_array_equal(sums[name].reshape(send.groups, *send.shape), due[name])

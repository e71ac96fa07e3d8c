"""Checks of all but a problem: cohorts, states, models used, and what else strategies and selections return."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import raysim
from raysim.strategies import base
from raysim.strategies.base import (
    MIXTURE,
    OWN,
    POOLED,
    Asynchrony,
    Draw,
    Invalid,
    LocalProblem,
    LocalTraining,
    Selection,
    State,
    Strategy,
    Update,
    Upload,
    choose,
)
from raysim.strategies.checks import answers
from raysim.strategies.checks.problem import check_personal
from raysim.strategies.checks.values import check_rows, short_form
from raysim.strategies.one_model.scaffold import CorrectedTraining
from tests.engine.probing import Beside
from tests.strategies.contexts import hospital, view_of
from tests.strategies.test_problem_checks import IDS, KEPT, RIGHT, START, VIEW, problem


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([0, 1], "select: [0, 1] is not an array of ids; return ascending ids, or [POOLED]"),
        (np.array([True, False]), "select: an array [2] of bool is not an array of ids"),
        (np.array([[0, 1]]), "select: an array [1, 2] of int64 is not an array of ids"),
        (np.array([1, 0]), "select: the ids are not ascending, or contain duplicates"),
        (np.array([0, 3, 2]), "select: the ids are not ascending, or contain duplicates"),
        (np.array([1, 1]), "select: the ids are not ascending, or contain duplicates"),
        (np.array([1, 5]), "select: 5 is not a hospital's id; give ids from 0 to 4"),
        (np.array([POOLED, 1]), "select: -1 is not a hospital's id; give ids from 0 to 4"),
    ],
)
def test_a_cohort_that_is_none(ids, message):
    for right in (IDS, IDS[:0], np.array([POOLED]), np.arange(5)):
        answers.check_cohort(right, 5)
    with pytest.raises(Invalid) as raised:
        answers.check_cohort(ids, 5)
    assert str(raised.value).startswith(message)


MODELS = np.zeros((2, 4))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (MODELS, "state: an array [2, 4] of float64 is not a State; return one"),
        (State([[0.0] * 4]), "models: [[0.0, 0.0, 0.0, 0.0]] is not a float array [M, 4]; give a row for each model"),
        (State(MODELS[0]), "models: an array [4] of float64 is not a float array [M, 4]"),
        (State(MODELS.astype(np.int64)), "models: an array [2, 4] of int64 is not a float array [M, 4]"),
        (State(MODELS[:0]), "models: has no rows; give at least row 0, the global model"),
        (State(MODELS[:, 1:]), "models: the rows have 3 parameters; give each row the 4 parameters of a model"),
        (State(MODELS + np.array([[0.0], [np.nan]])), "models: row 1 is not finite; take smaller steps at the server"),
        (State(MODELS + np.array([[0, 0, 0, 0], [0, np.inf, 0, 0]])), "models: row 1 is not finite"),
        (State(MODELS, cluster=np.array([0, 1])), "cluster: has 2 values"),
        (State(MODELS, cluster=np.array([0, 1, 2, 1, 1])), "cluster: 2 is not a row of state.models; give 0 to 1"),
        (
            State(MODELS, cluster=np.array([0, 1, OWN, 1, 1])),
            "cluster: -2 is not a row of state.models; give 0 to 1",
        ),
    ],
)
def test_a_state_that_does_not_fit(state, message):
    answers.check_state(State(MODELS, cluster=np.array([0, 1, 1, 1, 0])), VIEW)
    with pytest.raises(Invalid) as raised:
        answers.check_state(state, VIEW)
    assert str(raised.value).startswith(message)


EVERYONE = np.zeros(5, dtype=np.int64)


@pytest.mark.parametrize(
    ("serve", "groups", "message"),
    [
        (None, None, "serve: None names no model"),
        ({}, None, "serve: {} names no model"),
        ({"global": 0}, None, "serve.global: 0 is not an array; give an array of whole numbers"),
        ({"global": EVERYONE[1:]}, None, "serve.global: has 4 values"),
        (
            {"global": EVERYONE, "mine": EVERYONE + 2},
            None,
            "serve.mine: 2 is not a row of state.models; give 0 to 1, or OWN",
        ),
        ({"mine": EVERYONE + MIXTURE}, None, "serve.mine: -3 is not a row of state.models; give 0 to 1, or OWN"),
        (
            {"group": np.zeros((5, 2), np.int64)},
            None,
            "serve.group: has a column for each group of rows, but division returns None",
        ),
        ({"group": np.zeros((5, 2), np.int64)}, 3, "serve.group: has shape [5, 2]"),
    ],
)
def test_models_served_that_are_not_there(serve, groups, message):
    answers.check_serve({"global": EVERYONE, "personal": EVERYONE + OWN, "cluster": EVERYONE + 1}, VIEW, 2, None)
    answers.check_serve({"group": np.ones((5, 3), np.int64)}, VIEW, 2, 3)
    with pytest.raises(Invalid) as raised:
        answers.check_serve(serve, VIEW, 2, groups)
    assert str(raised.value).startswith(message)


def test_what_else_a_strategy_returns():
    answers.check_mixture(None, 5, 2)
    answers.check_mixture(np.ones((5, 2)), 5, 2)
    with pytest.raises(
        Invalid, match=r"^mixture: has shape \[5, 3\]; give .*, one for each of 5 hospitals and 2 columns$"
    ):
        answers.check_mixture(np.ones((5, 3)), 5, 2)
    with pytest.raises(Invalid, match=r"^mixture: 0\.5 is not an array; .* one for each of 5 hospitals and 2 columns$"):
        answers.check_mixture(0.5, 5, 2)
    answers.check_private(None, 4)
    answers.check_private(np.ones(4, np.bool_), 4)
    with pytest.raises(Invalid, match=r"^private: has 3 values; .* one for each of 4 parameters$"):
        answers.check_private(np.ones(3, np.bool_), 4)
    answers.check_asynchrony(None)
    answers.check_asynchrony(Asynchrony(1, 1))
    with pytest.raises(Invalid, match=r"^asynchrony\.concurrency: 0 is not a whole number of at least 1"):
        answers.check_asynchrony(Asynchrony(0, 1))
    with pytest.raises(Invalid, match=r"^asynchrony\.buffer: 0 is not a whole number of at least 1"):
        answers.check_asynchrony(Asynchrony(1, 0))
    answers.check_facts({})
    answers.check_facts({"gap": np.float64(0.5), "n": 3})
    with pytest.raises(Invalid, match=r"^facts\.gap: 'none' is not a number$"):
        answers.check_facts({"gap": "none"})
    for wrong in (None, {0: 1.0, "gap": 1.0}):
        with pytest.raises(Invalid, match=r"^facts: .* is not a mapping of names to numbers"):
            answers.check_facts(wrong)
    assert answers.check_division(None) is None
    for groups in (1, 3):
        assert answers.check_division(SimpleNamespace(count=groups)) == groups
    for count in (0, None, 1.5):
        with pytest.raises(Invalid, match=r"^division\.count: .* is not a number of groups; give at least 1$"):
            answers.check_division(SimpleNamespace(count=count))
    check_personal(problem(upload=None, training=KEPT))
    with pytest.raises(Invalid, match=r"^upload: nothing is aggregated after the last round"):
        check_personal(problem(upload=None, then=RIGHT))


@dataclass(frozen=True)
class Picks(Selection):
    ids: tuple[int, ...] | None = None

    def pick(self, draw: Draw) -> Any:
        return None if self.ids is None else np.array(self.ids, dtype=np.int64)


def view(selection: Selection, **parts: Any) -> Any:
    rng = np.random.default_rng(0)
    plain = SimpleNamespace(
        available=None,
        sizes=VIEW.sizes,
        selection=selection,
        memory=None,
        rng=lambda *key: rng,
        noisy=lambda kind: False,
    )
    return SimpleNamespace(**vars(plain) | parts)


def test_a_selection_picks_ascending_ids_out_of_its_candidates():
    state = State(MODELS)
    assert choose(view(Picks((2, 3))), state, IDS, "sample", 1).tolist() == [2, 3]
    assert choose(view(Picks((0, 3))), state, IDS, "sample", 1).tolist() == [0, 3]
    assert choose(view(Picks(())), state, IDS, "sample", 1).tolist() == []
    for wrong in (Picks((0, 1)), Picks((3, 0)), Picks((0, 3, 2)), Picks((2, 2)), Picks((4,)), Picks()):
        with pytest.raises(
            Invalid, match=r"^select: selection Picks picks .*; pick ascending ids out of the candidates"
        ):
            choose(view(wrong), state, IDS, "sample", 1)

    class Halves(Picks):
        def pick(self, draw: Draw) -> Any:
            return np.array([0.0, 3.0])

    with pytest.raises(Invalid, match=r"^select: selection Halves picks array\(\[0\., 3\.\]\)"):
        choose(view(Halves()), state, IDS, "sample", 1)


def test_a_draw_is_among_those_who_are_there_with_their_rows_and_their_losses():
    """Hospitals 0 and 3 start from row 0 and 2 from row 1; where others start does not matter."""
    state, start = State(np.array([[0.0] * 4, [7.0] * 4])), np.array([0, OWN, 1, 0, OWN])
    draws: list[Draw] = []

    class Listens(Selection):
        def pick(self, draw: Draw) -> Any:
            draws.append(draw)
            return draw.candidates

    def call(call: Any) -> Any:
        return SimpleNamespace(each={"loss": 10 * call.received["models"][0, :1] + call.ids[:, None]})

    listening = view(Listens(), call=call)
    assert choose(listening, state, IDS, "sample", 1, start=start).tolist() == [0, 2, 3]
    choose(listening, state, IDS, "sample", 1)
    assert [draw.losses(IDS).tolist() for draw in draws] == [[0, 72, 3], [0, 2, 3]]
    assert draws[0].losses(IDS[1:2]).tolist() == [72]
    assert draws[0].sizes.tolist() == [5, 3, 9]
    there = view(Listens(), available=np.array([False, False, True, False, True]))
    assert choose(there, state, IDS, "sample", 1).tolist() == [2]
    with pytest.raises(
        Invalid, match=(r"^start: has OWN, MIXTURE or LAST, but a selection needs rows of state.models; give only")
    ):
        choose(listening, state, IDS, "sample", 1, start=np.array([0, 0, OWN, 0, 0]))


def test_weights_and_states_are_distinguished_from_problems_without():
    assert base.shares(np.array([1])).tolist() == [1]
    assert base.shares(np.array([0, 0])).tolist() == [0, 0]
    sums = np.zeros((1, 4))
    assert base.sent_weights(Update(IDS, sums, problem=RIGHT)) is RIGHT.upload.weight
    for nothing in (None, problem(upload=None, training=KEPT), problem(upload=Upload(single=True))):
        with pytest.raises(
            TypeError, match=r"^update: has no weights of hospitals; let problem\(\) return a LocalProblem with Upload"
        ):
            base.sent_weights(Update(IDS, sums, problem=nothing))
    with pytest.raises(TypeError, match=r"^state: is of type State; pass the Other that setup returned$"):
        base.own_state(State(MODELS), Other)
    assert base.own_state(Other(MODELS), State).models is MODELS


class Other(State):
    """That of another strategy."""


def test_who_can_train_and_who_is_there():
    some = view_of([hospital([1, 0]), hospital([0, 0]), hospital([2, 0]), hospital([0, 1])])
    assert some.trainable.tolist() == some.present.tolist() == [0, 2, 3]
    assert replace(some, available=np.array([True, True, False, True])).present.tolist() == [0, 3]


def test_a_hospital_remembers_what_any_problem_of_a_chain_keeps():
    kept = LocalProblem(START, training=KEPT)
    carried = LocalTraining(carry=True)
    assert [problem(training=training).keeps for training in (LocalTraining(), KEPT, carried)] == [False, True, True]
    assert problem(program=CorrectedTraining(4, "steps")).keeps
    assert not problem(program=Beside(4, (2,))).keeps
    assert problem(then=kept).keeps
    assert problem(then=kept).sent is RIGHT.upload
    assert problem(upload=None, then=problem(then=kept)).sent is RIGHT.upload


def test_the_usual_aggregation_adds_a_sum_to_each_model_and_not_one_to_all():
    state, sums = State(MODELS), np.arange(8.0).reshape(2, 4)
    assert Strategy().aggregate(VIEW, state, Update(IDS, sums)).models.tolist() == sums.tolist()
    with pytest.raises(Invalid, match=r"^upload\.sums: 1 is not the number of models, 2; give"):
        Strategy().aggregate(VIEW, state, Update(IDS, sums[:1]))


def test_all_that_an_author_needs_is_in_the_package():
    for name in raysim.__all__:
        if hasattr(base, name):
            assert getattr(raysim, name) is getattr(base, name)
    needed = {
        "Strategy",
        "LocalProblem",
        "Objective",
        "LocalTraining",
        "Upload",
        "Proximal",
        "RowGroups",
    }
    needed |= {"State", "Update", "FederationView", "Selection", "Draw", "Division"}
    needed |= {"Program", "Send", "Keep", "Bound", "Call", "Reply", "Context", "Answers"}
    assert needed | {"OWN", "MIXTURE", "LAST", "POOLED"} <= set(raysim.__all__)


def test_a_view_is_of_before_the_first_round_and_hides_nothing_unless_it_says_so():
    left_out = {field.name: field.default for field in fields(base.FederationView) if field.default is not MISSING}
    assert not left_out.pop("noisy")("size")
    assert left_out == {
        "columns": 0,
        "stop": None,
        "checked": None,
        "measured": frozenset(),
        "available": None,
        "staleness": None,
        "round_seconds": None,
        "round": 0,
        "rounds": 0,
        "most_calls": 0,
        "link": "identity",
        "hides": False,
        "optimizer": "sgd",
        "momentum": 0.0,
        "batch_size": 0,
        "noise": None,
        "trees": None,
        "ranges": (),
        "least_members": 1,
    }


def test_a_label_has_two_classes_and_no_patients_are_known_unless_they_say_so():
    assert base.Training({}, "sgd").classes == 2
    rows = hospital([1, 1]).rows
    assert (rows.weights, rows.patients()) == (None, {})


def test_a_federation_is_there_and_hides_nothing_unless_it_says_so():
    view = view_of([hospital([1, 1])])
    assert not Selection.uses_losses
    assert (view.round, view.hides, view.least_members) == (0, False, 1)
    assert (view.available, view.staleness, view.round_seconds, view.measured) == (None, None, None, frozenset())


def test_what_is_wrong_is_shown_up_to_forty_characters():
    assert short_form("x" * 38) == repr("x" * 38)
    assert short_form("x" * 39) == "a str"


def test_rows_of_the_models_of_the_server():
    check_rows("start", np.zeros(0, dtype=np.int64), 2)
    check_rows("start", np.array([0, 1]), 2)
    check_rows("start", np.array([1, base.OWN]), 2, base.OWN, base.LAST)
    for wrong in ([0, 2], [-1, 0], [base.LAST, 1]):
        with pytest.raises(base.Invalid, match=r"^start: -?\d is not a row of state\.models; give 0 to 1, or OWN$"):
            check_rows("start", np.array(wrong), 2, base.OWN)

"""What a round costs, entry by entry: bytes down and up of problems of each kind, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from raysim.strategies.base import (
    LAST,
    MIXTURE,
    OWN,
    POOLED,
    Call,
    LocalProblem,
    LocalTraining,
    MeanLoss,
    Objective,
    Proximal,
    RowGroups,
    State,
    Upload,
)
from raysim.strategies.one_model.fedavg import FedAvg
from raysim.traffic.exchange import Traffic
from raysim.traffic.ledger import Bytes, Ledger, downlink, named_rows, record_training
from tests.engine.probing import Beside
from tests.strategies.contexts import hospital, view_of

IDS = np.array([1, 4, 7])
PLAIN = LocalProblem(start=np.array([0, 2, 0]), upload=Upload(np.ones(3)))
GROUPS = LocalProblem(
    start=np.array([1, 2, 1, 0]),
    upload=Upload(np.ones(4)),
    groups=RowGroups(np.array([1, 1, 4, 7]), np.array([0, 1, 0, 1]), np.array([3, 3, 3, 3])),
)
VARIATES = replace(PLAIN, program=Beside(5, (5,), "variate"), received={"variate": np.zeros(5)})
CHOSEN = LocalProblem(
    start=np.full(3, OWN),
    upload=Upload(np.ones(3), sums=2),
    program=Beside(5, (2,), sums=2),
    received={"models": np.zeros((2, 5))},
)


def recorded(problem: LocalProblem, ids: np.ndarray = IDS, **keys) -> tuple[tuple[int, int], list]:
    """Bytes down and up, and the entries, of a model of five scalars out of a models of three."""
    ledger = Ledger()
    both = record_training(ledger, 2, ids, problem, 5, 3, keys.pop("losses", False), **keys)
    return both, [(t, kind, who.tolist(), sent.tolist()) for t, kind, who, sent, _ in ledger.entries]


def test_a_model_goes_down_and_a_vector_and_the_number_of_rows_come_up():
    assert recorded(PLAIN) == ((60, 72), [(2, "update", [1, 4, 7], [24, 24, 24])])
    assert recorded(PLAIN, losses=True) == ((60, 84), [(2, "update", [1, 4, 7], [28, 28, 28])])
    assert recorded(replace(PLAIN, upload=None, training=LocalTraining(keep=True))) == ((60, 0), [])
    assert recorded(PLAIN, np.array([POOLED])) == ((0, 0), [])


def test_a_hospital_that_trains_on_groups_sends_a_vector_for_each_and_no_number():
    """The first has two groups, with a model each; the others have one."""
    ids = GROUPS.entries(IDS)
    assert recorded(GROUPS, ids) == ((80, 80), [(2, "update", [1, 4, 7], [40, 20, 20])])
    assert recorded(GROUPS, ids, losses=True) == ((80, 96), [(2, "update", [1, 4, 7], [48, 24, 24])])
    alike = replace(GROUPS, start=np.array([1, 1, 1, 0]))
    assert recorded(alike, ids)[0] == (60, 80)


def test_compressed_vectors_have_their_own_bytes():
    sizes = {"vector_bytes": np.array([9, 10, 11])}
    assert recorded(PLAIN, **sizes) == ((60, 42), [(2, "update", [1, 4, 7], [13, 14, 15])])
    assert recorded(PLAIN, losses=True, **sizes) == ((60, 54), [(2, "update", [1, 4, 7], [17, 18, 19])])
    of_groups = recorded(GROUPS, GROUPS.entries(IDS), vector_bytes=np.array([9, 10, 11, 12]))
    assert of_groups == ((80, 42), [(2, "update", [1, 4, 7], [19, 11, 12])])


def test_a_control_variate_travels_both_ways():
    update, variate = (2, "update", [1, 4, 7], [24] * 3), (2, "variate", [1, 4, 7], [20] * 3)
    assert recorded(VARIATES) == ((120, 132), [update, variate])


def test_who_chooses_receives_all_models_and_sends_a_vector_and_a_count_for_each():
    assert recorded(CHOSEN) == ((120, 156), [(2, "update", [1, 4, 7], [4 * (10 + 2 + 1)] * 3)])


def test_each_row_that_is_named_comes_once():
    proximal = (Proximal(np.array([0.5, 0.0, 1.0]), np.array([1, 1, 0])), Proximal(0.0, np.array([2, 2, 2])))
    with_proximal = replace(PLAIN, objective=Objective(proximal=proximal))
    assert named_rows(with_proximal).tolist() == [[0, 1, OWN], [2, OWN, OWN], [0, 0, OWN]]
    assert downlink(with_proximal, 5, 3).tolist() == [10, 5, 5]
    chain = LocalProblem(start=np.array([OWN, 2, MIXTURE]), then=LocalProblem(start=np.array([1, LAST, LAST])))
    assert named_rows(chain).tolist() == [[OWN, 1], [2, LAST], [MIXTURE, LAST]]
    assert downlink(chain, 5, 3).tolist() == [5, 5, 15]
    assert downlink(CHOSEN, 5, 3).tolist() == [10, 10, 10]


def test_a_ledger_adds_up_what_is_traffic():
    ledger = Ledger()
    assert ledger.add(0, "sizes", np.array([0, 1, 2]), 1) == 12
    assert ledger.add(2, "update", np.array([0, 2]), np.array([5, 6])) == 44
    assert ledger.add_bytes(2, "update", np.array([2]), np.array([7])) == 7
    assert ledger.add(2, "metrics", np.array([0, 1, 2]), 9) == 108
    assert ledger.add(3, "predictions", np.array([0]), 9) == 36
    assert ledger.sent_by_round() == {0: 12, 2: 51}
    assert [ledger.sent(t) for t in range(4)] == [12, 0, 51, 0]
    assert [ledger.times(kind) for kind in ("update", "sizes", "metrics", "nothing")] == [2, 1, 1, 0]
    assert (Bytes(3, 4).both, Bytes().both) == (7, 0)


@pytest.mark.parametrize("kind", ["metrics", "predictions"])
def test_metrics_for_the_experimenter_are_no_traffic(kind: str):
    ledger = Ledger()
    ledger.add(1, kind, IDS, 2)
    assert ledger.sent_by_round() == {}


class Mixing(FedAvg):
    """Three hospitals mix the second and the third of three models."""

    def mixture(self, view, state):
        return np.array([[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


def test_who_tells_validation_losses_receives_each_model_once_and_a_mixture_s_models():
    """Five scalars a model; a loss is four scalars for each way of serving."""
    view, state = view_of([hospital([1, 1])] * 2), State(np.arange(15.0).reshape(3, 5))
    exchange = Traffic(Ledger(), Mixing(), view, 5, losses=False)
    everyone = np.array([0, 1])
    both = {"global": np.array([0, 0]), "cluster": np.array([0, MIXTURE])}
    received, sent = exchange.checked(everyone, both, False, state)
    assert (received.tolist(), sent.tolist()) == ([20, 20 + 2 * 20], [32, 32])
    assert exchange.setup_down == 80
    assert exchange.ledger.sent(0) == 64
    exchange.begin(1)
    personal = {"personal": np.array([OWN, 2])}
    assert exchange.checked(everyone, personal, True, state)[0].tolist() == [20, 20]
    assert exchange.checked(everyone, personal, False, state)[0].tolist() == [0, 20]
    assert exchange.setup_down == 80


def test_who_was_asked_about_a_model_is_not_sent_it_again():
    """Two scalars travel with the program, five are a model; rows 0 and 2 of the models are shown."""
    view, state = view_of([hospital([1, 1])] * 3), State(np.arange(15.0).reshape(3, 5))
    exchange = Traffic(Ledger(), Mixing(), view, 5, losses=False)
    exchange.begin(1)
    call = Call(MeanLoss(2), {"models": state.models[[0, 2]], "more": np.zeros(2)}, np.array([0, 1]))
    received, sent = exchange.answered(call)
    assert (received.tolist(), sent.tolist(), exchange.down, exchange.up) == ([48, 48], [8, 8], 96, 16)
    ids = np.array([0, 1, 2])
    for start, down, held in (([0, 1, 2], [0, 20, 20], [1, 0, 0]), ([MIXTURE, 2, MIXTURE], [40, 0, 40], [0, 1, 0])):
        problem = LocalProblem(start=np.array(start), upload=Upload(np.ones(3)))
        assert exchange.exchanged(ids, problem, state)[0].tolist() == down
        assert exchange.models_held.tolist() == held
    exchange.in_vain(7, [], state)
    assert exchange.down == 103

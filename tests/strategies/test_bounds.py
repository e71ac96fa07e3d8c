"""The numbers that strategies and selections take: the first that is taken, and the first that is refused."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from raysim.core import registry
from raysim.strategies.one_model.fedprox import FedProx
from raysim.strategies.shared.clustering import capped, number_of
from raysim.strategies.shared.label_counts import check_classes, check_epsilon
from raysim.strategies.shared.personalization import Personalization
from raysim.strategies.shared.proximal import global_proximal
from raysim.strategies.shared.weights import group_weights, hospital_weights
from tests.strategies.contexts import hospital, view_of


class Bounds(NamedTuple):
    """Numbers that are taken, and numbers beside them that are not."""

    taken: tuple[float, ...]
    refused: tuple[float, ...]


ANY = Bounds((0.0, 1e6), (-1e-9, math.inf, math.nan))
"""At least 0 and finite."""
ENDLESS = Bounds((0.0, math.inf), (-1e-9, math.nan))
POSITIVE = Bounds((1e-12, math.inf), (0.0, math.nan))
RATE = Bounds((1e-12, 10.0), (0.0, -1.0, math.inf, math.nan))
SHARE = Bounds((0.0, 1.0), (-1e-9, 1 + 1e-9, math.nan))
PART = Bounds((1e-12, 1.0), (0.0, 1 + 1e-9, math.nan))
BELOW_ONE = Bounds((0.0, 1 - 1e-12), (-1e-9, 1.0, math.nan))
EPSILON = Bounds((1e-6, 1e300), (0.99e-6, 0.0, -1.0, math.inf, math.nan))
NONE_OR_MORE = Bounds((0,), (-1,))
ONE_OR_MORE = Bounds((1,), (0,))
TWO_OR_MORE = Bounds((2,), (1,))
THREE_OR_MORE = Bounds((3,), (2,))
ONE_OR_TWO = Bounds((1, 2), (0, 3))

WEIGHTED = {"minimum_weight": ANY}
COHORT = {"fraction": PART, "minimum": ONE_OR_MORE}
SIGNED = {"clusters": ONE_OR_MORE, "recluster_every": NONE_OR_MORE}
ADAPTIVE = WEIGHTED | {"server_learning_rate": ANY, "beta_1": BELOW_ONE, "tau": ANY}

STRATEGIES: dict[str, dict[str, Bounds]] = {
    "afl": {"ascent": ANY, "learning_rate": ANY},
    "cbfl": {"clusters": ONE_OR_MORE},
    "centralized": {},
    "cfl": WEIGHTED | {"eps1": ENDLESS, "eps2": ENDLESS, "gamma": SHARE, "warmup": NONE_OR_MORE},
    "chip": SIGNED | {"lam": ANY, "mu": ANY, "alpha": SHARE},
    "clust_psi": {
        "clusters": ONE_OR_MORE,
        "privacy_epsilon": EPSILON,
        "bins": TWO_OR_MORE,
        "search_sample": THREE_OR_MORE,
        "epsilon": PART,
    },
    "clustered": SIGNED,
    "cs_rcfl": {
        "clusters": ONE_OR_MORE,
        "radius": ANY,
        "small_radius": ANY,
        "small": NONE_OR_MORE,
        "folds": TWO_OR_MORE,
        "kappa": POSITIVE,
        "seconds": ENDLESS,
    },
    "apfl": WEIGHTED | {"alpha": SHARE},
    "ensemble": {},
    "fedbn": WEIGHTED,
    "feddyn": {"alpha": Bounds((1e-6, 1.0), (0.0, math.inf, math.nan))},
    "fednova": WEIGHTED | {"mu": ANY},
    "fedsam": WEIGHTED | {"rho": ANY},
    "meta_analysis": {},
    "newton": {"ridge": ANY},
    "odal": {"order": ONE_OR_TWO},
    "own_intercepts": {"ridge": ANY},
    "per_fedavg": WEIGHTED | {"alpha": ANY},
    "pfedme": {"lam": ANY, "steps": ONE_OR_MORE, "approach": PART, "beta": ANY},
    "random_intercepts": {"ridge": ANY},
    "rfa": WEIGHTED | {"passes": NONE_OR_MORE, "nu": RATE},
    **{key: {} for key in ("federated_trees", "random_trees", "trees_bagging", "trees_cyclic")},
    "ditto": WEIGHTED | {"lam": ANY, "epochs": NONE_OR_MORE, "learning_rate": ANY},
    "fairfed": {"beta": ANY, "positive": NONE_OR_MORE},
    "fedadagrad": ADAPTIVE,
    "fedadam": ADAPTIVE | {"beta_2": BELOW_ONE},
    "fedasync": {
        "mixing": SHARE,
        "exponent": ANY,
        "slope": ANY,
        "start": ANY,
        "rho": ANY,
        "concurrency": ONE_OR_MORE,
    },
    "fedavg": WEIGHTED,
    "fedavgm": WEIGHTED | {"momentum": BELOW_ONE, "server_learning_rate": ANY},
    "fedbuff": {"buffer": ONE_OR_MORE, "server_learning_rate": ANY, "exponent": ANY, "concurrency": ONE_OR_MORE},
    "fedgmc": {"clusters": ONE_OR_MORE, "samples": ONE_OR_MORE, "lam": ANY, "mu": ANY, "alpha": SHARE},
    "fedper": WEIGHTED | {"final_head_epochs": NONE_OR_MORE, "head_learning_rate": RATE},
    "fedprox": WEIGHTED | {"mu": ANY},
    "fedrep": WEIGHTED | {"head_epochs": NONE_OR_MORE, "final_head_epochs": NONE_OR_MORE, "head_learning_rate": RATE},
    "fedsoft": {
        "clusters": ONE_OR_MORE,
        "lam": ANY,
        "every": ONE_OR_MORE,
        "floor": PART,
        "spread": ANY,
        "fraction": PART,
    },
    "fedyogi": ADAPTIVE | {"beta_2": BELOW_ONE},
    "fine_tuning": {"mu": ANY, "prox": ANY},
    "hierarchical": SIGNED,
    "ifca": WEIGHTED | {"clusters": ONE_OR_MORE, "spread": ANY},
    "kfed": {"clusters": ONE_OR_MORE, "local_clusters": ONE_OR_MORE},
    "local": {},
    "moon": WEIGHTED | {"mu": ANY, "temperature": POSITIVE},
    "qfedavg": {"q": ANY},
    "scaffold": WEIGHTED | {"server_rate": ANY},
}
SELECTIONS: dict[str, dict[str, Bounds]] = {
    "all": {},
    "by_rows": COHORT,
    "fedcls": COHORT | {"tau": ANY},
    "haccs": COHORT | {"rho": SHARE, "loss_power": ANY, "privacy_epsilon": EPSILON},
    "inverse_sqrt": COHORT,
    "poisson": {"fraction": PART},
    "power_of_choice": COHORT | {"candidates": ONE_OR_MORE},
    "superquantile": COHORT | {"level": BELOW_ONE},
    "uniform": COHORT,
}
KINDS = {"strategies": STRATEGIES, "selections": SELECTIONS}
EACH = [(kind, name, field) for kind, named in KINDS.items() for name, fields in named.items() for field in fields]
NESTED = ("radii",)
"""Numbers in a sequence, which other tests look at."""


def own(kind: str) -> list[str]:
    """The names of a kind that come with raysim; others may be installed beside it."""
    return [name for name in registry.entries(kind) if registry.load(kind, name, kind).__module__.startswith("raysim.")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_is_looked_at(kind: str):
    assert sorted(KINDS[kind]) == sorted(own(kind))
    for name, looked_at in KINDS[kind].items():
        fields = dataclasses.fields(registry.load(kind, name, kind))
        numbers = {field.name for field in fields if {"int", "float"} & {*str(field.type).replace("|", " ").split()}}
        assert numbers - {*looked_at} == set(), name


@pytest.mark.parametrize(("kind", "name", "field"), EACH)
def test_a_number_is_taken_up_to_its_bound_and_not_beyond(kind: str, name: str, field: str):
    cls: Any = registry.load(kind, name, kind)
    bounds = KINDS[kind][name][field]
    for value in bounds.taken:
        assert getattr(cls(**{field: value}), field) == value
    for value in bounds.refused:
        with pytest.raises(ValueError, match=rf"^{field}: "):
            cls(**{field: value})


@pytest.mark.parametrize(
    ("cls", "field", "bounds"),
    [(Personalization, "epochs", NONE_OR_MORE), (Personalization, "learning_rate", ANY)],
)
def test_fine_tuning_at_the_end(cls: type, field: str, bounds: Bounds):
    for value in bounds.taken:
        assert getattr(cls(**{field: value}), field) == value
    for value in bounds.refused:
        with pytest.raises(ValueError, match=rf"^(personalization\.)?{field}: "):
            cls(**{field: value})


def test_the_least_epsilon_of_label_counts():
    check_epsilon(None)
    check_epsilon(1e-6)
    check_epsilon(1e300)
    for epsilon in (0.99e-6, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"^privacy_epsilon: .* is not at least 1e-06 and finite"):
            check_epsilon(epsilon)


def test_what_counts_classes_refuses_a_label_that_is_a_number():
    check_classes("by", 2, "choose features")
    with pytest.raises(ValueError, match=r"^by needs the classes of a label, .* is a number; choose features$"):
        check_classes("by", 0, "choose features")


def test_numbers_by_hospital():
    assert FedProx(mu_by_hospital={"h1": 0.0}, straggler_epochs={"h1": 0}).mu_by_hospital == {"h1": 0.0}
    with pytest.raises(ValueError, match=r"^mu_by_hospital\.h1: "):
        FedProx(mu_by_hospital={"h1": -1e-9})
    with pytest.raises(ValueError, match=r"^straggler_epochs\.h1: "):
        FedProx(straggler_epochs={"h1": -1})


def test_a_hospital_with_its_own_weight_has_its_own_proximal_term():
    view, ids = view_of([hospital([1, 1])] * 3), np.array([0, 2])
    by_hospital = global_proximal(view, ids, 0.5, {"h2": 2.0})
    assert (by_hospital.weight.tolist(), by_hospital.towards.tolist()) == ([0.5, 2.0], [0, 0])
    of_all = global_proximal(view, ids, 0.5, {})
    assert (of_all.weight, of_all.towards.tolist()) == (0.5, [0, 0])


def test_only_hospitals_that_are_there_have_numbers_of_their_own():
    sizes = np.array([2, 2, 2])
    for key in ("mu_by_hospital", "straggler_epochs"):
        FedProx(**{key: {"h1": 1}}).check(["h0", "h1", "h2"], sizes)
        with pytest.raises(
            ValueError, match=rf"^{key}: no hospital is called 'h3'; use hospitals' names, such as 'h0'$"
        ):
            FedProx(**{key: {"h1": 1, "h3": 1}}).check(["h0", "h1", "h2"], sizes)
    view, ids = view_of([hospital([1, 1])] * 3), np.array([0, 2])
    slow = FedProx(straggler_epochs={"h2": 0})
    assert slow.problem(view, slow.setup(view), ids).training.epochs.tolist() == [view.local_epochs, 0]
    assert FedProx().problem(view, slow.setup(view), ids).training.epochs is None


def test_clusters_are_at_most_one_for_each_hospital_unless_a_number_is_given():
    sizes = np.array([3, 0, 2, 9, 0, 1, 1, 4])
    assert (number_of("auto", sizes), number_of("auto", sizes[:6]), number_of(7, sizes[:3])) == (5, 4, 7)
    assert capped("auto", sizes[:6]) == "clusters: 4 in place of 5, one for each hospital with training rows"
    assert [capped("auto", np.append(sizes, 5)), capped("auto", sizes[:7]), capped(3, sizes[:3])] == ["", "", ""]


def test_weights_of_hospitals_and_of_those_of_a_group_by_hand():
    sizes, group = np.array([6, 2, 3, 1]), np.array([1, 1, 4, 4])
    assert hospital_weights(sizes, "samples").tolist() == [6 / 12, 2 / 12, 3 / 12, 1 / 12]
    assert hospital_weights(sizes, "uniform").tolist() == [0.25] * 4
    assert hospital_weights(sizes, "floor").tolist() == pytest.approx([6 / 12, 2 / 12, 3 / 12, 1 / 12])
    assert hospital_weights(sizes, "floor", 0.2) == pytest.approx(np.array([0.5, 0.2, 0.25, 0.2]) / 1.15)
    assert hospital_weights(sizes, "floor", 1.0).tolist() == [0.25] * 4
    assert hospital_weights(sizes[:1], "uniform").tolist() == [1.0]
    assert hospital_weights(sizes[:0], "uniform").tolist() == []
    assert group_weights(sizes, group).tolist() == [0.75, 0.25, 0.75, 0.25]
    assert group_weights(sizes, group, "uniform").tolist() == [0.5] * 4
    assert group_weights(sizes, group, "floor") == pytest.approx([0.75, 0.25, 0.75, 0.25])
    assert group_weights(sizes, group, "floor", 0.5) == pytest.approx([0.6, 0.4, 0.6, 0.4])


def test_a_name_for_type_checkers_in_a_subclass_leaves_the_limits_of_its_other_fields():
    @dataclasses.dataclass(frozen=True)
    class Own(FedProx):
        note: "ForTypeCheckersOnly | None" = None  # noqa: F821, UP037

    assert Own(mu=0.5).mu == 0.5
    with pytest.raises(ValueError, match="mu: -1 is not at least 0"):
        Own(mu=-1)

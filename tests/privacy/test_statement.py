"""What is said of a run's privacy, and of several runs together: by hand, and by the accountant."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace

import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant

from raysim.config.checking import validated
from raysim.privacy import accountant, quick
from raysim.privacy.events import Gaussian, Laplace, Written
from raysim.privacy.statement import Statement, together

ONE = Statement(
    unit="patient",
    mode="local",
    against="server",
    delta=1e-5,
    epsilons={"server": 2.34567, "outsider": 1.5},
    covered={"server": 2.34567, "outsider": 1.5},
    covers=("update", "loss"),
    declared_public=("sizes",),
    not_private=("metrics",),
    noise_multiplier=4.0,
    clip=0.5,
    releases={"server": [[("normal", 4.0, 1.0, 3)]], "outsider": [[("normal", 6.0, 0.5, 3)]]},
)


def test_a_guarantee_in_a_sentence():
    assert ONE.sentence() == (
        "epsilon = 2.346, delta = 1e-05 for one patient against the server; covers update, loss; "
        "declared public: sizes; not private: metrics"
    )
    bare = replace(ONE, covers=(), declared_public=(), not_private=())
    assert bare.sentence().endswith("against the server; covers nothing; not private: nothing else")


def test_what_is_infinite_is_said_beside_what_noise_covers():
    whole = replace(ONE, epsilons={"server": math.inf})
    assert whole.sentence().startswith(
        "epsilon = infinite, delta = 1e-05 for one patient against the server (epsilon = 2.346 for what noise covers)"
    )
    none = replace(whole, covered={"server": math.inf}, clip=math.inf)
    assert none.sentence().startswith("epsilon = infinite, delta = 1e-05 for one patient against the server; covers")
    released = none.as_json()
    assert (released["epsilon"], released["epsilon_of_covered"], released["epsilons"], released["clip"]) == (
        "inf",
        "inf",
        {"server": "inf"},
        "inf",
    )


def test_a_guarantee_as_values():
    assert ONE.as_json() == {
        "unit": "patient",
        "mode": "local",
        "against": "server",
        "epsilon": 2.34567,
        "delta": 1e-5,
        "epsilon_of_covered": 2.34567,
        "epsilons": {"server": 2.34567, "outsider": 1.5},
        "covers": ["update", "loss"],
        "unreleased": [],
        "declared_public": ["sizes"],
        "not_private": ["metrics"],
        "noise_multiplier": 4.0,
        "clip": 0.5,
        "statement": ONE.sentence(),
    }
    own = replace(ONE, by_hospital={"least": (1.0, 9.0), "most": (math.inf, 0.0)}, at_two_hospitals=math.inf).as_json()
    assert own["by_hospital"] == {
        "least": {"epsilon": 1.0, "noise_multiplier": 9.0},
        "most": {"epsilon": "inf", "noise_multiplier": 0.0},
    }
    assert own["epsilon_at_two_hospitals"] == "inf"


def test_runs_of_known_events_are_composed_and_others_add_up():
    two: list[Written] = [("normal", 5.0, 1.0, 2), ("normal", 7.0, 1.0, 1)]
    other = replace(ONE, releases={"server": [two]}, delta=1e-6)
    composed = accountant.epsilon([Gaussian(4.0, 1.0, 3), Gaussian(5.0, 1.0, 2), Gaussian(7.0)], 1e-5)
    assert together([ONE, other]) == (composed, 1e-5, "server")
    assert together([ONE]) == (accountant.epsilon([Gaussian(4.0, 1.0, 3)], 1e-5), 1e-5, "server")
    assert together([ONE, replace(other, releases=None)]) == pytest.approx((2 * 2.34567, 1.1e-5, "server"))
    assert together([ONE, replace(other, unit="hospital")])[0] == math.inf, "guarantees of two units do not add up"
    assert together([ONE, replace(other, epsilons={"server": math.inf})]) == (math.inf, 1e-5, "server")


def test_releases_of_hospitals_are_composed_hospital_by_hospital():
    """Two runs of two hospitals: one hospital has little noise in the first run, the other in the second."""
    first: list[Written] = [("normal", 1.0, 1.0, 1)]
    second: list[Written] = [("normal", 4.0, 1.0, 1)]
    one = replace(ONE, releases={"server": [first, second]}, epsilons={"server": quick.epsilon(1.0, 1.0, 1, 1e-5)})
    other = replace(one, releases={"server": [second, first]})
    both, delta, _ = together([one, other])
    assert both == pytest.approx(quick.epsilon_of([Gaussian(1.0), Gaussian(4.0)], 1e-5))
    assert get_epsilon_gaussian((1 + 1 / 16) ** -0.5, delta) < both < 0.8 * 2 * one.epsilon
    # A run in which all units are in the same sums concerns every hospital.
    pooled = replace(one, releases={"server": [first]})
    assert together([one, pooled])[0] == pytest.approx(quick.epsilon_of([Gaussian(1.0, 1.0, 2)], 1e-5))
    three = replace(one, releases={"server": [first, first, first]})
    assert together([one, three]) == (pytest.approx(2 * one.epsilon), 2e-5, "server")


def test_noisy_statistics_released_with_updates_are_composed_too():
    released = replace(ONE, releases={"server": [[("normal", 4.0, 1.0, 3), ("laplace", 5.0, 1.0, 1)]]})
    by_library = PLDAccountant()
    by_library.compose(GaussianDpEvent(4.0), 6)
    by_library.compose(LaplaceDpEvent(5.0), 2)
    assert together([released, released])[0] == pytest.approx(by_library.get_epsilon(1e-5), rel=1e-3)
    assert quick.least_epsilon([Gaussian(4.0), Laplace(5.0)], 1e-5) <= quick.epsilon(4.0, 1.0, 1, 1e-5) + 0.2


def test_releases_survive_a_file():
    written = json.loads(json.dumps(dataclasses.asdict(ONE)))
    assert validated(Statement, written, "privacy").releases == {
        "server": [[("normal", 4.0, 1.0, 3)]],
        "outsider": [[("normal", 6.0, 0.5, 3)]],
    }


def test_runs_against_one_adversary_are_against_it_and_else_against_the_server():
    outside = replace(ONE, against="outsider", releases=None)
    assert together([outside, outside]) == pytest.approx((3.0, 2e-5, "outsider"))
    assert together([outside, ONE])[2] == together([ONE, outside])[2] == "server"

"""The defaults of strategies and selections: the values of their papers, which results hang on."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from raysim.core import registry
from raysim.strategies.base import POOLED, LocalTraining, Upload
from raysim.strategies.checks.problem import Frame
from raysim.strategies.coalitions.solver.cliques import PATTERNS
from raysim.strategies.coalitions.solver.solve import find_coalitions
from raysim.strategies.references.centralized import Centralized
from raysim.strategies.references.local import Local
from tests.strategies.contexts import hospital, view_of

WEIGHTED = {"weights": "samples", "minimum_weight": 0.01}
COHORT = {"fraction": 0.1, "minimum": 10}
FINE_TUNING = {"personalization.epochs": 1, "personalization.learning_rate": 0.03}
SIGNED = {
    "clusters": "auto",  # 5, where there are so many hospitals
    "signature": ("size", "prevalence", "missingness", "mean", "std"),
    "block_scale": False,
    "recluster_every": 0,
}

STRATEGIES: dict[str, dict[str, Any]] = {
    "afl": {"ascent": 0.1, "learning_rate": None, "averaging": "gradient", "start": "uniform"},
    "cbfl": {"clusters": None, "features": "continuous", "encoder": None},
    "cfl": WEIGHTED | {"eps1": 1e-5, "eps2": 0.1, "gamma": 0.5, "warmup": 0, "linkage": "single"},
    "chip": SIGNED | FINE_TUNING | {"lam": 0.5, "mu": 0.05, "alpha": 0.9},
    "clust_psi": {"by": ("labels",), "clusters": None, "allow_one": False, "bins": 10, "search_sample": 200},
    "clustered": SIGNED,
    "cs_rcfl": {"clusters": 3, "radius": 0.5, "small": 100, "folds": 5, "kappa": 1.0, "robust": False, "seconds": 60.0},
    "ditto": WEIGHTED | {"lam": 1.0, "epochs": 1, "learning_rate": None},
    "apfl": WEIGHTED | {"alpha": 0.5, "adaptive": True},
    "ensemble": {"combine": "rows", "local_fit": "firth"},
    "fedbn": WEIGHTED,
    "feddyn": {"alpha": 0.1},
    "fednova": WEIGHTED | {"mu": 0.0},
    "rfa": WEIGHTED | {"passes": 3, "nu": 1e-6},
    "fedsam": WEIGHTED | {"rho": 0.05},
    "meta_analysis": {"combine": "information", "local_fit": "firth"},
    "federated_trees": {},
    "trees_bagging": {"scale": "hospitals"},
    "random_trees": {},
    "trees_cyclic": {},
    "newton": {"family": "auto", "ridge": 0.0, "firth": "auto"},
    "odal": {"order": 2, "robust": False, "local_fit": "firth"},
    "per_fedavg": WEIGHTED | {"alpha": 0.05},
    "pfedme": {"lam": 0.5, "steps": 5, "approach": 0.3, "beta": 1.0},
    "fairfed": {"attribute": "sex", "privileged": "Male", "beta": 1.0, "positive": 1},
    "fedadagrad": WEIGHTED | {"server_learning_rate": 0.3162, "beta_1": 0.0, "tau": 0.1},
    "fedadam": WEIGHTED | {"server_learning_rate": 0.001, "beta_1": 0.9, "beta_2": 0.99, "tau": 0.001},
    "fedasync": {"mixing": 0.6, "exponent": 0.5, "slope": 10.0, "start": 4.0, "rho": 0.005, "concurrency": 10},
    "fedavg": WEIGHTED,
    "fedavgm": WEIGHTED | {"momentum": 0.7, "server_learning_rate": 1.0},
    "fedbuff": {"buffer": 10, "server_learning_rate": 1.0, "exponent": 0.5, "concurrency": 10},
    "fedgmc": {"clusters": None, "virtual": "per_component", "samples": 10, "lam": 0.0, "mu": 0.0, "alpha": 1.0},
    "fedper": WEIGHTED | {"head": None, "final_head_epochs": 0},
    "fedprox": WEIGHTED | {"mu": 0.01},
    "fedrep": WEIGHTED | {"head": None, "head_epochs": None, "final_head_epochs": 0},
    "fedsoft": {"clusters": 5, "lam": 0.1, "every": 2, "floor": 1e-4, "spread": 0.1, "fraction": 0.5},
    "fedyogi": WEIGHTED | {"server_learning_rate": 0.001, "beta_1": 0.9, "beta_2": 0.99, "tau": 0.01},
    "fine_tuning": FINE_TUNING | {"mu": 0.0, "prox": 0.0},
    "hierarchical": SIGNED,
    "ifca": WEIGHTED | {"weights": "uniform", "clusters": "auto", "averaging": "model", "spread": 0.1},
    "kfed": {"clusters": None, "local_clusters": 4, "inherit": False},
    "moon": WEIGHTED | {"mu": 1.0, "temperature": 0.5},
    "qfedavg": {"q": 1.0},
    "scaffold": WEIGHTED | {"weights": "uniform", "server_rate": 1.0, "renew": "steps"},
}
SELECTIONS: dict[str, dict[str, Any]] = {
    "by_rows": COHORT,
    "fedcls": COHORT | {"tau": 0.1},
    "haccs": COHORT | {"rho": 0.95, "loss_power": 1.0, "metric": "hellinger", "privacy_epsilon": None},
    "inverse_sqrt": COHORT,
    "poisson": {"fraction": 0.1},
    "power_of_choice": {"candidates": 8, "fraction": 0.1, "minimum": 1},
    "superquantile": COHORT | {"level": 0.5},
    "uniform": COHORT,
}


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [("strategies", *item) for item in STRATEGIES.items()] + [("selections", *item) for item in SELECTIONS.items()],
)
def test_defaults_are_the_papers(kind, name, expected):
    values = dataclasses.asdict(registry.load(kind, name, name)())
    for key, value in expected.items():
        *parents, last = key.split(".")
        at = values
        for parent in parents:
            at = at[parent]
        assert at[last] == value, key


def test_what_strategies_and_selections_say_of_themselves():
    """Which are references, which train alone, and which selections use losses."""
    said: dict[str, set[str]] = {"is_reference": set(), "alone": set(), "uses_losses": set()}
    for kind in ("strategies", "selections"):
        for name in registry.entries(kind):
            cls = registry.load(kind, name, kind)
            for flag, names in said.items():
                if getattr(cls, flag, False):
                    names.add(name)
    ours = {*STRATEGIES, *SELECTIONS, "centralized", "local", "all"}
    strategies = [name for name in registry.entries("strategies") if name in ours]
    classes = {name: registry.load("strategies", name, "strategy") for name in strategies}
    assert {name for name, cls in classes.items() if cls.needs.own_steps} == {"fedsoft"}
    for name, cls in classes.items():
        named = [field.name for field in dataclasses.fields(cls) if field.kw_only]
        assert {"weights", "minimum_weight"} & vars(cls()).keys() <= {*named}, name
    by_themselves = {n for n in strategies if not classes[n]().uses_selection()}
    regressions = {"newton", "meta_analysis", "odal", "ensemble"}
    trees = {"federated_trees", "random_trees", "trees_bagging", "trees_cyclic"}
    assert by_themselves == {"afl", "centralized", "cs_rcfl", "fairfed", "fedsoft", "local"} | regressions | trees
    assert {flag: names & ours for flag, names in said.items()} == {
        "is_reference": {"centralized", "local"},
        "alone": {"local"},
        "uses_losses": {"haccs"},
    }


NUMBERS: dict[str, dict[str, Any]] = {
    "coalitions.robust.training": {"RIDGE": 1e-6, "SHRINK": 0.1, "STAGES": 12, "STEPS": 100},
    "coalitions.solver.bound": {
        "PENALTY": 100.0,
        "CHECK": 50,
        "WITHOUT_CUTS": 400,
        "BETWEEN_CUTS": 100,
        "PATIENCE": 500,
        "VIOLATED": 1e-5,
        "ADDED": 50,
    },
    "coalitions.solver.search": {"STARTS": 50, "KICKS": 400, "LEAST": 1e-10},
    "coalitions.solver.solve": {"ENUMERATED": 20, "TOLERANCE": 1e-6},
    "fairness.fairfed": {"OTHERS": 0, "PRIVILEGED": 1, "UNKNOWN": -1},
    "patient_clusters.cluster_models": {"FEWEST": 3, "MOST": 8},
    "patient_clusters.gaussian_mixtures": {
        "REGULARISATION": 1e-6,
        "STARTS": 5,
        "ITERATIONS": 100,
        "LOCAL": (2, 3, 4),
        "LEAST": 4,
    },
    "patient_clusters.kfed": {"ITERATIONS": 300},
    "problem": {"POOLED": -1, "OWN": -2, "MIXTURE": -3, "LAST": -4},
    "row_statistics": {"LARGEST_LOSS": 8.0},
    "selections.haccs": {
        "ODDS": (0.60, 0.20, 0.14, 0.06),
        "COMPUTE": ((0.0, 0.5), (0.5, 1.0), (1.0, 1.5), (1.5, 2.0)),
        "BANDWIDTH": ((75.0, 100.0), (50.0, 75.0), (25.0, 50.0), (1.0, 25.0)),
        "MEGABITS": 80.0,
        "DELAY": (0.02, 0.2),
    },
    "selections.sampling": {"MANY": 2**17},
    "shared.clustering": {"CLUSTERS": 5},
    "shared.feature_bins": {"FINE": 64, "CLIP": 5.0},
    "shared.label_counts": {"LEAST_EPSILON": 1e-6},
    "shared.psi": {"EPSILON": 0.05},
    "shared.signatures": {"CLIP": 5.0},
    "shared.silhouette": {"TIE": 1e-12, "SAMPLE": 2000},
}
"""Beside fields: what papers, or the documentation, say of how something is found."""


@pytest.mark.parametrize("module", NUMBERS)
def test_the_numbers_of_methods(module: str):
    has = vars(importlib.import_module(f"raysim.strategies.{module}"))
    assert {name: has[name] for name in NUMBERS[module]} == NUMBERS[module]


def test_the_time_that_finding_coalitions_takes_at_most():
    defaults = {name: given.default for name, given in inspect.signature(find_coalitions).parameters.items()}
    assert (defaults["seconds"], defaults["tolerance"]) == (60.0, 1e-6)


@pytest.mark.parametrize("size", [3, 4])
def test_an_inequality_says_that_neighbours_of_one_are_neighbours_of_each_other(size: int):
    """Of i and a set T: the sum of z_ij over T, less z_ii and z_jk of all pairs of T, is at most 0."""
    pairs, coefficients = PATTERNS[size]
    others = range(1, size)
    expected = {(0, j): 1.0 for j in others} | {(0, 0): -1.0} | dict.fromkeys(combinations(others, 2), -1.0)
    assert dict(zip(pairs, coefficients, strict=True)) == expected
    assert sorted(PATTERNS) == [3, 4]


def test_who_trains_alone_or_on_all_rows_goes_on_with_its_optimiser():
    view = view_of([hospital([1, 1])] * 2)
    for cls, cohort in ((Centralized, [POOLED]), (Local, [0, 1])):
        problem = cls().problem(view, cls().setup(view), np.array(cohort))
        assert (problem.training.carry, problem.training.keep) == (True, cls is Local)


def test_what_a_problem_leaves_out():
    """A local update forgets its start, a sum is one of deltas, and nobody sees single ones."""
    training, upload = LocalTraining(), Upload()
    assert (training.keep, training.carry) == (False, False)
    assert (upload.sums, upload.what, upload.single, upload.losses) == (1, "delta", False, False)
    frame = Frame(size=4, models=2)
    assert (frame.mixes, frame.keeps, frame.groups) == (False, False, None)

"""What pages say of attacks."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from raysim.adversaries.attack_effect import AttackFigures
from raysim.metrics.labels import CLASSIFICATION, REGRESSION
from raysim.report.supplement import attacks

NAN = float("nan")


def result(
    harm_in: float,
    label: str = "fedavg",
    success: float = NAN,
    facts: dict[str, float] | None = None,
    price: float | None = None,
) -> Any:
    figures = AttackFigures(
        attack="label_flip",
        knowledge="own",
        bad=("h1", "h3"),
        honest={"auroc": 0.8, "worst_decile": 0.6, "gini": 0.1},
        change={"auroc": -harm_in, "worst_decile": -2 * harm_in, "gini": 0.0},
        harm_in=harm_in,
        harm_out=0.0,
        largest_bad_share=0.5,
        success=success,
        per_hospital=(),
        price={} if price is None else {"auroc": price},
    )
    outcome = SimpleNamespace(attack=figures, facts=facts or {})
    return SimpleNamespace(label=label, outcome=outcome, federation=SimpleNamespace(task=CLASSIFICATION))


def test_a_comparison_says_means_over_seeds_with_intervals_from_three():
    harms = [0.01, 0.02, 0.06]
    (said,) = attacks.sentences([result(harm) for harm in harms])
    half = t.ppf(0.975, 2) * np.std(harms, ddof=1) / np.sqrt(3)
    interval = f"{np.mean(harms):+.3f} ({np.mean(harms) - half:+.3f} to {np.mean(harms) + half:+.3f})"
    assert f"harm in clusters with Byzantine hospitals {interval}" in said
    assert "elsewhere +0.000 (+0.000 to +0.000)" in said
    assert said.startswith("Attack on fedavg: label_flip by 2 Byzantine hospitals with knowledge of local data alone;")
    assert "trigger" not in said
    (two,) = attacks.sentences([result(harm) for harm in harms[:2]])
    assert "harm in clusters with Byzantine hospitals +0.015;" in two
    assert len(attacks.sentences([result(0.1), result(0.1, label="chip")])) == 2


def test_the_cost_of_a_rule_is_reported_if_there_is_one():
    assert "cost of the rule without attack -0.012" in attacks.of_run(result(0.1, price=-0.0124))
    (said,) = attacks.sentences([result(0.1, price=-0.01), result(0.1, price=-0.02)])
    assert "cost of the rule without attack -0.015" in said
    assert "uniform averaging" not in attacks.of_run(result(0.1)) + attacks.sentences([result(0.1)])[0]


@pytest.mark.parametrize(
    ("mae", "level", "change", "worst"),
    [
        (8e-4, "0.00080", "+0.0000200", "+0.0000400"),
        (8.0, "8.0", "+0.200", "+0.400"),
        (8000.0, "8000", "+200", "+400"),
    ],
)
def test_errors_are_in_the_unit_of_the_label(mae: float, level: str, change: str, worst: str):
    run = result(NAN)
    run.federation.task = REGRESSION
    run.outcome.attack = replace(
        run.outcome.attack,
        honest={"mae": mae, "worst_decile": 2 * mae, "gini": 0.1},
        change={"mae": mae / 40, "worst_decile": mae / 20, "gini": 0.0},
        harm_in=mae / 40,
        price={"mae": mae / 40},
    )
    said = attacks.of_run(run)
    assert f"mean MAE {level} ({change}), worst decile" in said
    assert f"({worst}); harm in clusters with Byzantine hospitals {change.removeprefix('+')}" in said
    assert said.endswith(f"cost of the rule without attack {change}.")
    (over_seeds,) = attacks.sentences([run])
    assert f"mean MAE {change}; change of their worst decile {worst};" in over_seeds


def test_nothing_is_said_where_nobody_attacks():
    plain = result(0.1)
    plain.outcome.attack = None
    assert attacks.sentences([plain]) == ()
    assert attacks.of_run(plain) == ""


@pytest.mark.parametrize("success", [0.25, NAN])
def test_a_run_says_success_and_what_the_rule_did(success):
    said = attacks.of_run(result(0.02, success=success, facts={"rejecting_recall": 0.75, "largest_bad_share": NAN}))
    assert said.startswith(
        "Attack: label_flip by 2 Byzantine hospitals with knowledge of local data alone; honest hospitals: mean"
    )
    assert said.endswith("rejected share of the Byzantine updates: 0.75.")
    assert ("success of the backdoor +0.250" in said) == np.isfinite(success)

"""Every run that was run is charged: trials of ``tune``, runs without the attack, rounds that are run again.

Joint epsilons are held against dp-accounting, by hand: ``n`` rounds with noise of ``z`` clips reveal as much as one
with ``z / sqrt(n)``.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, PoissonSampledDpEvent, get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant
from scipy.special import ndtr

from raysim.config.sections.privacy import PrivacySection
from raysim.engine import attack_figures
from raysim.engine.guarantee import PrivacyParameters
from raysim.engine.job import EarlierStarts, Job, Round
from raysim.engine.privacy import privacy_ledger
from raysim.engine.privacy.privacy_ledger import guaranteed as guaranteed_before
from raysim.experiment.session import InProcess
from raysim.privacy import accountant
from raysim.privacy.events import Gaussian
from raysim.storage.resume import read_ticket
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import job_of
from tests.storage.test_resume import go_on, start, stop_at, stopped

Z, DELTA, ROUNDS = 5.0, 1e-3, 6
TREE: dict[str, Any] = {
    "data": {"source": "synthetic", "hospitals": 6, "rows": 300, "features": 3},
    "training": {"rounds": ROUNDS, "batch_size": 32},
    "strategy": "fedavg",
    "selection": "all",
    "tracking": {"uri": "none"},
    "checkpoint": {"every": 2},
    "privacy": {
        "unit": "hospital",
        "noise_multiplier": Z,
        "delta": DELTA,
        "clip": 0.5,
        "declared_public": ["sizes", "preprocessing", "metrics", "validation_loss"],
    },
}
TUNED: dict[str, Any] = {key: value for key, value in TREE.items() if key != "strategy"} | {
    "data": TREE["data"] | {"split": {"train": 0.6, "validation": 0.2, "test": 0.2}},
    "strategies": ["fedavg"],
    "seeds": [1],
    "reference": "fedavg",
    "tune": {"training.learning_rate": [0.01, 0.1, 0.5]},
}


def by_hand(rounds: int) -> float:
    """The epsilon of so many rounds with all hospitals."""
    return float(get_epsilon_gaussian(Z / math.sqrt(rounds), DELTA))


def system(tree: dict[str, Any]) -> dict[str, Any]:
    return tree | {"privacy": tree["privacy"] | {"noise": "system"}}


def joint(folder: str) -> tuple[int, float]:
    """How many runs a page says that it has, and their joint epsilon."""
    page = re.sub(r"\s+", " ", Path(folder, "report.html").read_text())
    (found,) = set(re.findall(r"of all (\d+) runs of this page.*?together epsilon = ([0-9.]+), delta = 0.001", page))
    return int(found[0]), float(found[1])


def guaranteed(folder: str) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())["privacy"]
    return stored


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYSIM_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_trials_are_in_the_joint_epsilon():
    start(TUNED, "tuned", compare=True)
    assert joint("tuned") == (4, pytest.approx(by_hand(4 * ROUNDS), rel=1e-3))


def test_trials_of_sampled_patients_are_composed_with_their_run():
    """In four runs each patient is drawn in 24 rounds with probability .2."""
    sampled = {"unit": "patient", "mode": "pooled", "rate": 0.2, "noise_multiplier": 2.0}
    start(TUNED | {"privacy": TUNED["privacy"] | sampled}, "tuned", compare=True)
    accountant = PLDAccountant()
    accountant.compose(PoissonSampledDpEvent(0.2, GaussianDpEvent(2.0)), 4 * ROUNDS)
    assert joint("tuned") == (4, pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3))


def test_hospitals_noisy_steps_and_their_counts_are_composed_with_those_of_trials():
    """With all patients in each step, a hospital's four runs are four times its steps and counts."""
    own = {"unit": "patient", "mode": "local", "noise_multiplier": 8.0, "sizes": "noisy"}
    private = {**TUNED["privacy"], **own, "declared_public": ["preprocessing", "metrics", "validation_loss"]}
    start(
        TUNED | {"privacy": private, "training": {"rounds": ROUNDS, "local_epochs": 1, "batch_size": 0}},
        "tuned",
        compare=True,
    )
    whole = PLDAccountant()
    whole.compose(GaussianDpEvent(8.0), 4 * ROUNDS)
    whole.compose(LaplaceDpEvent(5.0), 4)
    runs, epsilon = joint("tuned")
    assert runs == 4
    assert epsilon == pytest.approx(whole.get_epsilon(DELTA), rel=1e-3)
    alone = guaranteed("tuned/runs/fedavg/seed-1")["epsilon"]
    assert epsilon < 0.7 * 4 * alone


def test_a_trial_that_left_no_ledger_is_charged_to_its_end(federate):
    federation = federate([12, 9, 10])
    section = PrivacySection(**TREE["privacy"])
    job = replace(job_of(federation, FedAvg(weights="uniform"), rounds=ROUNDS), privacy=section)
    whole = guaranteed_before(job, federation)
    assert whole is not None
    assert whole.epsilons["outsider"] == pytest.approx(by_hand(ROUNDS))


def test_noisy_statistics_of_earlier_starts_are_charged(federate):
    """A run that was started twice before, and repeated three rounds, has sent its counts three times."""
    federation = federate([12, 9, 10])
    section = PrivacySection(
        unit="patient", mode="pooled", rate=0.2, noise_multiplier=Z, delta=DELTA, clip=0.5,
        statistics={"label_counts": {"noise_multiplier": 8.0}}, declared_public=("sizes", "metrics"),
    )  # fmt: skip
    job = replace(job_of(federation, FedAvg(), rounds=ROUNDS), privacy=section, earlier=EarlierStarts(2, 3))
    whole = guaranteed_before(job, federation)
    assert whole is not None
    assert whole.releases["outsider"] == [[("normal", Z, 0.2, ROUNDS + 3), ("normal", 8.0, 1.0, 3)]]


@pytest.mark.parametrize("multiplier", [1.6801574850871774, 0.871355205229023, 1.614187461655376])
def test_a_sum_of_all_patients_has_the_closed_form(multiplier):
    """The distribution of a mixture cannot be computed for some multipliers if everybody is sampled."""
    section = PrivacySection(unit="patient", mode="pooled", rate=1.0, noise_multiplier=multiplier, delta=1e-3)
    parameters = PrivacyParameters(rounds=2, rate=1.0, hospitals=5)
    epsilon = privacy_ledger._at_two_hospitals(section, parameters, 2, ())
    assert epsilon == pytest.approx(accountant.epsilon([Gaussian(multiplier / 2.0, 1.0, 2)], 1e-3))


def test_a_patient_at_two_hospitals_moves_a_sum_by_two_clips():
    """Where all patients are in each sum: normal noise of ``z`` on a change of 2, by its closed form."""
    section = PrivacySection(unit="patient", mode="pooled", rate=1.0, noise_multiplier=Z, delta=DELTA)
    everyone = PrivacyParameters(ROUNDS, 1.0, 3, (12, 9, 10), sampled=False)
    others = [Gaussian(8.0)]  # sent once by each of the two
    for rounds in (ROUNDS, 0):
        moved = math.sqrt(rounds * (2 / Z) ** 2 + 2 / 8.0**2)
        epsilon = privacy_ledger._at_two_hospitals(section, everyone, rounds, others)
        delta = ndtr(moved / 2 - epsilon / moved) - math.exp(epsilon) * ndtr(-moved / 2 - epsilon / moved)
        assert delta == pytest.approx(DELTA, rel=1e-6)


def test_a_run_without_the_attack_is_in_the_joint_epsilon():
    start(TREE | {"adversary": {"attack": "sign_flip", "share": 0.2, "baseline": True}}, "attacked")
    stored = guaranteed("attacked")
    assert stored["epsilon"] == pytest.approx(by_hand(ROUNDS))
    assert (stored["all_plays"]["plays"], stored["all_plays"]["epsilon"]) == (2, pytest.approx(by_hand(2 * ROUNDS)))
    assert joint("attacked") == (2, pytest.approx(by_hand(2 * ROUNDS), rel=1e-3))


def test_a_run_without_the_attack_that_was_stopped_is_charged(monkeypatch):
    """It is run from its start again, with other noise; the last two rounds of the attacked one are, too."""
    attacked = system(TREE) | {"adversary": {"attack": "sign_flip", "share": 0.2, "baseline": True}}
    with monkeypatch.context() as patch:
        patch.setattr(attack_figures, "attack_figures", interrupted)
        with pytest.raises(KeyboardInterrupt):
            start(attacked, "attacked")
    go_on("attacked")
    stored = guaranteed("attacked")
    assert stored["epsilon"] == pytest.approx(by_hand(ROUNDS + 2))
    assert (stored["all_plays"]["plays"], stored["all_plays"]["epsilon"]) == (3, pytest.approx(by_hand(3 * ROUNDS + 2)))


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def test_rounds_that_are_run_again_with_other_noise_are_charged(monkeypatch):
    stopped(monkeypatch, system(TREE), "stopped", 5)
    assert read_ticket(Path("stopped")).reached == ROUNDS
    shutil.copytree("stopped", "twice")
    go_on("stopped")
    # After the checkpoint of round 4, rounds 5 and 6 may have been run before.
    assert guaranteed("stopped")["epsilon"] == pytest.approx(by_hand(ROUNDS + 2))
    with monkeypatch.context() as patch:
        stop_at(patch, 5)
        with pytest.raises(KeyboardInterrupt):
            go_on("twice")
    go_on("twice")
    assert guaranteed("twice")["epsilon"] == pytest.approx(by_hand(ROUNDS + 4))


def test_rounds_after_a_lost_coordinator_are_charged_in_later_starts_too(monkeypatch):
    """It is lost after round 3, and rounds 3 to 5 may have been run; then the run is stopped after round 5."""
    really = InProcess.run

    def losing(session: InProcess, job: Job, since: Any, every: Any, say: Callable[[str], None]) -> Iterator[Any]:
        for event in really(session, job, since, every):
            yield event
            if isinstance(event, Round) and event.round == 3 and since is None:
                say("the coordinator was lost")

    monkeypatch.setattr(InProcess, "run", losing)
    stopped(monkeypatch, system(TREE), "stopped", 5)
    go_on("stopped")
    assert guaranteed("stopped")["epsilon"] == pytest.approx(by_hand(ROUNDS + 3 + 2))


def test_rounds_that_are_run_again_with_the_same_noise_are_not_charged(monkeypatch):
    start(TREE, "whole")
    stopped(monkeypatch, TREE, "stopped", 5)
    go_on("stopped")
    assert guaranteed("stopped") == guaranteed("whole")
    assert Path("stopped/models.safetensors").read_bytes() == Path("whole/models.safetensors").read_bytes()


def test_a_run_that_nobody_stopped_costs_its_rounds_alone():
    start(system(TREE), "whole")
    assert guaranteed("whole")["epsilon"] == pytest.approx(by_hand(ROUNDS))


def test_without_a_checkpoint_all_that_was_run_is_charged(monkeypatch):
    stopped(monkeypatch, system(TREE) | {"checkpoint": {"every": 0}}, "stopped", 2)
    assert read_ticket(Path("stopped")).reached == 4
    go_on("stopped")
    assert guaranteed("stopped")["epsilon"] == pytest.approx(by_hand(ROUNDS + 4))

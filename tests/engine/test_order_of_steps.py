"""One ordered list makes the halves of updates and of client programs: forward at the hospital, back at the server."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.privacy import PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError
from raysim.data.federation import Federation
from raysim.engine.attacks.own_attacks import OwnAttack
from raysim.engine.job import Job
from raysim.engine.messages.program_sums import SumLayout
from raysim.engine.messages.steps import LeavingSums
from raysim.engine.pipeline.masking import Masking
from raysim.engine.privacy.bounding import Bounding
from raysim.engine.privacy.calibration import guarantee_of
from raysim.engine.privacy.noisy_statistics import FirstAnswers
from raysim.engine.privacy.program_release import ProgramRelease
from raysim.engine.server.update_pipeline import UpdatePipeline
from raysim.strategies.base import Bound, Call, Calls, FederationView, Reply, State, Strategy, TrainLocally
from tests.conftest import MakeFederation, job_of, run
from tests.engine.probing import Bounded, BoundedSums


@pytest.fixture
def federation(federate: MakeFederation) -> Federation:
    return federate([6, 5, 4])


def private(federation: Federation, strategy: Strategy) -> Job:
    section = PrivacySection(unit="example", mode="pooled", noise_multiplier=1.0, delta=1e-3, clip=1.0)
    return replace(job_of(federation, strategy), privacy=section, secure=SecureSection(mode="execute", minimum=3))


def test_a_program_is_attacked_bounded_noised_and_masked_in_this_order(federation: Federation) -> None:
    adversary = AdversarySection(attack="label_flip", share=0.4)
    job = replace(private(federation, BoundedSums(Bound("row", 1.0))), adversary=adversary)
    guarantee = guarantee_of(job, federation)
    pipeline = UpdatePipeline(job, job.strategy, federation, 4, None, FirstAnswers(), guarantee)
    program, rows = Bounded(2, Bound("row", 1.0)), np.array([[3.0, 4.0], [0.3, 0.4]])
    steps = pipeline.call_steps(1, Call(program, {}, np.arange(3)), 0, "the program")
    assert [type(step) for step in steps] == [OwnAttack, Bounding, ProgramRelease, Masking]
    layout, sent = SumLayout(program), []
    for hospital in range(3):
        leaving = LeavingSums(hospital, program, layout, Reply({"sum": rows}), lambda: np.arange(2))
        for step in steps:
            step.forward_sums(leaving)
        sent.append(leaving.units)
    release = steps[2]
    assert isinstance(release, ProgramRelease)
    noise = np.array([release.units(program, layout, hospital) for hospital in range(3)])
    alone = noise + layout.units(Reply({"sum": np.array([[0.6, 0.8], [0.3, 0.4]])}))
    assert (noise[:, :2] != 0).all()
    assert pipeline.opened_call(np.sum(sent, axis=0)).tolist() == alone.sum(axis=0).tolist()
    assert (np.array(sent) != alone).all()  # masks hide what each has sent
    assert pipeline.facts()["secure_sums"] == 1


@dataclass(frozen=True)
class TrainsBeside(Strategy):
    """Trains models locally beside the calls of its programs."""

    def round(self, view: FederationView, state: State) -> Calls:
        yield TrainLocally()
        return state


def test_models_that_are_trained_beside_noisy_sums_are_refused(federation: Federation) -> None:
    with pytest.raises(
        ConfigError, match=r"^privacy.unit: example cannot .* trains models in addition to client programs"
    ):
        run(federation, private(federation, TrainsBeside()), 1)

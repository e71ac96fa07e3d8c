"""A clip that moves where no single message is seen: bits in a secure sum of their own, with shares of the noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import LocalPool
from raysim.config.sections.privacy import AdaptiveClip, PrivacySection
from raysim.config.sections.secure import SecureSection
from raysim.core.errors import ConfigError
from raysim.engine.run_state import RunState
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.privacy.clip import next_clip, update_multiplier
from raysim.privacy.noise import normals
from raysim.secure import traffic
from raysim.storage.encoding import decode, encode
from raysim.strategies.hospital_clusters.chip import Chip
from raysim.strategies.one_model.fedavg import FedAvg
from tests.conftest import job_of, run

SIZES = [5, 3, 8, 4, 6, 7, 3, 5, 4]


def guaranteed(federation, mode="distributed", secure=None, adaptive=None, strategy=None, **keys):
    guarantee = {"clip": 0.1, "noise_multiplier": 1.0, "delta": 1e-3} | keys
    private = PrivacySection(
        unit="hospital", mode=mode, declared_public=("sizes", "metrics", "signature"),
        adaptive=AdaptiveClip(**{"bits": 3.0} | (adaptive or {})), **guarantee,
    )  # fmt: skip
    job = job_of(federation, strategy or FedAvg(weights="uniform"), rounds=3, seed=4)
    job = replace(job, privacy=private, secure=SecureSection(**secure or {}))
    check_job(job, federation)
    return job


def clips_of(federation, job):
    pool = LocalPool(Placement(balance(federation.totals, 2), 1, 0), "cpu")
    events = list(JobRun(pool, job).events(1))
    return [event.guarantee["guard"]["clip"] for event in events if isinstance(event, RunState)], events


def test_the_clip_moves_by_the_bits_and_all_shares_of_their_noise(federate):
    """Updates of 4,001 scalars are far longer than the clip, so that each hospital sends -1/2 with its share."""
    wide = federate(SIZES, features=4000)
    clips, _ = clips_of(wide, guaranteed(wide, clip=1e-6))
    clip = 1e-6
    for round, reached in enumerate(clips, 1):
        noise = sum(float(normals("seeded", (1,), 4, "dp_local_bit", round, h)[0]) for h in range(9))
        share = min(max(0.5 + (-4.5 + 3.0 / math.sqrt(9) * noise) / 9, 0.0), 1.0)
        clip = next_clip(clip, share, 0.5, 0.2)
        assert reached == pytest.approx(clip, rel=1e-9)


def test_a_round_has_the_noise_of_its_own_clip(federate):
    """What is left of the guarantee beside the bits: (z^-2 - (2 b)^-2)^(-1/2) of the clip that was clipped to."""
    wide = federate(SIZES, features=4000)
    clips, events = clips_of(wide, guaranteed(wide, clip=1e-6))
    first, second, *_ = (event.state.models[0] for event in events if isinstance(event, RunState))
    multiplier = update_multiplier(1.0, 3.0)
    assert first.std() == pytest.approx(multiplier * 1e-6 / 9, rel=0.05)
    assert (second - first).std() == pytest.approx(multiplier * clips[0] / 9, rel=0.05)
    assert clips[0] != 1e-6


@pytest.mark.parametrize("mode", ["central", "distributed"])
@pytest.mark.parametrize("drop", [{}, {"mask": 0.2}])
@pytest.mark.parametrize("strategy", [FedAvg(weights="uniform"), Chip(clusters=2)])
def test_masks_change_no_bit(federate, mode, drop, strategy):
    federation = federate(SIZES)
    outcomes = [
        run(federation, guaranteed(federation, mode, {"mode": how, "drop": drop}, strategy=strategy), 2)
        for how in ("model", "execute")
    ]
    assert (outcomes[0].models == outcomes[1].models).all()
    assert outcomes[0].facts == outcomes[1].facts
    if not drop:
        plain = replace(guaranteed(federation, mode, strategy=strategy), secure=None)
        if mode == "central":
            assert (run(federation, plain, 1).models == outcomes[0].models).all()


def test_bits_cost_a_sum_of_one_number(federate):
    federation = federate(SIZES)
    adaptive = guaranteed(federation)
    fixed = replace(adaptive, privacy=adaptive.privacy.model_copy(update={"adaptive": None}))
    more = [run(federation, job, 1).rounds[0].bytes_up for job in (adaptive, fixed)]
    around = len(SIZES) - 1
    assert more[0] - more[1] == len(SIZES) * int(traffic.up(1, around))


def test_a_run_goes_on_with_the_clip_that_it_had(federate):
    federation = federate(SIZES)
    job = guaranteed(federation, secure={"mode": "execute", "drop": {"mask": 0.1}})
    _, events = clips_of(federation, job)
    (stood,) = [event for event in events if isinstance(event, RunState) and event.round == 2]
    again, _ = decode(encode(stood, "print", job.strategy), job.strategy)
    pool = LocalPool(Placement(balance(federation.totals, 1), 1, 0), "cpu")
    *_, outcome = JobRun(pool, job, again).events()
    assert (outcome.models == events[-1].models).all()
    assert outcome.privacy == events[-1].privacy


def test_the_guarantee_is_that_of_a_fixed_clip(federate):
    federation = federate(SIZES)
    adaptive = guaranteed(federation)
    fixed = replace(adaptive, privacy=adaptive.privacy.model_copy(update={"adaptive": None}))
    assert run(federation, adaptive, 1).privacy.epsilons == run(federation, fixed, 1).privacy.epsilons
    still = guaranteed(federation, adaptive={"rate": 0.0, "bits": math.inf})
    assert (run(federation, still, 1).models == run(federation, fixed, 2).models).all()


def test_what_a_moving_clip_does_not_go_with_is_refused(federate):
    with pytest.raises(ConfigError, match=r"privacy.adaptive: is for .* central or distributed, not for hosp"):
        guaranteed(federate(SIZES), mode="local")
    with pytest.raises(ConfigError, match=r"privacy.adaptive.bits: noise of 1e\+06 is more than sums can hold"):
        guaranteed(federate(SIZES), adaptive={"bits": 1e6})
    assert np.isfinite(guaranteed(federate(SIZES), adaptive={"bits": 2.0**14}).privacy.clip)

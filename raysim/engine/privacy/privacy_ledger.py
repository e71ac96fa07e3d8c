"""The privacy cost of a finished run: the kinds of messages that left hospitals, and their joint epsilon.

A kind of message has noise, or is declared public in the configuration, or is exact. One exact kind makes epsilon
infinite against every adversary, because exact messages count as published. The report names this kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import numpy as np

from raysim.config.sections.privacy import PREPROCESSING, SIZE, UPDATES, Adversary, PrivacySection, plain
from raysim.data.federation import Federation
from raysim.engine.guarantee import Guarantee, PrivacyParameters
from raysim.engine.privacy.calibration import (
    by_hospital,
    epsilon_at_two_hospitals,
    guarantee_of,
    multipliers,
    parameters_of,
    releases_of_updates,
    times,
)
from raysim.engine.privacy.noisy_statistics import events
from raysim.privacy import accountant
from raysim.privacy.events import Event, Gaussian, Repeated, Single, Written, written
from raysim.privacy.scaler import is_summed
from raysim.privacy.statement import Statement
from raysim.strategies.shared.label_counts import LabelCounts
from raysim.traffic.ledger import MEASURED, Ledger

if TYPE_CHECKING:
    from raysim.engine.job import Job


def statement(job: Job, federation: Federation, ledger: Ledger, guarantee: Guarantee | None) -> Statement | None:
    """Return the privacy cost of a finished ``job``, whose messages are in ``ledger``; None without a guarantee."""
    if guarantee is None:
        return None
    section, parameters = guarantee.section, guarantee.parameters
    released = {entry.kind: None for entry in ledger.entries}
    covers = tuple(kind for kind in UPDATES if kind in released)
    public = {plain(name) for name in section.declared_public}
    # Each earlier start released noisy statistics at most as often as the whole run.
    noisy = {
        kind: replace(event, count=event.count * (1 + job.earlier.starts))
        for kind, event in events(section, ledger).items()
    }
    covers += tuple(noisy)
    exact = tuple(kind for kind in released if kind not in covers and plain(kind) not in public)
    summed = [PREPROCESSING] if is_summed(federation.preprocessing_noise) else []
    summed += [LabelCounts.name] if job.secure is not None else []
    others, at_each = list(noisy.values()), _at_each_of_two(noisy, summed)
    covered, multiplier, hospitals, at_two_hospitals = {}, section.noise_multiplier, None, None
    releases: dict[str, list[list[Written]]] = {}
    if section.own_steps:
        joined = ledger.rounds_with(UPDATES, len(parameters.patients)) + job.earlier.rounds
        noise, each = multipliers(section, parameters), by_hospital(section, parameters, joined, others)
        at_two_hospitals = (
            epsilon_at_two_hospitals(section, parameters, joined, at_each) if section.unit == "patient" else None
        )
        with_patients = np.array(parameters.patients) > 0
        steps = zip(
            parameters.patients, noise, parameters.rates, joined * np.array(parameters.steps, np.int64), strict=True
        )
        own = [
            [written(each) for each in (*([Gaussian(float(s), rate, int(n))] if n else []), *others)]
            if patients
            else []
            for patients, s, rate, n in steps
        ]
        releases = dict.fromkeys(get_args(Adversary), own)
        covered = dict.fromkeys(get_args(Adversary), float(each.max(initial=0.0)))
        hospitals = {
            name: (float(figure(each[with_patients])), float(figure(noise[with_patients])))
            for name, figure in (("least", np.min), ("median", np.median), ("most", np.max))
        }
    else:
        rounds = _rounds(ledger, UPDATES)
        if section.effective_mode == "local":
            rounds = int(ledger.rounds_with(UPDATES, len(federation.hospitals)).max(initial=0))
        rounds += job.earlier.rounds
        if section.effective_mode == "pooled" and section.unit == "patient":
            at_two_hospitals = _at_two_hospitals(section, parameters, rounds, at_each)
        for adversary in get_args(Adversary):
            training = releases_of_updates(section, parameters, adversary, multiplier or 0.0, rounds)
            exposed = training is None and rounds > 0
            whole = [*(training or []), *others]
            covered[adversary] = math.inf if exposed else accountant.epsilon(whole, section.delta)
            releases[adversary] = [[written(each) for each in whole]]
    return Statement(
        unit=section.unit,
        mode=section.effective_mode,
        against=section.headline,
        delta=section.delta,
        epsilons={adversary: math.inf if exact else value for adversary, value in covered.items()},
        covered=covered,
        covers=covers,
        declared_public=section.declared_public,
        unreleased=tuple(
            name
            for name in (*section.declared_public, *section.statistics)
            # Sizes count as public even without a message.
            if plain(name) not in {SIZE, *map(plain, released)}
        ),
        not_private=exact,
        noise_multiplier=multiplier,
        clip=section.clip,
        by_hospital=hospitals,
        releases=releases,
        at_two_hospitals=at_two_hospitals,
        noise=section.noise,
    )


def _at_each_of_two(noisy: Mapping[str, Single], summed: Sequence[str]) -> list[Single]:
    """Return the releases other than updates that each of two hospitals makes, as they count for a patient who is at
    both.

    Such a patient changes a secure sum (of a kind in ``summed``) by up to twice the bound. The privacy cost is that of
    two sums, one for each hospital, with noise smaller by the factor ``sqrt(2)``.
    """
    return [
        replace(event, multiplier=event.multiplier / math.sqrt(2.0))
        if kind in summed and isinstance(event, Gaussian)
        else event
        for kind, event in noisy.items()
    ]


def _at_two_hospitals(
    section: PrivacySection, parameters: PrivacyParameters, rounds: int, others: Sequence[Event]
) -> float:
    """Return an upper bound of epsilon in mode ``pooled``, against an adversary outside the federation, for a patient
    who is at two hospitals.
    """
    if not rounds or not parameters.sampled or section.sampling >= 1:
        # The patient is certain to be in both hospitals' sums, and changes the total by up to two bounds.
        sums = [Gaussian((section.noise_multiplier or 0.0) / 2.0, 1.0, rounds)] if rounds else []
        each = [replace(event, count=2 * event.count) for event in others]
        return accountant.epsilon([*sums, *each], section.delta)
    event = Repeated(section.noise_multiplier or 0.0, section.sampling, 2, rounds)
    return accountant.rough(event, section.delta, tuple(others))


def guaranteed(job: Job, federation: Federation) -> Statement | None:
    """Return the privacy cost of ``job`` if all hospitals take part in all rounds. They send updates, sizes, scaling
    statistics, metrics, and the statistics with configured noise.
    """
    ledger, everyone, parameters = Ledger(), np.arange(len(federation.hospitals)), parameters_of(job, federation)
    noisy = () if job.privacy is None else job.privacy.noisy
    for kind in {plain(each): each for each in (SIZE, *_scaled(federation), *noisy, MEASURED)}.values():
        for _ in range(times(kind, parameters)):
            ledger.add(0, kind, everyone, 1)
    for round in range(1, job.rounds + 1):
        ledger.add(round, UPDATES[0], everyone, 1)
    return statement(job, federation, ledger, guarantee_of(job, federation))


def _scaled(federation: Federation) -> tuple[str, ...]:
    return (PREPROCESSING,) if federation.preprocessing_scalars else ()


def _rounds(ledger: Ledger, kinds: Sequence[str]) -> int:
    """Return the number of rounds in which hospitals sent a message of these ``kinds``."""
    return len({entry.round for entry in ledger.entries if entry.kind in kinds})

"""Plans a run without executing it: placement of hospitals, memory of each actor, bytes of a round.

The messages of the first round are made without local training, and measured. The planned bytes equal those of a run's
first round.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from raysim.cluster import node_sums
from raysim.cluster.placement import Placement
from raysim.cluster.pool import LocalPool
from raysim.config import plugins
from raysim.config.nodes import Node, parse_nodes
from raysim.config.reading import compared, over_seeds, resolve
from raysim.config.schema import Config
from raysim.core import host
from raysim.core.errors import ConfigError
from raysim.core.memory import of_this_machine
from raysim.data.federation import Federation
from raysim.engine.client.hospital_group import CHUNK_BYTES
from raysim.engine.job import Job
from raysim.engine.messages.memory import HospitalStates
from raysim.engine.messages.plan import PartialResult, RoundPlan
from raysim.engine.messages.program_sums import SumLayout
from raysim.engine.messages.update_sums import sum_count
from raysim.engine.server.coordinator import JobRun
from raysim.engine.server.job_checks import check_job
from raysim.engine.server.pool import StateReferences
from raysim.experiment import idle_keys
from raysim.experiment.entries import Entry, entries
from raysim.experiment.jobs import make_job
from raysim.experiment.pairs import going_together
from raysim.experiment.session import place_live
from raysim.experiment.unseen.fold_runs import hosts
from raysim.experiment.unseen.folds import cost, folds_of
from raysim.strategies.base import POOLED, Ids

PROCESS_BYTES, TORCH_BYTES = 135_000_000, 190_000_000
"""Resident memory in bytes of an actor without hospitals, and the memory that torch adds; measured with Ray 2.60."""

WORKING_COPIES = 2
"""Number of copies of a model that a training call holds in addition to the hospitals' models."""


@dataclass(frozen=True)
class PlannedTraffic:
    """Bytes of one round: those of the simulated messages between hospitals and server, and those that Ray moves."""

    cohort: int
    """Number of hospitals that take part."""
    parameters: int
    down: int
    """Bytes that the whole cohort receives."""
    up: int
    """Bytes that the whole cohort sends."""
    plan: int
    """Bytes of the coordinator's instructions for a round, which Ray moves once to each node."""
    partials: int
    """Bytes of all actors' replies, which Ray moves to the coordinator."""
    between: int
    """Bytes of summed updates that Ray moves between nodes."""
    pooled: bool
    """Whether the training rows of all hospitals are pooled."""
    virtual_seconds: float | None = None
    """Virtual time until the end of the first round, set-up included, in seconds; None without the section
    ``system``."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The plan of a run of ``config`` on ``machines``. ``traffic`` has the bytes of one round for each strategy
    label."""

    config: Config
    federation: Federation
    placement: Placement
    machines: Sequence[Node]
    traffic: Mapping[str, PlannedTraffic]
    left_out: str = ""
    """A line on the additional runs that leave hospitals out of training, or an empty text."""

    def actors(self) -> list[PlannedActor]:
        """Return the hospitals and needed resources of each actor."""
        return [_actor(self, actor) for actor in range(len(self.placement.served))]


class PlannedActor(NamedTuple):
    """The hospitals and needed resources of one actor, or of all actors of a node together."""

    node: int
    """Index of the node among the plan's machines."""
    actors: int
    """Number of actors: 1, or all actors of the node."""
    hospitals: int
    largest: Sequence[str]
    """Names of the two hospitals with the most rows; empty for all actors of a node."""
    rows: int
    """Number of rows of the actors' hospitals."""
    cpus: float
    gpus: float
    memory: int


def make_plan(config: Config, nodes: str | None) -> Plan:
    """Return the plan of a run of ``config``. Raises ``RaysimError`` if ``config`` cannot be run.

    ``nodes`` describes the machines in the form of the option ``--nodes``; None stands for the existing machines.
    """
    source = plugins.build_source(config.data)
    seed = (config.seeds or (config.seed,))[0]
    federation = plugins.build_federation(config, source, seed)
    machines = available(nodes)
    placement, machines = place_live(federation.totals, config.resources, federation.hospitals, machines)
    traffic = {}
    planned = entries(_planned_configs(config))
    idle_keys.check((entry.config, entry.strategy) for entry in planned)
    data = {entry.label: plugins.build_federation(entry.config, source, seed) for entry in planned}
    jobs = {entry.label: _job(entry, data[entry.label], seed) for entry in planned}

    def check(entry: Entry, where: str) -> None:
        check_job(jobs[entry.label], data[entry.label], where)

    if config.models:
        planned, _ = going_together(planned, check)
    for entry in planned:
        traffic[entry.label] = weigh(jobs[entry.label], placement)
    if nodes is None and len(machines) == 1 and math.isinf(machines[0].memory):
        machines = (replace(machines[0], memory=float(of_this_machine())),)
    section, left_out = config.evaluation.unseen, ""
    if section is not None:
        left_out = cost(
            folds_of(section, federation, seed), len(hosts(planned)), len(over_seeds(config).seeds or (seed,))
        )
    return Plan(config, federation, placement, machines, traffic, left_out)


def _job(entry: Entry, federation: Federation, seed: int) -> Job:
    return make_job(entry.config, entry.strategy, entry.selection, federation.folder, seed)


def _planned_configs(config: Config) -> tuple[Config, ...]:
    """Return the configuration of each strategy of ``strategies``, or of ``strategy`` if only this key is set."""
    if "strategy" in config.model_fields_set and "strategies" not in config.model_fields_set:
        return (resolve(config),)
    return compared(config)


def available(nodes: str | None) -> tuple[Node, ...]:
    """Return the nodes that ``nodes`` (the option ``--nodes``) describes.

    If ``nodes`` is None, return the nodes of the cluster at ``RAY_ADDRESS``, or this machine if that is not set.
    """
    if nodes is not None:
        try:
            return parse_nodes(nodes)
        except ValueError as error:
            raise ConfigError(f"--nodes: {error}") from None
    from raysim.cluster.connection import connected, live_nodes, this_machine

    if not os.environ.get("RAY_ADDRESS"):
        return (this_machine(),)
    with connected(verbose=False):
        return live_nodes()


def weigh(job: Job, placement: Placement) -> PlannedTraffic:
    """Measure the bytes of one round of ``job``."""
    pool = _DryRunPool(placement)
    # Noise adds no bytes, and its calibration depends on the number of rounds. But a guarantee for hospitals hides what
    # a hospital has chosen in zeros that it also sends.
    privacy = None if job.privacy is None or job.privacy.unit != "hospital" else job.privacy
    if privacy is not None:
        privacy = privacy.model_copy(update={"epsilon": None, "noise_multiplier": 0.0})
    quick = replace(job, rounds=2, evaluation=job.evaluation.model_copy(update={"every": 0}), privacy=privacy)
    run = JobRun(pool, quick)
    try:
        with host.threads(1):
            for _ in run.run():
                pass
    except _Measured:
        pass
    # Before the first round, hospitals only send their losses.
    training, last = next(plan for plan in pool.plans if plan.round), pool.plans[-1]
    first = run.rows[0]
    moved = replace(training, measured=last.measured) if job.evaluation.every else training
    partials, between = _up(moved, placement, pool)
    return PlannedTraffic(
        cohort=first.cohort_size,
        parameters=training.models.shape[1],
        down=first.bytes_down,
        up=first.bytes_up,
        plan=_size(moved),
        partials=partials,
        between=between,
        pooled=POOLED in training.ids,
        virtual_seconds=first.virtual_seconds,
    )


def memory(federation: Federation, served: Ids, traffic: Sequence[PlannedTraffic], *, torch: bool, pooled: bool) -> int:
    """Estimate the bytes of memory that an actor needs for its hospitals and for a round. ``served`` has the hospitals'
    ids.

    ``pooled``: whether the actor also holds the training rows of all other hospitals.
    """
    row = sum(array.itemsize * array[:1].size for array in (federation.X, federation.y, federation.observed))
    rows = int(federation.totals[served].sum())
    if pooled:
        rows += int(federation.sizes("train").sum() - federation.sizes("train")[served].sum())
    parameters = max((t.parameters for t in traffic), default=0) * 8
    working = min(max(CHUNK_BYTES, parameters), len(served) * parameters) + WORKING_COPIES * parameters
    plan = max((t.plan for t in traffic), default=0)
    return PROCESS_BYTES + TORCH_BYTES * torch + rows * row + working + plan


class _Measured(Exception):
    """Stops the dry run when all messages to be measured have been made."""


class _DryRunPool:
    """A pool that stores the instructions for rounds.

    Local training is replaced by placeholder values; calls of client programs are executed.
    """

    def __init__(self, placement: Placement) -> None:
        self.served = placement.served
        self.plans: list[RoundPlan] = []
        self._placement = placement

    def round(self, plan: RoundPlan, memory: StateReferences | None) -> tuple[list[PartialResult], StateReferences]:
        if not plan.at_once:
            self.plans.append(plan)
        if plan.measured.serve:
            raise _Measured
        if plan.call is not None and plan.problem is None:  # the next message depends on the sums
            return self._hospitals.round(plan, memory)
        empty: list[HospitalStates] = [{} for _ in self.served]
        partials = [self.partial(plan, ids, i == 0) for i, ids in enumerate(self.served)]
        for partial in partials[1:]:
            partial.units = None  # the values do not matter, and adding them up would take time
        return partials, empty

    def recall(self, memory: StateReferences) -> HospitalStates:
        return {}

    @cached_property
    def _hospitals(self) -> LocalPool:
        return LocalPool(self._placement, "cpu")

    def partial(self, plan: RoundPlan, served: Ids, pools: bool) -> PartialResult:
        """Return a made-up reply to the instructions ``plan``, as the actor with the hospitals ``served`` would send
        it. Its numbers are arbitrary.

        ``pools``: whether this actor also trains on the pooled rows of all hospitals.
        """
        result, problem = PartialResult(), plan.problem
        if problem is not None:
            mine = plan.ids[np.isin(plan.ids, served) | ((plan.ids == POOLED) & pools)]
            size = plan.models.shape[1]
            result.ids = mine if len(mine) else None
            if problem.sent is not None and len(mine):
                # One number broadcast: the sums of a hundred nodes would not fit into this process.
                result.units = np.broadcast_to(np.int64(1), (sum_count(problem, size), size))
            if problem.sent is not None and problem.sent.single and len(mine):
                result.deltas = np.broadcast_to(np.float64(1e-3), (len(mine), size))
            if plan.losses and len(mine):
                result.losses = np.full(len(mine), 0.5)
        if problem is None and plan.call is not None and len(mine := plan.ids[np.isin(plan.ids, served)]):
            layout = SumLayout(plan.call.program)
            result.ids, result.sums = mine, np.ones(layout.size, np.int64)
            result.each = {name: np.zeros((len(mine), *send.shape)) for name, send in layout.each.items()}
        for name in plan.measured.losses_of:
            result.measured.loss_sums[name] = np.ones((len(served), 2))
        for name in plan.measured.serve:
            result.measured.figures[name] = np.zeros(
                (len(served), len(Federation.open(plan.work.federation).task.figures))
            )
        return result


def _up(plan: RoundPlan, placement: Placement, pool: _DryRunPool) -> tuple[int, int]:
    """Return the bytes that Ray moves in a round for replies and sums.

    The first number is for replies to the coordinator, the second for sums between nodes.
    """
    nodes = placement.nodes
    apart = set(node_sums.with_sums(plan, placement.served)) if len(set(nodes)) > 1 else set()
    size, arriving, between = node_sums.sums_bytes(plan), set(apart), 0
    for group in (group for level in node_sums.additions(sorted(apart), nodes) for group in level):
        arriving -= set(group[1:])
        between += size * sum(nodes[actor] != nodes[group[0]] for actor in group)
    partials = [pool.partial(plan, ids, i == 0) for i, ids in enumerate(placement.served)]
    for actor in apart - arriving:
        partials[actor].units = None
    return sum(map(_partial_size, partials)), between


def _size(message: object) -> int:
    return len(pickle.dumps(message, protocol=5))


def _partial_size(partial: PartialResult) -> int:
    """Return the bytes of an actor's reply."""
    hollow = replace(
        partial,
        units=None if partial.units is None else partial.units[:, :0],
        deltas=None if partial.deltas is None else partial.deltas[:, :0],
    )
    return _size(hollow) + sum(array.nbytes for array in (partial.units, partial.deltas) if array is not None)


def _actor(plan: Plan, actor: int) -> PlannedActor:
    ids, (cpus, gpus) = plan.placement.served[actor], plan.placement.share(actor)
    federation, traffic, device = plan.federation, list(plan.traffic.values()), plan.config.resources.device
    torch = device == "cuda" or (device == "auto" and gpus > 0) or "torch" in sys.modules
    pooled = actor == 0 and any(t.pooled for t in traffic)
    needs = memory(federation, ids, traffic, torch=torch, pooled=pooled)
    largest = [
        federation.hospitals[hospital] for hospital in ids[np.argsort(-federation.totals[ids], kind="stable")][:2]
    ]
    rows = int(federation.totals[ids].sum())
    return PlannedActor(plan.placement.nodes[actor], 1, len(ids), largest, rows, cpus, gpus, needs)

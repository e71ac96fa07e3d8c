"""The server's calls of client programs: how calls are sent, and how their answers are processed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from raysim.adversaries.who import ON_ROWS
from raysim.core.errors import ConfigError, StrategyError
from raysim.engine.job import Job
from raysim.engine.messages.plan import PartialResult, ProgramCall, collected
from raysim.engine.messages.program_sums import SumLayout
from raysim.engine.messages.steps import HospitalStep
from raysim.engine.privacy.program_release import MODES
from raysim.engine.server.update_pipeline import UpdatePipeline
from raysim.strategies.base import POOLED, Answers, Call, Ids, Invalid, LocalProblem
from raysim.strategies.checks.calls import check_call
from raysim.traffic.exchange import Traffic
from raysim.traffic.ledger import UPDATE

if TYPE_CHECKING:
    from raysim.config.sections.privacy import PrivacySection


def check_programs(job: Job) -> None:
    """Raise ``ConfigError`` if the strategy runs client programs, but a section of the job, such as ``compression``,
    does not allow them.
    """
    if not job.strategy.uses_programs():
        return
    compressed = job.compression is not None and job.compression.name != "none"
    sections = {
        "adversary": (
            job.adversary is not None and job.adversary.attack not in ON_ROWS,
            f"attacks other than {', '.join(ON_ROWS)} change what local training sends",
        ),
        "aggregation": (
            job.aggregation is not None,
            "robust rules compare single updates of one model, not sums",
        ),
        "compression": (
            compressed,
            "only updates of local training can be compressed",
        ),
        "system": (
            job.system is not None,
            "the virtual clock can only compute the time of local training",
        ),
    }
    for section, (present, why) in sections.items():
        if present:
            raise ConfigError(
                f"{section}: {why}, but strategy '{job.name}' uses client programs; remove the section, or choose "
                "another strategy"
            )
    if job.privacy is not None:
        _check_private(job, job.privacy)
    if job.strategy.uses_selection() and job.selection.uses_losses:
        raise ConfigError(
            f"selection.name: '{type(job.selection).__name__}' needs the losses that hospitals send with updates, but "
            f"strategy '{job.name}' uses client programs, which send no updates; choose another selection"
        )


def _check_private(job: Job, section: PrivacySection) -> None:
    """Raise ``ConfigError`` if noise on the sums of client programs cannot satisfy the privacy guarantee in
    ``section``.
    """
    needs = job.strategy.needs
    if needs.kind != "programs" or section.effective_mode not in MODES:
        why = needs.why or "has client programs"
        remedy = "" if needs.kind != "programs" else f"set privacy.mode: {' or '.join(MODES)}, "
        raise ConfigError(
            f"strategy.name: '{job.name}' {why}, which privacy.mode: {section.effective_mode} does not cover, so "
            f"privacy.unit: {section.unit} cannot be guaranteed; {remedy}choose another strategy or leave privacy out"
        )
    if needs.by is not None and (needs.by == "hospital") != (section.unit == "hospital"):
        raise ConfigError(
            f"strategy.name: '{job.name}' bounds the contribution of each {needs.by}, so privacy.unit: "
            f"{section.unit} cannot be "
            "guaranteed; choose another strategy or leave privacy out"
        )
    if section.rate is not None:
        raise ConfigError(
            f"privacy.rate: {section.rate:g} samples patients, but strategy '{job.name}' sums over all rows; "
            "remove privacy.rate"
        )
    if section.adaptive is not None:
        raise ConfigError(
            f"privacy.adaptive: adapts the clip of updates, but strategy '{job.name}' sends none; "
            "remove privacy.adaptive"
        )


def check_immediate(call: Call, sizes: Ids, job: str) -> None:
    """Check a ``call`` that a strategy makes before the first round or outside a round's training. Raises
    :class:`StrategyError` if the call is invalid, sends sums or stores values.

    ``job`` is the strategy's name; ``sizes [N]`` are the hospitals' numbers of training rows.
    """
    try:
        check_call(call, sizes)
        for name, send in call.program.sends.items():
            if send.how != "each":
                raise Invalid(
                    f"program '{call.program.name}': {name}: only calls within a round can send sums; set how: each in "
                    "its Send"
                )
        if call.program.remembers:
            raise Invalid(
                f"program '{call.program.name}': only calls within a round can store values; remove keeps= from it"
            )
    except Invalid as error:
        raise StrategyError(f"strategy '{job}': {error}") from None


class ProgramCalls:
    """The calls of client programs by the strategy of a ``job``. ``sizes [N]`` are the hospitals' numbers of training
    rows.
    """

    def __init__(self, job: Job, sizes: Ids, traffic: Traffic, pipeline: UpdatePipeline) -> None:
        self._job, self._sizes, self._traffic, self._pipeline = job, sizes, traffic, pipeline
        self._turns: Counter[str] = Counter()
        self._round = 0
        self.called = np.zeros(0, np.int64)
        """The ids of the hospitals called so far in this round, ascending."""

    def begin(self, round: int) -> None:
        """Begin a ``round`` in which no call has been made yet."""
        self._round, self._turns = round, Counter()
        self.called = np.zeros(0, np.int64)

    def planned(self, call: Call) -> tuple[ProgramCall, tuple[HospitalStep, ...]]:
        """Return the call as hospitals receive it, and the steps that hospitals apply to what they send.

        Raises ``ConfigError`` if secure aggregation or noise is configured, but cannot hide what this call sends.
        """
        program, hospitals = call.program, len(call.ids)
        number, turn = sum(self._turns.values()), self._turns[program.name]
        self._turns[program.name] += 1
        self.called = np.union1d(self.called, call.ids)
        pooled = bool((call.ids == POOLED).any())
        rows = int(self._sizes.sum() if pooled else self._sizes[call.ids].sum())
        name = f"strategy '{self._job.name}', round {self._round}, program '{program.name}'"
        planned = ProgramCall(
            program,
            name,
            turn,
            {name: np.asarray(value) for name, value in call.received.items()},
            {name: np.asarray(value) for name, value in call.each_of.items()},
            {name: rows if send.by == "row" else hospitals for name, send in program.sends.items()},
        )
        return planned, self._pipeline.call_steps(self._round, call, number, name)

    def training(self, problem: LocalProblem) -> ProgramCall | None:
        """Return the client program that replaces local training for a ``problem``; None means the built-in
        training.
        """
        program = problem.program
        if program is None:
            return None
        name = f"strategy '{self._job.name}', round {self._round}, program '{program.name}'"
        # Arrays are sent in the precision of hospitals, like models.
        arrays = {name: np.asarray(value).astype(self._job.work.precision) for name, value in problem.received.items()}
        return ProgramCall(program, name, 0, arrays, {}, {})

    def answers(self, call: Call, planned: ProgramCall, partials: Sequence[PartialResult]) -> Answers:
        """Return the merged answers to a call, and add the call's messages to the traffic."""
        layout = SumLayout(call.program)
        total = np.zeros(layout.size, np.int64)
        for partial in partials:
            if partial.sums is not None:
                total += partial.sums
        ids, each = collected(partials, layout)
        total = self._pipeline.opened_call(total)
        self._count(call, planned, layout, ids)
        sums, counts = layout.values(total)
        return Answers(sums, each, ids, counts)

    def _count(self, call: Call, planned: ProgramCall, layout: SumLayout, answered: Ids) -> None:
        program, hospitals = call.program.name, len(call.ids)
        if (call.ids == POOLED).any() or not hospitals:
            return
        received = sum(
            array.nbytes * (hospitals - self._traffic.known(array, call.ids)) for array in planned.received.values()
        )
        received += sum(array.nbytes for array in planned.each_of.values())
        # Models are learned from these noisy sums, so the guarantee covers them like updates.
        kinds = layout.kinds() if self._job.privacy is None else {UPDATE: sum(layout.kinds().values())}
        secure = self._pipeline.secure
        if secure is not None and (moved := secure.bytes_of_call(call.ids, layout.size)) is not None:
            self._traffic.called(program, " + ".join(kinds), call.ids, moved[0], received + moved[1])
            return
        for kind, sent in kinds.items():
            self._traffic.called(program, kind, answered, np.full(len(answered), sent, dtype=np.int64), received)
            received = 0

"""The step in which a hospital makes a message of its update, as the problem asks for."""

from __future__ import annotations

import numpy as np

from raysim.engine.messages.steps import NUMBERS, UPDATE, HospitalStep, Leaving
from raysim.engine.pipeline.step import Step
from raysim.strategies.base import Ids, LocalProblem


class MakeMessage(HospitalStep):
    """Replaces the update by the message of the problem and its numbers.

    Where hospitals choose the model that they start from, all are in all sums: zeros go into those of other models.
    """

    def forward(self, leaving: Leaving) -> None:
        if not leaving.makes:
            return
        made, group, message = leaving.checked(), leaving.sum_index, leaving.upload.message
        if message is None:
            leaving.vectors = {}
        else:
            made, numbers = message.made(made, group, leaving.loss())
            leaving.vectors = {} if message.counts else {NUMBERS: numbers}
            leaving.counts = numbers if message.counts else None
        updates = {UPDATE: made}
        if leaving.chosen is not None:
            updates = {f"{UPDATE} {g}": np.zeros_like(made) for g in range(leaving.upload.sums)}
            updates[f"{UPDATE} {group}"] = made
        leaving.vectors = updates | leaving.vectors


class Making(Step):
    """Has hospitals make messages where a problem asks for that."""

    def half(self, round: int, problem: LocalProblem, ids: Ids) -> HospitalStep | None:
        sent = problem.sent
        return MakeMessage() if sent is not None and (sent.message is not None or problem.chosen) else None

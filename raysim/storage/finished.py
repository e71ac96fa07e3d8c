"""Stores the data of a finished run until all runs of its comparison are finished."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from raysim.adversaries.attack_effect import AttackFigures
from raysim.config.checking import validated
from raysim.core.atomic import replacing
from raysim.core.errors import ConfigError
from raysim.engine.job import Outcome, Round
from raysim.engine.measuring.losses import TrainingLosses
from raysim.engine.measuring.stopping import Stopped
from raysim.engine.measuring.subgroups import Grouping
from raysim.engine.packing import Arrays, pack, pack_newcomers, unpack, unpack_newcomers
from raysim.metrics.error_counts import ErrorCounts
from raysim.metrics.score_counts import ScoreCounts
from raysim.privacy.statement import Statement
from raysim.statistics.discrimination.auroc import PairSums
from raysim.statistics.patient_groups.within import WithinGap
from raysim.storage.encoding import UNREADABLE, pack_ledger, read_tensors, unpack_ledger
from raysim.traffic.ledger import Bytes
from raysim.training.base import Layout

FINISHED = "finished.safetensors"

AS_THEY_ARE = ("figures", "sketches", "predictions", "untrained", "one_class", "groups", "cluster")
"""The fields of an :class:`Outcome` that are stored without conversion."""

COUNTED = {"errors": ErrorCounts, "scores": ScoreCounts, "validation_scores": ScoreCounts}
"""The fields of an :class:`Outcome` that map models to named tuples, with the class of the tuples."""


def save_finished(folder: Path, outcome: Outcome, *, models: bool = False) -> None:
    """Write the data of a finished run that its comparison needs, with model parameters only if ``models``."""
    from safetensors.numpy import save

    arrays: Arrays = {}
    header = {
        **{name: pack(getattr(outcome, name), name, arrays) for name in AS_THEY_ARE},
        **{
            name: pack({model: tuple(each) for model, each in getattr(outcome, name).items()}, name, arrays)
            for name in COUNTED
        },
        "rounds": [vars(row) for row in outcome.rounds],
        "pairs": pack({model: np.stack(sums) for model, sums in outcome.pairs.items()}, "pairs", arrays),
        "gaps": {attribute: dataclasses.asdict(gap) for attribute, gap in outcome.gaps.items()},
        "grouping": None if outcome.grouping is None else pack(dataclasses.astuple(outcome.grouping), "", arrays),
        "ledger": pack_ledger(outcome.ledger, arrays),
        "metrics": outcome.metrics,
        "serve": pack(outcome.serve if models else {}, "serve", arrays),
        "newcomers": pack_newcomers(outcome.newcomers if models else None, arrays),
        "private": pack(outcome.private if models else None, "private", arrays),
        "models": pack(outcome.models if models else np.empty((0, 0)), "models", arrays),
        "seconds": outcome.seconds,
        "setup": dataclasses.astuple(outcome.setup),
        "losses": dataclasses.asdict(outcome.losses),
        "stopped": None if outcome.stopped is None else dataclasses.asdict(outcome.stopped),
        "ended": outcome.ended,
        "facts": outcome.facts,
        **({} if outcome.attack is None else {"attack": dataclasses.asdict(outcome.attack)}),
        "told_sizes": pack(outcome.noisy_sizes, "told_sizes", arrays),
        "privacy": None if outcome.privacy is None else dataclasses.asdict(outcome.privacy),
    }
    with replacing(folder / FINISHED) as path:
        path.write_bytes(save(arrays, {"raysim": json.dumps(header)}))


def load_finished(folder: Path) -> Outcome | None:
    """Read the outcome that :func:`save_finished` wrote; None if it is missing or damaged."""
    try:
        arrays, header = read_tensors((folder / FINISHED).read_bytes())
        metrics = validated(dict[str, dict[str, float]], header["metrics"], "metrics")
        entries: dict[str, Any] = {name: unpack(header[name], arrays) for name in (*AS_THEY_ARE, *COUNTED)}
        entries |= {name: {model: cls(*each) for model, each in entries[name].items()} for name, cls in COUNTED.items()}
        hospitals = len(next(iter(entries["figures"].values())))
        return Outcome(
            **entries,
            rounds=validated(list[Round], header["rounds"], "rounds"),
            gaps=validated(dict[str, WithinGap], header["gaps"], "gaps"),
            grouping=None if header["grouping"] is None else Grouping(*unpack(header["grouping"], arrays)),
            pairs={model: PairSums(*sums) for model, sums in unpack(header["pairs"], arrays).items()},
            metrics=metrics,
            serve=unpack(header["serve"], arrays),
            models=unpack(header["models"], arrays),
            newcomers=unpack_newcomers(header["newcomers"], arrays),
            private=unpack(header["private"], arrays),
            own_models={},
            layout=Layout((), ()),
            ledger=unpack_ledger(header["ledger"], arrays, hospitals),
            seconds=validated(float, header["seconds"], "seconds"),
            setup=validated(Bytes, Bytes(*header["setup"]), "setup"),
            losses=TrainingLosses(**header["losses"]),
            ended=validated(bool, header["ended"], "ended"),
            facts=validated(dict[str, float], header["facts"], "facts"),
            stopped=None if header["stopped"] is None else Stopped(**header["stopped"]),
            attack=AttackFigures(**header["attack"]) if "attack" in header else None,
            noisy_sizes=unpack(header["told_sizes"], arrays),
            privacy=None if header["privacy"] is None else validated(Statement, header["privacy"], "privacy"),
        )
    except (OSError, ConfigError, *UNREADABLE):
        return None

"""Stores the data of a finished run until all runs of its comparison are finished."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
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
from raysim.statistics.patient_groups.composition import Composition
from raysim.statistics.patient_groups.risks import GroupRisk
from raysim.statistics.patient_groups.within import PairGap, WithinGap
from raysim.storage.encoding import UNREADABLE, pack_ledger, read_tensors, unpack_ledger
from raysim.traffic.ledger import Bytes
from raysim.training.base import Layout

FINISHED = "finished.safetensors"


def save_finished(folder: Path, outcome: Outcome, *, models: bool = False) -> None:
    """Write the data of a finished run that its comparison needs. Models are written only with ``models``."""
    from safetensors.numpy import save

    arrays: Arrays = {}
    header = {
        "rounds": [vars(row) for row in outcome.rounds],
        "figures": pack(outcome.figures, "figures", arrays),
        "pairs": pack({model: np.stack(sums) for model, sums in outcome.pairs.items()}, "pairs", arrays),
        "sketches": pack(outcome.sketches, "sketches", arrays),
        "predictions": pack(outcome.predictions, "predictions", arrays),
        "untrained": pack(outcome.untrained, "untrained", arrays),
        "one_class": pack(outcome.one_class, "one_class", arrays),
        "groups": pack(outcome.groups, "groups", arrays),
        "gaps": {attribute: dataclasses.asdict(gap) for attribute, gap in outcome.gaps.items()},
        "grouping": None if outcome.grouping is None else pack(dataclasses.astuple(outcome.grouping), "", arrays),
        "ledger": pack_ledger(outcome.ledger, arrays),
        "errors": pack(_as_tuples(outcome.errors), "errors", arrays),
        "scores": pack(_as_tuples(outcome.scores), "scores", arrays),
        "validation_scores": pack(_as_tuples(outcome.validation_scores), "validation_scores", arrays),
        "metrics": outcome.metrics,
        "cluster": pack(outcome.cluster, "cluster", arrays),
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


def _as_tuples(counted: Mapping[str, ScoreCounts] | Mapping[str, ErrorCounts]) -> dict[str, tuple[Any, ...]]:
    return {model: tuple(counts) for model, counts in counted.items()}


def _as_counts(scores: Mapping[str, tuple[Any, ...]]) -> dict[str, ScoreCounts]:
    return {model: ScoreCounts(*counts) for model, counts in scores.items()}


def _as_gap(packed: Mapping[str, Any]) -> WithinGap:
    one, several = packed["pair"], packed["pairs"]
    rebuilt = {
        "pair": PairGap(**{**one, "groups": tuple(one["groups"])}),
        "pairs": tuple(PairGap(**{**pair, "groups": tuple(pair["groups"])}) for pair in several),
        "composition": Composition(*packed["composition"]),
        "composition_ratio": Composition(*packed["composition_ratio"]),
        "risks": tuple(GroupRisk(*risk) for risk in packed["risks"]),
    }
    return WithinGap(**{**packed, **rebuilt})


def load_finished(folder: Path) -> Outcome | None:
    """Read the result of :func:`save_finished`; None if it is damaged. Models are missing if they were not written."""
    try:
        arrays, header = read_tensors((folder / FINISHED).read_bytes())
        metrics = validated(dict[str, dict[str, float]], header["metrics"], "metrics")
        figures = unpack(header["figures"], arrays)
        hospitals = len(next(iter(figures.values())))
        return Outcome(
            rounds=validated(list[Round], header["rounds"], "rounds"),
            figures=figures,
            groups=unpack(header["groups"], arrays),
            gaps={attribute: _as_gap(gap) for attribute, gap in header["gaps"].items()},
            grouping=None if header["grouping"] is None else Grouping(*unpack(header["grouping"], arrays)),
            pairs={model: PairSums(*sums) for model, sums in unpack(header["pairs"], arrays).items()},
            sketches=unpack(header["sketches"], arrays),
            predictions=unpack(header["predictions"], arrays),
            untrained=unpack(header["untrained"], arrays),
            one_class=unpack(header["one_class"], arrays),
            errors={model: ErrorCounts(*counts) for model, counts in unpack(header["errors"], arrays).items()},
            scores=_as_counts(unpack(header["scores"], arrays)),
            validation_scores=_as_counts(unpack(header["validation_scores"], arrays)),
            metrics=metrics,
            serve=unpack(header["serve"], arrays),
            models=unpack(header["models"], arrays),
            newcomers=unpack_newcomers(header["newcomers"], arrays),
            private=unpack(header["private"], arrays),
            cluster=unpack(header["cluster"], arrays),
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

"""The answer of a comparison of which no more is known than its tables."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from raysim.report import naming
from raysim.report.judgement.answer import Answer, answer_from
from raysim.report.judgement.compose import comparison_card
from raysim.report.judgement.evidence import evidence_from
from raysim.report.judgement.gathered import Asked
from raysim.report.judgement.noise import Noise
from raysim.report.naming import Key
from raysim.report.tables import comparison, complete


def answered(
    per_seed: pd.DataFrame,
    hospitals: pd.DataFrame,
    reference: str,
    alone: tuple[str, ...] = (),
    noise: Mapping[Key, Noise] | None = None,
) -> Answer:
    """The answer; ``alone`` are the strategies in which hospitals train alone."""
    shown = evidence_from(per_seed, hospitals, reference, alone=alone)
    called = naming.names(comparison(complete(per_seed)), {})
    asked = Asked("death in hospital", "test", None, counted=True)
    card = comparison_card(shown, (), hospitals, asked, names=called, noise=noise or {})
    return answer_from(card, shown, noise)

"""Errors and warnings on attacks and robust rules, before anything starts."""

from __future__ import annotations

from collections.abc import Sequence

from raysim.adversaries.who import bad_hospitals
from raysim.config.sections.adversary import AdversarySection
from raysim.config.sections.aggregation import AggregationSection
from raysim.core.errors import ConfigError, nearest
from raysim.data.federation import Federation
from raysim.robust.breakdown import NEEDS, bears


def check_attacks(
    adversary: AdversarySection | None, aggregation: AggregationSection | None, federation: Federation, seed: int
) -> None:
    """Raise ``ConfigError`` if this federation does not allow the attack or the robust rule."""
    names, classes = federation.hospitals, len(federation.classes)
    trained = int((federation.sizes("train") > 0).sum())
    if aggregation is not None and aggregation.kept is not None and aggregation.kept > trained:
        raise ConfigError(
            f"aggregation.kept: {aggregation.kept} is more than the {trained} hospitals with training rows, whose "
            "updates are averaged; lower it"
        )
    if aggregation is not None and aggregation.root is not None:
        _check_name("aggregation.root", aggregation.root, names)
    if adversary is None:
        return
    bad = bad_hospitals(seed, len(names), adversary.share)
    if len(bad) >= len(names):
        raise ConfigError(
            f"adversary.share: {adversary.share} makes all {len(names)} hospitals Byzantine; leave at least one honest"
        )
    if adversary.hospital is not None:
        _check_name("adversary.hospital", adversary.hospital, names)
    if adversary.feature is not None:
        _check_name("adversary.feature", adversary.feature, federation.features)
    if adversary.attack in ("label_flip", "backdoor") and not classes:
        raise ConfigError(
            f"adversary.attack: '{adversary.attack}' changes classes, and the label is a number; choose another attack"
        )
    if adversary.attack == "backdoor" and adversary.label >= classes:
        raise ConfigError(
            f"adversary.label: {adversary.label} is not the number of a class; the label has {classes} classes; write "
            f"a number from 0 to {classes - 1}"
        )
    if aggregation is not None and aggregation.root in [names[i] for i in bad.tolist()]:
        raise ConfigError(
            f"aggregation.root: '{aggregation.root}' is one of the hospitals that adversary.share makes Byzantine; "
            "name another"
        )


def warnings(adversary: AdversarySection | None, aggregation: AggregationSection | None, hospitals: int) -> list[str]:
    """Return warnings on the attack's share of Byzantine hospitals and on the share that the robust rule assumes.

    The list has a warning for each share that the rule does not tolerate, and one if the attack's share exceeds the
    assumed share.
    """
    if aggregation is None:
        return []
    m, bucketing = hospitals, aggregation.before == "bucketing"
    if bucketing:
        # Imported only here: most runs have no robust rule.
        from raysim.robust.aggregation import Aggregation, bucket_size

        m = -(-hospitals // bucket_size(hospitals, aggregation.make(Aggregation).count(hospitals)))
    lines = []
    for key, share in (
        ("adversary.share", 0.0 if adversary is None else adversary.share),
        ("aggregation.assumed", aggregation.assumed),
    ):
        f = int(share * hospitals + 1e-9)
        if not bears(aggregation.name, m, f):
            needs = NEEDS[aggregation.name][0]
            if aggregation.name != "mean":
                buckets = f" buckets for f Byzantine hospitals; bucketing makes {m}"
                needs += buckets if bucketing else " hospitals for f Byzantine ones"
            lines.append(
                f"warning: {key}: {f} of {hospitals} hospitals are more than '{aggregation.name}' tolerates, which "
                f"needs {needs}"
            )
    if adversary is not None and adversary.share > aggregation.assumed:
        lines.append(f"warning: adversary.share: {adversary.share} is above aggregation.assumed: {aggregation.assumed}")
    return lines


def _check_name(key: str, name: str, choices: Sequence[str]) -> None:
    if name not in choices:
        raise ConfigError(f"{key}: '{name}' does not exist; {nearest(name, choices)}")

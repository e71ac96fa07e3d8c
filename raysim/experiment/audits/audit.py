"""``raysim audit``: attack the privacy of a configuration's run, and report what the attacks find at each hospital.

Three questions:

- Does a model reveal whose rows it was trained on? The loss-threshold attack compares training rows with test rows.
  LiRA trains ``shadows`` more models, each on a random half of the rows, and compares the models trained with a row to
  those trained without it.
- How large is epsilon at least? A fair coin decides whether each canary, an artificial row or hospital, is added. The
  number of coins that an auditor guesses right gives a lower bound (:mod:`raysim.audit.one_run`). The canaries of
  :mod:`raysim.experiment.audits.canary_audit` are used if the run has a privacy guarantee, its hospitals send updates,
  and the first layer of its model is dense. In all other cases, canaries are rows of random signs with random labels,
  and the auditor sees only the last model.
- What does the update of one row reveal? For a model of dense layers, the row itself (:mod:`raysim.audit.inversion`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from raysim.config.schema import Config
from raysim.config.sections.privacy import AuditSection
from raysim.core.atomic import plain
from raysim.core.errors import ConfigError, PrivacyBroken
from raysim.data.federation import Federation
from raysim.experiment.audits.auditor import Audit, Auditor
from raysim.experiment.audits.canary_audit import can_hold_canaries, canary_bound
from raysim.experiment.runs import Experiment
from raysim.experiment.session import Session, open_session
from raysim.report.terminal.progress import data_warnings
from raysim.training.canaries import check_cpu

FEWEST_SHADOWS = 4
"""Smallest number of shadow federations other than 0."""

MOST = {"shadows": 10_000, "canaries": 1_000_000}
"""Largest numbers of shadow federations and of canaries."""


def audit(
    config: Config,
    out: Path | None,
    *,
    shadows: int,
    canaries: int | None = None,
    in_process: bool,
    verbose: bool = False,
    say: Callable[[str], None] = print,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Run the attacks on ``config`` and return the folder of the results: the page, ``audit.json``, ``membership.csv``
    and, for dense models, ``inversion.csv``.

    ``shadows`` and ``canaries`` are the numbers of shadow models and of canaries. ``say`` prints warnings; ``progress``
    receives lines on progress. Raises ``ConfigError`` for settings that cannot be audited. After the files are written,
    raises ``PrivacyBroken`` if the lower bound of epsilon exceeds the claimed epsilon.
    """
    if shadows and shadows < FEWEST_SHADOWS:
        raise ConfigError(f"--shadows: {shadows} are too few to fit densities; name 0 or at least {FEWEST_SHADOWS}")
    if canaries is None:
        asked = None if config.privacy is None else config.privacy.audit
        canaries = (asked or AuditSection()).canaries
    if canaries < 0:
        raise ConfigError(f"--canaries: {canaries} is negative; give 0 or more")
    for name, count in (("shadows", shadows), ("canaries", canaries)):
        if count > MOST[name]:
            raise ConfigError(f"--{name}: {count:,} are more than the maximum of {MOST[name]:,}; name fewer")
    experiment = Experiment(config, [config], (config.seed,), out)
    federation = experiment.federations[config.seed]
    if not federation.classes:
        raise ConfigError("data.label: is a number, but an audit needs classes; choose another label")
    job = experiment.job(config.seed)
    for line in data_warnings([federation], config.privacy is not None):
        say(line)

    def opened(audited: Federation) -> AbstractContextManager[Session]:
        names = audited.hospitals if audited.hospitals == federation.hospitals else ()
        return open_session(audited.totals, config.resources, in_process=in_process, verbose=verbose, names=names)

    holds_canaries = job.privacy is not None and can_hold_canaries(job, federation)
    if holds_canaries and canaries and job.privacy is not None and job.privacy.unit != "hospital":
        check_cpu(config.resources.device)
    with tempfile.TemporaryDirectory() as folder:
        auditor = Auditor(job, federation, opened, Path(folder), progress or say)
        result = auditor.audit(shadows, 0 if holds_canaries else canaries)
    if holds_canaries and canaries:
        with tempfile.TemporaryDirectory() as folder:
            result.summary["one_run"] = canary_bound(
                replace(job, adversary=None), federation, opened, Path(folder), canaries
            )
    if result.inverted is not None:
        protected = config.privacy is not None or config.secure is not None
        result.summary["inversion"] = reading(result.inverted, protected=protected)
    written = _write(experiment, result)
    _check(result, written)
    return written


EXACT = 1e-6
"""A row counts as reconstructed exactly if no value deviates by more than this number times the row's largest absolute
value, or times 1 if all values are smaller."""


def reading(inverted: pd.DataFrame, *, protected: bool) -> dict[str, Any]:
    """Return, for ``audit.json``, how far the reconstructed row deviates from the patient's row.

    ``inverted`` is the content of ``inversion.csv``. ``protected``: whether the run adds noise to updates, or sums them
    securely. The deviation is NaN if no row was read.
    """
    most = float((inverted["patient"] - inverted["read_from_update"]).abs().max(skipna=False))
    largest = max(1.0, float(inverted["patient"].abs().max()))
    return {
        "features": len(inverted) - 1,
        "deviation": most,
        "exact": bool(most <= EXACT * largest),
        "protected": protected,
    }


def _check(result: Audit, folder: Path) -> None:
    """Raise :class:`PrivacyBroken` if the lower bound from canaries exceeds the epsilon that the run claims."""
    bound = result.summary.get("one_run", {})
    claimed = bound.get("epsilon_claimed")
    if claimed is not None and bound["epsilon_at_least"] > claimed:
        raise PrivacyBroken(
            f"privacy: epsilon is at least {bound['epsilon_at_least']:.3g} (95 %), and the run claims {claimed:.3g}; "
            f"do not publish its models ({folder / 'audit.json'})"
        )


def _write(experiment: Experiment, result: Audit) -> Path:
    from raysim.experiment.run_page import page_provenance
    from raysim.report.pages.audit import audit_page
    from raysim.storage.manifest import Manifest
    from raysim.storage.results import write_config

    federation = experiment.federations[experiment.config.seed]
    out = Manifest.begin(experiment.folder, "audit")
    write_config(out, experiment.config.frozen_run(), federation)
    out.csv("membership.csv", result.membership.drop(columns="variance"))
    if result.inverted is not None:
        out.csv("inversion.csv", result.inverted)
    summary = plain(result.summary)
    out.json("audit.json", summary)
    seed, frozen = experiment.config.seed, experiment.config.frozen_run()
    counted = not experiment.config.hides_sizes
    about = page_provenance(frozen, {seed: federation}, "raysim audit config.yaml", counted=counted)
    title = f"{experiment.config.name}: what the run reveals about its patients"
    out.text("audit.html", audit_page(title, summary, result.membership, result.inverted, about))
    return experiment.folder

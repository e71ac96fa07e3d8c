"""The command ``raysim audit``, which the entry-point group ``raysim.commands`` names; imports only typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from raysim.cli.options import (
    InProcess,
    Json,
    Open,
    Out,
    Set,
    Verbose,
    console_of,
    greet,
    places_of,
    print_json,
    show_end,
)
from raysim.cli.usage import NUMBER, whole_number

PAGE = "audit.html"
"""The page that an audit leaves."""

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML: a run.")]
Shadows = Annotated[
    int,
    typer.Option(
        parser=whole_number, metavar=NUMBER, help="Federations of LiRA, in which each row is in or out; 0: none."
    ),
]
Canaries = Annotated[
    int | None,
    typer.Option(
        parser=whole_number,
        metavar=NUMBER,
        help="Rows added by a fair coin, for a lower bound of epsilon; default privacy.audit.canaries, or 200.",
    ),
]


def audit(
    config: ConfigPath,
    set_: Set = None,
    out: Out = None,
    shadows: Shadows = 16,
    canaries: Canaries = None,
    in_process: InProcess = False,
    json: Json = False,
    open_: Open = False,
    verbose: Verbose = False,
) -> None:
    """Attack a run's privacy, and say what the attacks found.

    Who was trained on, how much epsilon is at least, what an update shows.
    """
    greet()
    from functools import partial

    from raysim.config import reading
    from raysim.core import bounded
    from raysim.experiment.audits.audit import audit as play
    from raysim.report.terminal.progress import say, waiting

    console = console_of(json)
    with waiting(console, "playing the run and attacking it"):
        folder = play(
            reading.resolve(config, set_ or []),
            out,
            shadows=shadows,
            canaries=canaries,
            in_process=in_process,
            verbose=verbose,
            say=partial(say, console),
        )
    summary = bounded.read_json(folder / "audit.json")
    if json:
        print_json(places_of(folder, PAGE) | summary)
    else:
        for attack in ("loss_threshold", "lira"):
            if attack in summary:
                say(console, _membership(attack, summary[attack]))
        if "one_run" in summary:
            say(console, _bound(summary["one_run"]))
    show_end(folder, console, out, open_, PAGE)


def _membership(attack: str, figures: dict[str, float]) -> str:
    text = (
        f"{attack.replace('_', ' ')}: members are told from others with AUROC {figures['auroc']:.3f} "
        f"({figures['auroc_low']:.3f} to {figures['auroc_high']:.3f})"
    )
    if figures["smaller_leak_more"]:
        return f"{text}; smaller hospitals leak more"
    if figures["larger_leak_more"]:
        return f"{text}; larger hospitals leak more"
    return f"{text}; no difference by size of hospital is shown"


def _bound(figures: dict[str, float]) -> str:
    return (
        f"epsilon is at least {figures['epsilon_at_least']:.2f} (95 %, delta {figures['delta']:g}): "
        f"{figures['right']} of {figures['guesses']} guesses on {figures['canaries']} canaries were right; "
        f"so many canaries can show {figures['ceiling']:.2f} at most"
        + ("" if figures["epsilon_claimed"] is None else f"; the run claims {figures['epsilon_claimed']:.3g}")
    )

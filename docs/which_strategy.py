"""Write docs/pictures/which-strategy.svg: the questions of docs/which-strategy.md as a tree.

``python docs/which_strategy.py`` writes the picture again.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

PICTURE = Path(__file__).parent / "pictures" / "which-strategy.svg"
WIDTH, ROW, BOX = 900, 74, 52


class Question(NamedTuple):
    """A question, and the strategies to try if the answer is yes."""

    asks: str
    names: str
    why: str


QUESTIONS = (
    Question("Is it your first comparison?", "fedavg, local", "all others are compared with these two"),
    Question(
        "Is it a regression?", "newton, meta_analysis, own_intercepts", "exact or in one round, with standard errors"
    ),
    Question(
        "Does accuracy fall or fluctuate?", "fedprox, scaffold, fedadam", "hospitals differ, but one model still fits"
    ),
    Question("Are there kinds of hospitals?", "chip, hierarchical, ifca", "a model for each kind of hospital"),
    Question("Is every hospital different?", "fine_tuning, ditto, fedrep", "a model for each hospital"),
    Question("Are there kinds of patients?", "fedgmc, cbfl, kfed", "a model for each kind of patient"),
    Question(
        "Must the worst-off gain most?",
        "qfedavg, afl, fairfed",
        "more weight for hospitals or groups with large losses",
    ),
    Question("Are hospitals slow or offline?", "fedbuff, fedasync", "no hospital waits for the slowest"),
)


def drawing() -> str:
    """The tree as SVG: questions are on the left side, answers on the right."""
    height = ROW * (len(QUESTIONS) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Which strategy should I try: a tree of questions" font-family="sans-serif" font-size="15">',
        "<style>text{fill:#222}rect{fill:#fff;stroke:#00897b}.yes rect{fill:#e0f2f1}path{stroke:#777;fill:none}"
        ".small{font-size:12.5px;fill:#555}.arrow{font-size:12.5px;fill:#00796b}@media(prefers-color-scheme:dark)"
        "{text{fill:#eee}rect{fill:#263238}.yes rect{fill:#004d40}.small{fill:#bbb}.arrow{fill:#80cbc4}}</style>",
    ]
    for i, question in enumerate(QUESTIONS):
        top = 12 + i * ROW
        middle = top + BOX / 2
        parts += [
            f'<rect x="10" y="{top}" width="300" height="{BOX}" rx="6"/>',
            f'<text x="160" y="{middle + 5}" text-anchor="middle">{escape(question.asks)}</text>',
            f'<path d="M310 {middle}H380"/>',
            f'<text class="arrow" x="345" y="{middle - 6}" text-anchor="middle">yes</text>',
            f'<g class="yes"><rect x="380" y="{top}" width="510" height="{BOX}" rx="6"/></g>',
            f'<text x="396" y="{middle - 4}" font-weight="bold">{escape(question.names)}</text>',
            f'<text class="small" x="396" y="{middle + 15}">{escape(question.why)}</text>',
            f'<path d="M160 {top + BOX}V{top + ROW}"/><text class="arrow" x="170" y="{top + BOX + 16}">then</text>',
        ]
    top = 12 + len(QUESTIONS) * ROW
    parts += [
        f'<rect x="10" y="{top}" width="300" height="{BOX}" rx="6"/>',
        f'<text x="160" y="{top + BOX / 2 + 5}" text-anchor="middle">If all answers are no, use fedavg.</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawing(), encoding="utf-8")

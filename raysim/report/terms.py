"""Technical terms of reports, with a sentence that explains each."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from raysim.report.svg.markup import element

TERMS = {
    "AUROC": "The share of pairs, one patient with the event and one without, that are ranked right; 0.5 is chance.",
    "worst decile": "The mean over the worst tenth of hospitals.",
    "worst tenth": "The mean over the worst tenth of hospitals.",
    "Gini": "How unequal hospitals are: 0 when all have the same figure.",
    "size bias": "How the figure changes from small to large hospitals, per unit of the logarithm of stays.",
    "calibration slope": "Below 1, predictions are too extreme; above 1, not extreme enough.",
    "calibration in the large": "Above 0, risks are predicted too low; below 0, too high.",
    "observed over expected": "Events that happened, divided by events that were predicted; below 1, risks are too "
    "high.",
    "calibration error": "The mean distance between predicted risk and share of events, over bins of risk.",
    "sensitivity": "The share of patients with the event who have an alert.",
    "specificity": "The share of patients without the event who have no alert.",
    "PPV": "The share of patients with an alert who have the event.",
    "alerts per 100 patients": "How many of 100 patients reach the threshold.",
    "net benefit": "Per patient, true alarms minus false alarms; false alarms are weighted by the odds of the "
    "threshold.",
    "differential privacy": "Noise that bounds what anybody can learn about one patient or hospital.",
    "secure aggregation": "Hospitals mask what they send, so that only sums over several of them can be read.",
    "robust aggregation": "A rule that limits the influence of a few wrong updates.",
}

_KNOWN = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(TERMS, key=len, reverse=True)))})\b", re.IGNORECASE)
_BY_WORD = {term.lower(): sentence for term, sentence in TERMS.items()}


def explained(text: str) -> Markup:
    """Escape a text, and add an explanation to each technical term where it first occurs.

    A text that is ``Markup`` is not escaped, and must not contain elements.

    >>> explained("PPV < PPV")
    Markup('<dfn title="The share of patients with an alert who have the event.">PPV</dfn> &lt; PPV')
    """
    seen: set[str] = set()

    def marked(match: re.Match[str]) -> str:
        word = match[0].lower()
        if word in seen:
            return match[0]
        seen.add(word)
        return str(element("dfn", Markup(match[0]), title=_BY_WORD[word]))

    return Markup(_KNOWN.sub(marked, str(escape(text))))

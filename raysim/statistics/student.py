"""Student's t distribution."""

from __future__ import annotations

from typing import Any


def stdtrit(df: Any, p: Any) -> Any:
    """The quantile at ``p`` of Student's t with ``df`` degrees of freedom, of SciPy: a run that prints no interval does
    not import it.
    """
    from scipy import special  # a tenth of a second to import

    return special.stdtrit(df, p)

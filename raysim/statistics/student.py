"""Student's t distribution."""

from __future__ import annotations

from typing import Any


def stdtrit(df: Any, p: Any) -> Any:
    """Return the quantile at ``p`` of Student's t with ``df`` degrees of freedom. SciPy is imported only when it is
    called."""
    from scipy import special  # a tenth of a second to import

    return special.stdtrit(df, p)

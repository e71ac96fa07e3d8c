"""FLTrust: updates are weighted by their cosine with the server's own update, and scaled to its length.

X. Cao, M. Fang, J. Liu, N. Z. Gong: *FLTrust: Byzantine-robust Federated Learning via Trust Bootstrapping*, NDSS 2021.
"""

from __future__ import annotations

import numpy as np

from raysim.robust.rule import Aggregate, Floats


def trust_scores(updates: Floats, root: Floats) -> Floats:
    """The cosine of each update with the ``root [P]``, 0 where it is negative or a length is 0, ``[m]``."""
    lengths = np.linalg.norm(updates, axis=1) * np.linalg.norm(root)
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = np.where(lengths > 0, updates @ root / lengths, 0.0)
    return np.maximum(cosines, 0.0)


def fltrust(updates: Floats, root: Floats) -> Aggregate:
    """The mean of the updates weighted by trust, each scaled to the length of ``root [P]``; 0 where none is trusted."""
    trust = trust_scores(updates, root)
    if not trust.any():
        return Aggregate(np.zeros(updates.shape[1]), np.zeros(len(updates)), selects=True)
    norms = np.linalg.norm(updates, axis=1)
    shares = trust / trust.sum()
    factor = np.divide(np.linalg.norm(root), norms, out=np.zeros_like(norms), where=norms > 0)
    return Aggregate((shares * factor) @ updates, shares, selects=True)

"""Gaussian mixtures, whose number of components is chosen by the largest silhouette, and samples from these mixtures.

Mixtures are fitted by expectation maximisation (scikit-learn): full covariances with 1e-6 added to the diagonal,
k-means initialisation, the best of 5 starts, at most 100 iterations. Covariances are diagonal if components have fewer
than ``d + 1`` rows on average, or if a full covariance is singular.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from raysim.core.host import one_thread
from raysim.strategies.base import Context, Floats, Ids, Send, Statistic
from raysim.strategies.patient_clusters.continuous import chosen, filled
from raysim.strategies.shared.silhouette import best_labels

REGULARISATION, STARTS, ITERATIONS = 1e-6, 5, 100

LOCAL = (2, 3, 4)
"""The numbers of components that a hospital tries for its mixture."""

LEAST = 4
"""A hospital with fewer rows than this uses a mixture with one component."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """A Gaussian mixture with k components over d features."""

    weights: Floats
    """The weights of the components, ``[k]``, which sum to 1."""
    means: Floats
    """The means of the components, ``[k, d]``."""
    covariances: Floats
    """The covariance matrices of the components, ``[k, d, d]``."""

    def packed(self) -> Floats:
        """Return each component's weight, mean, and lower triangle of the covariance,
        ``[k, 1 + d + d (d + 1) / 2]``."""
        lower = np.tril_indices(self.means.shape[1])
        return np.column_stack([self.weights, self.means, self.covariances[:, *lower]])

    @staticmethod
    def unpacked(table: Floats, d: int) -> Mixture:
        """Return the mixture over ``d`` features from a :meth:`packed` table."""
        lower = np.tril_indices(d)
        covariances = np.empty((len(table), d, d))
        covariances[:, *lower] = table[:, 1 + d :]
        covariances[:, lower[1], lower[0]] = table[:, 1 + d :]
        return Mixture(table[:, 0], table[:, 1 : 1 + d], covariances)

    def sample(self, component: int, count: int, rng: np.random.Generator) -> Floats:
        """Sample ``count`` points from one component, ``[count, d]``."""
        z = rng.normal(size=(count, self.means.shape[1]))
        return np.asarray(self.means[component] + z @ np.linalg.cholesky(self.covariances[component]).T)


@dataclass(frozen=True)
class LocalMixture(Statistic):
    """The Gaussian mixture of a hospital's own patients in the received ``columns [d]``.

    It is sent as a table (:meth:`Mixture.packed`) of 4 rows; rows after the last component are NaN.
    """

    features: int
    name = "local_mixture"

    @property
    def sent(self) -> Send:
        d = self.features
        return Send((max(LOCAL), 1 + d + d * (d + 1) // 2), self.name, how="each", undefined=True)

    def value(self, at: Context) -> Floats:
        values = chosen(at.rows.X, at.received["columns"])
        mixture = best_mixture(values, LOCAL if len(values) >= LEAST else (), at.rng())
        return filled(mixture.packed(), max(LOCAL))


def best_mixture(rows: Floats, numbers: Iterable[int], rng: np.random.Generator) -> Mixture:
    """Fit a mixture with each of the ``numbers`` of components to ``rows [n, d]``, and return the mixture with the
    largest silhouette.

    For the silhouette, each row belongs to its most likely component. If no mixture can be fitted, or all rows are
    alike, the result has one component with a diagonal covariance.
    """
    seed, distinct, fits = int(rng.integers(2**31)), len(np.unique(rows, axis=0)), []
    if distinct > 1:
        tried = sorted({min(k, distinct) for k in numbers})
        fits = [fit for k in tried if (fit := fitted(rows, k, seed)) is not None]
    if not fits:
        return one_component(rows)
    mixture, _ = fits[best_labels(rows, [labels for _, labels in fits], rng)]
    return mixture


def fitted(rows: Floats, components: int, seed: int) -> tuple[Mixture, Ids] | None:
    """Fit a mixture to ``rows [n, d]``. Return it, and the most likely component of each row, ``[n]``.

    The result is None if the fit fails.
    """
    from sklearn.exceptions import ConvergenceWarning  # a second to import, and only few strategies need it
    from sklearn.mixture import GaussianMixture

    n, d = rows.shape
    for shape in ("full", "diag") if n / components >= d + 1 else ("diag",):
        model = GaussianMixture(
            components,
            covariance_type=shape,
            reg_covar=REGULARISATION,
            n_init=STARTS,
            max_iter=ITERATIONS,
            random_state=seed,
        )
        # One thread: sums then do not depend on how many cores the hospital's process has.
        with one_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            try:
                labels = model.fit_predict(rows)
            except ValueError:  # a covariance that is singular despite the regularisation
                continue
        covariances = model.covariances_ if shape == "full" else np.stack([np.diag(v) for v in model.covariances_])
        return Mixture(model.weights_, model.means_, covariances), labels.astype(np.int64)
    return None


def one_component(rows: Floats) -> Mixture:
    """Return a mixture of one component, with the means and population variances of ``rows [n, d]``. ``REGULARISATION``
    is added to the variances; covariances are 0.
    """
    covariance = np.diag(rows.var(axis=0) + REGULARISATION)
    return Mixture(np.ones(1), rows.mean(axis=0)[None, :], covariance[None, :, :])

"""The accountant: it computes the epsilon of noisy releases at a delta, and the least noise for a given epsilon.

For normal noise without sampling there is a closed form. Other releases are composed by privacy loss distributions
(library dp-accounting, imported only when needed), or by Rényi divergences if there are many different releases or very
little Laplace noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from raysim.core.errors import ConfigError
from raysim.privacy import quick, repeated
from raysim.privacy.events import Event, Gaussian, Laplace, Repeated

TOLERANCE = 1e-5
"""The relative tolerance of the search for a noise multiplier. The search never returns less noise than needed."""

LONGER, NEAR = 10.0, 3e-4
"""The search for a noise multiplier first discretises losses in steps ``LONGER`` times as long as usual. A second
search with usual steps starts from the multiplier found. It changes the multiplier's logarithm by up to ``NEAR``, or by
more if needed."""

INTERVAL, COARSE_INTERVAL, ROUGH_INTERVAL = 1e-4, 1e-3, 1e-2
"""The steps in which privacy losses are discretised; longer steps never make epsilon smaller.

``INTERVAL`` is the default of dp-accounting. For patients at several hospitals, :func:`epsilon` uses
``COARSE_INTERVAL``, and :func:`rough` uses ``ROUGH_INTERVAL``. ``COARSE_INTERVAL`` increases epsilon by about 0.02 %;
``ROUGH_INTERVAL`` increases it by 1 % for thousands of rounds.
"""

LARGE = 50.0
"""For epsilons above this value, discretisation steps are proportional to epsilon. The longer steps increase epsilon by
less than 0.001 %."""

MOST_DISTRIBUTIONS = 6
"""The largest number of different releases for which privacy loss distributions are computed; each takes up to a
second. With more releases, epsilon is bounded by Rényi divergences."""

LEAST_LAPLACE = 0.05
"""The smallest multiplier of Laplace noise for which the distribution of privacy losses is narrow enough to store. With
a smaller multiplier, epsilon is bounded by Rényi divergences."""

LEAST, MOST = 1e-9, 1e9
"""The search for a noise multiplier clips epsilons to this range, so that their logarithms are finite."""

LOW, HIGH = 1e-6, 1e6
"""The range of epsilons for which a noise multiplier can be computed."""

LEAST_DELTA = 1e-14
"""The smallest delta for which epsilon can be computed: distributions of privacy losses omit a probability of about
1e-15."""

MOST_NOISELESS = math.exp(-20.0)
"""Noise with at most this multiplier counts as no noise, so that epsilon is infinite."""


def library() -> Any:
    """Import dp-accounting. Raises ``ConfigError`` if it is not installed."""
    try:
        import dp_accounting
    except ImportError:
        raise ConfigError(
            "privacy: needs the package dp-accounting, which is not installed; pip install 'raysim[privacy]'"
        ) from None
    return dp_accounting


def epsilon(events: Sequence[Event], delta: float, longer: float = 1.0) -> float:
    """Return the epsilon at ``delta`` of all releases ``events`` together, or an upper bound of it.

    The result is infinite if a release has no noise. Discretisation steps are multiplied by ``longer``: longer steps
    are faster, and the result is slightly larger.
    """
    return _epsilon(tuple(_merged(events)), delta, longer)


@lru_cache(maxsize=4096)
def _epsilon(events: tuple[Event, ...], delta: float, longer: float = 1.0) -> float:
    if not events:
        return 0.0
    if any(event.multiplier <= MOST_NOISELESS for event in events):
        return math.inf
    whole = [event for event in events if isinstance(event, Gaussian) and event.rate >= 1]
    if len(whole) == len(events):
        return float(library().get_epsilon_gaussian(_together(whole), delta))
    if len(whole) > 1:  # normal noise adds up to normal noise, exactly
        events = (*(event for event in events if event not in whole), Gaussian(_together(whole)))
    bounded = [event for event in events if not isinstance(event, Repeated)]
    wide = any(isinstance(event, Laplace) and event.multiplier < LEAST_LAPLACE for event in events)
    if len(bounded) == len(events) and (wide or len(events) > MOST_DISTRIBUTIONS):
        return quick.epsilon_of(bounded, delta)
    return by_distributions(events, delta, longer=longer)


def _together(events: Sequence[Gaussian]) -> float:
    """Return the multiplier of one release that costs as much privacy as all ``events``; none of them is sampled."""
    return float(sum(event.count / event.multiplier**2 for event in events) ** -0.5)


@lru_cache(maxsize=256)
def rough(event: Repeated, delta: float, others: tuple[Event, ...] = ()) -> float:
    """Return an upper bound of the epsilon of a patient with data at several hospitals, faster than :func:`epsilon`.

    ``event`` is the sum to which these hospitals contribute, and ``others`` are the other noisy releases of each
    hospital.
    """
    if event.multiplier <= 0:
        return math.inf
    normal = [replace(each, count=event.places * each.count) for each in others if isinstance(each, Gaussian)]
    pure = sum(event.places * each.count / each.multiplier for each in others if isinstance(each, Laplace))
    return by_distributions([event, *normal], delta, ROUGH_INTERVAL) + pure


def by_distributions(
    events: Sequence[Event], delta: float, interval: float | None = None, longer: float = 1.0
) -> float:
    """Return the epsilon at ``delta`` of all ``events`` together, by composing privacy loss distributions.

    Privacy losses are discretised in steps of ``interval``, multiplied by ``longer``. None means :data:`INTERVAL`, or
    :data:`COARSE_INTERVAL` for patients at several hospitals. Above an epsilon of ``LARGE``, steps are proportional to
    epsilon.
    """
    library()
    from dp_accounting.pld.privacy_loss_distribution import identity

    if interval is None:
        interval = COARSE_INTERVAL if any(isinstance(event, Repeated) for event in events) else INTERVAL
    interval = longer * max(interval, INTERVAL * _large(events, delta) / LARGE)
    together = identity(interval)
    for event in events:
        together = together.compose(_distribution(event, interval))
    return float(together.get_epsilon_for_delta(delta))


def _large(events: Sequence[Event], delta: float) -> float:
    """Estimate the epsilon of ``events`` if they have little noise; with much noise the estimate is too large."""
    from scipy.stats import binom

    normal, pure = 0.0, 0.0
    for event in events:
        if isinstance(event, Laplace):
            pure += event.count / event.multiplier
            continue
        places = event.places if isinstance(event, Repeated) else 1
        normal += places * float(binom.isf(delta / 2, places * event.count, event.rate)) / event.multiplier**2
    # The epsilon of normal noise is at most normal / 2 + sqrt(2 normal log(1 / delta)).
    return pure + normal / 2 + math.sqrt(2 * normal * math.log(1 / delta))


def _distribution(event: Event, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as of

    if isinstance(event, Laplace):
        once = of.from_laplace_mechanism(event.multiplier, value_discretization_interval=interval)
    elif isinstance(event, Repeated):
        once = repeated.distribution(event.multiplier, *_places(event), interval)
    elif event.rate >= 1:
        multiplier = event.multiplier / math.sqrt(event.count)
        return of.from_gaussian_mechanism(multiplier, value_discretization_interval=interval)
    else:
        once = of.from_gaussian_mechanism(
            event.multiplier, value_discretization_interval=interval, sampling_prob=event.rate
        )
    return once.self_compose(event.count)


def calibrated(events_of: Callable[[float], Sequence[Event]], target: float, delta: float) -> float:
    """Return the smallest noise multiplier whose epsilon at ``delta`` is at most ``target``.

    ``events_of(multiplier)`` returns all releases of a run; at least one of them must have this noise multiplier.
    """
    from scipy.optimize import brentq

    def above(log_multiplier: float, longer: float = 1.0) -> float:
        reached = epsilon(events_of(math.exp(log_multiplier)), delta, longer)
        return math.log(min(max(reached, LEAST), MOST) / target)

    # A search with the usual steps alone takes almost twice as long.
    low, high = -1.0, 1.0
    while above(high, LONGER) > 0:
        low, high = high, high + 1.0
    while above(low, LONGER) <= 0:
        low, high = low - 1.0, low
    near = float(brentq(above, low, high, args=(LONGER,), xtol=TOLERANCE))
    low, high = near - NEAR, near + NEAR
    while above(high) > 0:
        low, high = high, 2 * high - near
    while above(low) <= 0:
        low, high = 2 * low - near, low
    at = float(brentq(above, low, high, xtol=TOLERANCE))
    while above(at) > 0:
        at += TOLERANCE
    return math.exp(at)


def _merged(events: Sequence[Event]) -> list[Event]:
    """Merge events that differ only in ``count``, and add their counts; return the events in a fixed order."""
    counts: dict[Event, int] = {}
    for event in events:
        one = replace(event, count=1)
        counts[one] = counts.get(one, 0) + event.count
    return sorted((replace(event, count=count) for event, count in counts.items()), key=repr)


def _places(event: Repeated) -> tuple[list[float], list[float]]:
    """Return the possible numbers of hospitals at which a patient contributes to one sum, and their probabilities."""
    from scipy.stats import binom

    places = range(event.places + 1)
    return [float(place) for place in places], [float(binom.pmf(n, event.places, event.rate)) for n in places]

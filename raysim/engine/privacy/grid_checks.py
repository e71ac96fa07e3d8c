"""Conditions under which noisy messages on a common grid are as private as their noisy sum.

Each hospital adds its share of the noise to its update, and rounds each entry up or down at random to a multiple of the
grid's step. The sum of rounded messages is not a function of the noisy sum, so rounding is not post-processing and may
cost privacy. It costs practically no privacy if the standard deviation of a share is at least a few steps. The sum of
messages is then distributed almost like the noisy sum after random rounding. If the shares of ``m`` hospitals each have
a standard deviation of ``s`` steps, the probabilities of these two sums differ by about ``exp(-2 pi^2 s^2 (m - 1) /
m)`` (Poisson's summation formula). With three steps and two hospitals, this is ``exp(-88)``.

The grid must not clip: its range must include a hospital's largest message without noise, plus twelve standard
deviations of the hospital's share of the noise.
"""

from __future__ import annotations

import math

from raysim.compression.compressors import grid_limit
from raysim.config.sections.compression import CompressionSection
from raysim.config.sections.privacy import PrivacySection
from raysim.core.errors import ConfigError
from raysim.engine.guarantee import PrivacyParameters

STEPS = 3.0
"""The smallest allowed standard deviation of a hospital's share of the noise, as a multiple of the grid's step."""

DEVIATIONS = 12.0
"""How far the compressor's grid must extend beyond a hospital's largest message without noise, in standard deviations
of the hospital's share of the noise."""


def check_grid(compression: CompressionSection, section: PrivacySection, parameters: PrivacyParameters) -> None:
    """Raise ``ConfigError`` if the grid of ``compression`` does not suit the guarantee in ``section``, whose noise
    multiplier must have been computed.
    """
    multiplier = section.noise_multiplier or 0.0
    if not multiplier:
        return  # nothing is guaranteed
    if section.adaptive is not None:
        raise ConfigError(
            "compression.name: 'grid' has one grid step for all rounds, but privacy.adaptive changes the noise and "
            "therefore this step; leave one of the two out"
        )
    if section.hides_sizes:
        raise ConfigError(
            "compression.name: 'grid' must know how many patients' gradients a hospital adds, and "
            "privacy.sizes: noisy hides this number; leave one of the two out"
        )
    whole = multiplier * section.clip
    least, most = whole / math.sqrt(max(parameters.left, 1)), whole / math.sqrt(max(parameters.fewest - 1, 1))
    if least < STEPS * compression.step:
        raise ConfigError(
            f"compression.step: {compression.step:g} is more than a third of the noise that each hospital adds for "
            f"privacy.mode: {section.effective_mode}, so rounding would hide this noise; give at most "
            f"{_down(least / STEPS):g}"
        )
    longest = section.clip * max(parameters.patients, default=1) + DEVIATIONS * most
    if longest > grid_limit(compression.bits)[1] * compression.step:
        bits = math.ceil(math.log2(longest / compression.step + 1.0)) + 1
        raise ConfigError(
            f"compression.bits: {compression.bits} can represent numbers up to "
            f"{grid_limit(compression.bits)[1] * compression.step:.3g}, and messages with noise for privacy.mode: "
            f"{section.effective_mode} go up to {longest:.3g}; give {bits}, or a larger compression.step"
        )


def _down(value: float) -> float:
    """Return ``value`` rounded down to two significant digits."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.floor(value / digit) * digit

"""Guarantees of runs are computed with coarse steps, as in the tests of guarantees."""

from __future__ import annotations

from tests.privacy.conftest import coarse_steps as coarse_steps

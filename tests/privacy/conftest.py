"""What tests of guarantees share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raysim.privacy import accountant

EXACT = ("divergences", "test_accountant", "test_quick_math", "test_repeated", "test_sampled")


@pytest.fixture(autouse=True, scope="module")
def coarse_steps(request: pytest.FixtureRequest) -> Iterator[None]:
    """Steps of privacy loss a hundred times the usual ones, except where the accountant's own figures are tested."""
    if request.module.__name__.rpartition(".")[2] in EXACT:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accountant, "INTERVAL", 100 * accountant.INTERVAL)
        accountant._epsilon.cache_clear()
        yield
    accountant._epsilon.cache_clear()


@pytest.fixture
def usual_steps(coarse_steps: None) -> Iterator[None]:
    """The usual steps, for a figure that is written down."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accountant, "INTERVAL", accountant.INTERVAL / 100)
        accountant._epsilon.cache_clear()
        yield
    accountant._epsilon.cache_clear()

"""One compute thread where sums must not depend on how many cores there are."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


def one_thread(user_api: str | None = None) -> AbstractContextManager[Any]:
    """A context with at most one thread in the compute libraries that are loaded.

    ``user_api``: only in libraries of this kind, ``openmp`` or ``blas``.
    """
    limited: AbstractContextManager[Any] = _loaded(len(sys.modules)).limit(limits=1, user_api=user_api)
    return limited


@lru_cache(maxsize=1)
def _loaded(modules: int) -> ThreadpoolController:
    """The compute libraries that are loaded with so many ``modules``.

    The search takes milliseconds, as long as a small clustering, so it is repeated only after an import.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

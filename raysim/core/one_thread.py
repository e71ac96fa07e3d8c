"""A limit of one compute thread for sums that must not depend on the number of cores."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


def one_thread(user_api: str | None = None) -> AbstractContextManager[Any]:
    """Return a context with at most one thread in the compute libraries that are loaded.

    ``user_api`` limits only libraries of this kind, ``openmp`` or ``blas``.
    """
    limited: AbstractContextManager[Any] = _loaded(len(sys.modules)).limit(limits=1, user_api=user_api)
    return limited


@lru_cache(maxsize=1)
def _loaded(modules: int) -> ThreadpoolController:
    """Return the compute libraries.

    ``modules`` is the number of imported modules, the key of the cache. The search takes milliseconds, about as long as
    a small clustering. The search is therefore repeated only after an import.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()

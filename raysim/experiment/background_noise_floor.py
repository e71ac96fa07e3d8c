"""Computes the noise floor, the differences expected by chance, in the background."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING

from raysim.engine.job import Result

if TYPE_CHECKING:
    from raysim.report.judgement.noise import Noise


class BackgroundNoiseFloor:
    """The noise floor of a run or comparison. It depends only on runs of the first seed, so a thread computes it during
    later runs, or while files are written."""

    def __init__(self, minimum_events: int) -> None:
        self._minimum_events = minimum_events
        self._first: list[Result] = []
        self._computed: Future[Mapping[tuple[str, str], Noise]] | None = None

    def add(self, result: Result) -> None:
        """Add the result of a finished run. Results arrive in the order of seeds."""
        if self._computed is not None:
            return
        if not self._first or result.seed == self._first[0].seed:
            self._first.append(result)
        else:
            self.begin()

    def begin(self) -> None:
        """Begin the computation. The caller must have added all results of the first seed."""
        self._computed = Future()
        Thread(target=self._compute, args=(self._computed,), name="noise", daemon=True).start()

    def of(self, results: Sequence[Result]) -> Mapping[tuple[str, str], Noise]:
        """Return the noise floor of a comparison with these ``results``. Waits for the thread if one was started."""
        if self._computed is None:
            return self._noise(results)
        return self._computed.result()

    def _compute(self, computed: Future[Mapping[tuple[str, str], Noise]]) -> None:
        try:
            computed.set_result(self._noise(self._first))
        except BaseException as error:  # raised by result()
            computed.set_exception(error)

    def _noise(self, results: Sequence[Result]) -> Mapping[tuple[str, str], Noise]:
        from raysim.report.judgement.noise import noise

        return noise(results, self._minimum_events)

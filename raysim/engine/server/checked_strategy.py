"""A wrapper of strategies that checks what they return. The rest of the engine can then rely on shapes, indices and
weights.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysim.core import importing
from raysim.core.errors import ConfigError, RaysimError, StrategyError
from raysim.strategies.base import (
    Asynchrony,
    Calls,
    Division,
    FederationView,
    Floats,
    Ids,
    Invalid,
    LocalProblem,
    Mask,
    Newcomers,
    State,
    Strategy,
    Training,
    Uncertainty,
    Unfit,
    Update,
)
from raysim.strategies.checks import answers
from raysim.strategies.checks.calls import check_call
from raysim.strategies.checks.problem import Frame, check_personal, check_problem

MOST_CALLS = 1000
"""The largest allowed number of calls of client programs in a round."""


class CheckedStrategy(Strategy):
    """A ``strategy`` whose results are checked. Invalid results raise :class:`StrategyError`. ``name`` is the
    strategy's name in errors.
    """

    def __init__(self, strategy: Strategy, name: str) -> None:
        self._strategy = strategy
        self._name = name
        self._keeps_private = False

    def check(self, names: Sequence[str], sizes: Ids) -> None:
        self._strategy.check(names, sizes)

    def remark(self, sizes: Ids) -> str:
        return self._strategy.remark(sizes)

    def check_training(self, training: Training) -> None:
        self._strategy.check_training(training)

    def uses_selection(self) -> bool:
        return self._strategy.uses_selection()

    def uses_training(self) -> bool:
        return self._strategy.uses_training()

    def uses_programs(self) -> bool:
        return self._strategy.uses_programs()

    def asynchrony(self) -> Asynchrony | None:
        with self._calling("asynchrony"):
            asynchrony = self._strategy.asynchrony()
            answers.check_asynchrony(asynchrony)
        return asynchrony

    def setup(self, view: FederationView) -> State:
        with self._calling("setup"):
            try:
                state = self._strategy.setup(view)
            except Unfit as error:
                raise ConfigError(f"strategy.{error}") from None
            answers.check_state(state, view)
        return state

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        with self._calling("select", round):
            ids = self._strategy.select(view, state, round)
            answers.check_cohort(ids, len(view.sizes))
        return ids

    def round(self, view: FederationView, state: State) -> Calls:
        if not self._strategy.uses_programs():
            return (yield from super().round(view, state))
        answer, calls = None, 0
        with self._calling("round", view.round):
            running = self._strategy.round(view, state)
            if not isinstance(running, Generator):
                raise Invalid(
                    f"round: returns {type(running).__name__} instead of yielding; yield a Call, and return the state"
                )
        while True:
            with self._calling("round", view.round):
                try:
                    call = running.send(answer)
                except StopIteration as end:
                    answers.check_state(end.value, view)
                    return end.value
                check_call(call, view.sizes)
                calls += 1
                if calls > MOST_CALLS:
                    raise Invalid(f"round: made more than {MOST_CALLS} calls without returning a state; return a state")
            answer = yield call

    def done(self, view: FederationView, state: State) -> bool:
        with self._calling("done", view.round):
            return bool(self._strategy.done(view, state))

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        with self._calling("problem", view.round):
            problem = self._strategy.problem(view, state, ids)
            check_problem(problem, ids, self._frame(view, state))
        return problem

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        with self._calling("aggregate", view.round):
            later = self._strategy.aggregate(view, state, update)
            answers.check_state(later, view)
        return later

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        groups = answers.check_division(self.division(view, state))
        with self._calling("serve", view.round):
            serve = self._strategy.serve(view, state)
            answers.check_serve(serve, view, len(state.models), groups)
        return serve

    def starts(self, view: FederationView) -> Floats:
        with self._calling("starts"):
            starts = self._strategy.starts(view)
            answers.check_starts(starts, len(view.initial))
        return starts

    def mixture(self, view: FederationView, state: State) -> Floats | None:
        with self._calling("mixture", view.round):
            mixture = self._strategy.mixture(view, state)
            answers.check_mixture(mixture, len(view.sizes), len(state.models))
        return mixture

    def division(self, view: FederationView, state: State) -> Division | None:
        with self._calling("division", view.round):
            division = self._strategy.division(view, state)
            answers.check_division(division)
        return division

    def newcomers(self, view: FederationView, state: State) -> Newcomers | None:
        with self._calling("newcomers"):
            return self._strategy.newcomers(view, state)

    def private(self, view: FederationView) -> Mask | None:
        with self._calling("private"):
            private = self._strategy.private(view)
            answers.check_private(private, len(view.initial))
        self._keeps_private = private is not None
        return private

    def personalize(self, view: FederationView, state: State) -> LocalProblem | None:
        with self._calling("personalize"):
            problem = self._strategy.personalize(view, state)
            if problem is not None:
                check_problem(problem, np.arange(len(view.sizes)), self._frame(view, state))
                check_personal(problem)
        return problem

    def news(self, view: FederationView, state: State, row: int) -> Sequence[tuple[NDArray[Any], Ids]] | None:
        with self._calling("news"):
            return self._strategy.news(view, state, row)

    def uncertainty(self, view: FederationView, state: State) -> Uncertainty | None:
        with self._calling("uncertainty"):
            uncertainty = self._strategy.uncertainty(view, state)
            answers.check_uncertainty(uncertainty, len(view.initial))
        return uncertainty

    def facts(self, view: FederationView, state: State) -> dict[str, float]:
        with self._calling("facts"):
            facts = self._strategy.facts(view, state)
            answers.check_facts(facts)
        return facts

    def _frame(self, view: FederationView, state: State) -> Frame:
        return Frame(
            size=len(view.initial),
            models=len(state.models),
            mixes=self.mixture(view, state) is not None,
            keeps=self._keeps_private,
            groups=answers.check_division(self.division(view, state)),
        )

    @contextmanager
    def _calling(self, method: str, round: int = 0) -> Iterator[None]:
        where = f"strategy '{self._name}', " + (f"round {round}" if round else method)
        try:
            yield
        except Invalid as error:
            raise StrategyError(f"{where}: {error}") from None
        except RaysimError:
            raise
        except SystemExit as error:
            if not importing.ended_by_plugin(error):
                raise
            raise StrategyError(f"{where}: {method} {importing.exit_call(error)}; raise an error instead") from None
        except Exception as error:
            # The strategy's author needs the traceback.
            error.add_note(f"{where}: raised by {method}")
            raise

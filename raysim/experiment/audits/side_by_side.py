"""Train many federations at once, as one federation with all of their hospitals. Used for an audit's shadow runs.

Each federation has its own models, and its hospitals are a contiguous block of all hospitals. No model learns from two
federations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from raysim.core.errors import RaysimError
from raysim.engine.job import Job
from raysim.strategies.base import (
    Answers,
    Call,
    FederationView,
    Floats,
    Ids,
    LocalProblem,
    LocalTraining,
    Mask,
    Objective,
    Proximal,
    Selection,
    State,
    Strategy,
    Update,
    Upload,
    own_state,
)


class NotSideBySide(RaysimError):
    """The federations must be run one after another."""


def can_be_together(job: Job) -> bool:
    """Return whether federations that are trained together in ``job`` would be independent of each other.

    Dependencies that only a local problem reveals raise :class:`NotSideBySide` during the run.
    """
    sections = (job.system, job.stop, job.adversary, job.aggregation, job.compression, job.privacy, job.secure)
    kind = type(job.selection)
    remembers = kind.setup is not Selection.setup or kind.observe is not Selection.observe
    remembers = remembers and job.strategy.uses_selection()
    return not any(sections) and not remembers and job.strategy.asynchrony() is None


@dataclass(frozen=True, eq=False)
class SideBySideState(State):
    """The state of several federations. ``models`` has the first federation's models, then the second's, and so on."""

    each: tuple[State, ...] = ()
    """The state of each federation."""

    @staticmethod
    def of(each: Sequence[State]) -> SideBySideState:
        """Return the joint state of federations whose states are ``each``, in order."""
        return SideBySideState(models=np.concatenate([state.models for state in each]), each=tuple(each))


@dataclass(frozen=True)
class SideBySide(Strategy):
    """The strategy that runs ``strategy`` in each of ``count`` federations with equally many hospitals."""

    strategy: Strategy
    count: int

    def uses_selection(self) -> bool:
        return self.strategy.uses_selection()

    def setup(self, view: FederationView) -> State:
        return SideBySideState.of([self.strategy.setup(part) for part in self._views(view)])

    def select(self, view: FederationView, state: State, round: int) -> Ids:
        offset, chosen = len(view.sizes) // self.count, []
        for j, (part, part_state) in enumerate(self._parts(view, state)):
            ids = self.strategy.select(part, part_state, round)
            if (ids < 0).any():
                raise NotSideBySide("trains on pooled rows")
            chosen.append(ids + j * offset)
        return np.concatenate(chosen)

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        return self._together(state, list(self._problems(view, state, ids)))

    def aggregate(self, view: FederationView, state: State, update: Update) -> State:
        each, entry, group = list(own_state(state, SideBySideState).each), 0, 0
        parts = list(self._parts(view, state))
        offset = len(view.sizes) // self.count
        for j, problem in self._problems(view, state, update.ids):
            entries = slice(entry, entry + len(problem.start))
            groups = slice(group, group + (0 if problem.sent is None else problem.sent.sums))
            part_update = Update(
                ids=update.ids[entries] - j * offset,
                sums=np.zeros_like(update.sums[:1]) if problem.sent is None else update.sums[groups],
                deltas=None if update.deltas is None else update.deltas[entries],
                losses=None if update.losses is None else update.losses[entries],
                problem=problem,
            )
            each[j] = self.strategy.aggregate(*parts[j], part_update)
            entry, group = entries.stop, groups.stop
        return SideBySideState.of(each)

    def serve(self, view: FederationView, state: State) -> dict[str, Ids]:
        served = [self.strategy.serve(part, part_state) for part, part_state in self._parts(view, state)]
        if any(rows.ndim > 1 for each in served for rows in each.values()):
            raise NotSideBySide("serves groups of patients")
        first = self._first(state)
        names = list(served[0])
        return {
            name: np.concatenate([_shifted(s[name], f) for s, f in zip(served, first, strict=True)]) for name in names
        }

    def mixture(self, view: FederationView, state: State) -> Floats | None:
        mixtures = [self.strategy.mixture(part, part_state) for part, part_state in self._parts(view, state)]
        given = [mixture for mixture in mixtures if mixture is not None]
        return _blocks(given) if given else None

    def private(self, view: FederationView) -> Mask | None:
        return self.strategy.private(next(self._views(view)))

    def personalize(self, view: FederationView, state: State) -> LocalProblem | None:
        problems = [self.strategy.personalize(part, part_state) for part, part_state in self._parts(view, state)]
        given = [(j, problem) for j, problem in enumerate(problems) if problem is not None]
        if len(given) not in (0, self.count):
            raise NotSideBySide("personalises in some of the federations alone")
        return self._together(state, given) if given else None

    def _together(self, state: State, problems: Sequence[tuple[int, LocalProblem]]) -> LocalProblem:
        first = self._first(state)
        return _joined([problem for _, problem in problems], [first[j] for j, _ in problems])

    def _views(self, view: FederationView) -> Iterator[FederationView]:
        """Iterate over the server's view of each federation."""
        hospitals = len(view.sizes) // self.count
        for j in range(self.count):
            mine = slice(j * hospitals, (j + 1) * hospitals)

            def call(call: Call, first: int = mine.start) -> Answers:
                answers = view.call(replace(call, ids=call.ids + first))
                return replace(answers, ids=answers.ids - first)

            yield replace(view, names=view.names[mine], sizes=view.sizes[mine], call=call)

    def _parts(self, view: FederationView, state: State) -> Iterator[tuple[FederationView, State]]:
        for part, part_state in zip(self._views(view), own_state(state, SideBySideState).each, strict=True):
            if self.strategy.division(part, part_state) is not None:
                raise NotSideBySide("divides rows into groups of patients")
            yield part, part_state

    def _problems(self, view: FederationView, state: State, ids: Ids) -> Iterator[tuple[int, LocalProblem]]:
        """Iterate over the number and local problem of each federation that has hospitals in the cohort."""
        hospitals = len(view.sizes) // self.count
        for j, (part, part_state) in enumerate(self._parts(view, state)):
            mine = ids[(ids >= j * hospitals) & (ids < (j + 1) * hospitals)] - j * hospitals
            if len(mine):
                yield j, self.strategy.problem(part, part_state, mine)

    def _first(self, state: State) -> list[int]:
        """Return the row of each federation's first model in the joint models."""
        counts = [len(part_state.models) for part_state in own_state(state, SideBySideState).each]
        return [0, *accumulate(counts[:-1])]


def _joined(problems: Sequence[LocalProblem], first: Sequence[int]) -> LocalProblem:
    """Join the problems of all cohorts into one. ``first`` has the row at which each federation's models begin."""
    if any(problem.groups is not None for problem in problems):
        raise NotSideBySide("trains on groups of patients")
    following = [problem.then for problem in problems if problem.then is not None]
    if len(following) not in (0, len(problems)):
        raise NotSideBySide("has unlike problems")
    return LocalProblem(
        start=np.concatenate([_shifted(problem.start, f) for problem, f in zip(problems, first, strict=True)]),
        upload=_upload(problems),
        objective=_objective(problems, first),
        training=_visit(problems),
        then=_joined(following, first) if following else None,
    )


def _upload(problems: Sequence[LocalProblem]) -> Upload | None:
    """Return the joint upload, in which each federation has separate sums."""
    uploads = [problem.upload for problem in problems if problem.upload is not None]
    if not uploads:
        return None
    if len(uploads) < len(problems) or len({(each.what, each.single, each.losses) for each in uploads}) > 1:
        raise NotSideBySide("has unlike uploads")
    weights = [each.weight for each in uploads if each.weight is not None]
    if len(weights) not in (0, len(uploads)):
        raise NotSideBySide("has unlike uploads")
    before = np.cumsum([0, *(each.sums for each in uploads)])
    whole = replace(uploads[0], sums=int(before[-1]), sum_index=None, weight=None)
    if not weights:
        return whole
    if weights[0].ndim > 1:
        return replace(whole, weight=_blocks(weights))
    into = [
        (np.zeros(len(weight), dtype=np.int64) if each.sum_index is None else each.sum_index) + start
        for each, weight, start in zip(uploads, weights, before[:-1], strict=True)
    ]
    return replace(whole, weight=np.concatenate(weights), sum_index=np.concatenate(into))


def _objective(problems: Sequence[LocalProblem], first: Sequence[int]) -> Objective:
    """Return the joint objective."""
    each = [problem.objective for problem in problems]
    masks = [objective.frozen for objective in each if objective.frozen is not None]
    if any(problem.program is not None for problem in problems):
        raise NotSideBySide("trains by a client program of its own")
    alike = len(masks) in (0, len(each)) and all(np.array_equal(mask, masks[0]) for mask in masks)
    if not alike or len({len(objective.proximal) for objective in each}) > 1:
        raise NotSideBySide("has unlike objectives")
    proximal = []
    for k in range(len(each[0].proximal)):
        kth_terms = [objective.proximal[k] for objective in each]
        weights = [np.broadcast_to(term.weight, term.towards.shape) for term in kth_terms]
        towards = [_shifted(term.towards, f) for term, f in zip(kth_terms, first, strict=True)]
        proximal.append(Proximal(np.concatenate(weights).astype(np.float64), np.concatenate(towards)))
    return replace(each[0], proximal=tuple(proximal))


def _visit(problems: Sequence[LocalProblem]) -> LocalTraining:
    """Return the joint settings of local training. Raises :class:`NotSideBySide` if the settings differ."""
    visits = [problem.training for problem in problems]
    if len({(each.learning_rate, each.batch_size, each.optimizer, each.keep, each.carry) for each in visits}) > 1:
        raise NotSideBySide("has unlike visits")
    epochs = [training.epochs for training in visits]
    if not any(isinstance(number, np.ndarray) for number in epochs) and len(set(map(str, epochs))) == 1:
        return visits[0]
    counts = [
        np.broadcast_to(number, problem.start.shape)
        for number, problem in zip(epochs, problems, strict=True)
        if number is not None
    ]
    if len(counts) < len(visits):
        raise NotSideBySide("has unlike visits")
    return replace(visits[0], epochs=np.concatenate(counts))


def _shifted(rows: Ids, first: int) -> Ids:
    """Convert a federation's model rows to rows of the joint models, where its models begin at ``first``.

    Negative rows, which are sentinels, are unchanged.
    """
    return np.where(rows >= 0, rows + first, rows)


def _blocks(matrices: Sequence[Floats]) -> Floats:
    """Return the block-diagonal matrix of ``matrices``."""
    shapes = np.array([matrix.shape for matrix in matrices])
    whole = np.zeros(shapes.sum(axis=0))
    at = np.vstack([[0, 0], np.cumsum(shapes, axis=0)])
    for matrix, (i, j) in zip(matrices, at, strict=False):
        whole[i : i + matrix.shape[0], j : j + matrix.shape[1]] = matrix
    return whole

"""Describes a federation's data, from Python."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rich.console import Console

from raysim.api.request import Overrides, configuration, search_path_restored
from raysim.config import learners, plugins, reading
from raysim.config.reading import Source
from raysim.config.schema import COMPARED, Config
from raysim.core.words import counted, listed
from raysim.data.describe import Summary, lines, render, summarise
from raysim.data.federation import Federation
from raysim.report.judgement.facts.limits import FEWEST
from raysim.report.terminal.unlikeness import Unlikeness, unlikeness
from raysim.strategies.shared.psi import EPSILON, Smoothing

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Description:
    """The hospitals' data as a run with the configuration ``config`` would use them."""

    config: Config
    federation: Federation
    seed: int
    """The seed by which each hospital's rows are divided into parts, such as training and test rows."""
    other_seeds: tuple[int, ...]
    """The other configured seeds; empty if all seeds divide rows in the same way."""
    epsilon: Smoothing
    """How the population stability index (PSI) is smoothed: a number added to every share, or ``counts`` (half a row
    added to every bin).
    """

    @cached_property
    def summary(self) -> Summary:
        """Numbers of rows, classes and missing values, and the hospitals at which metrics are undefined."""
        return summarise(self.federation)

    @cached_property
    def hospitals(self) -> pd.DataFrame:
        """One row per hospital, with numbers of training rows and population stability indices (PSI).

        PSI compares a hospital's training rows with those of all hospitals together.
        """
        from raysim.data.heterogeneity import hospital_table

        return hospital_table(self.federation, epsilon=self.epsilon)

    @cached_property
    def unlikeness(self) -> Unlikeness:
        """How much the hospitals' training rows differ from each other."""
        return unlikeness(self.federation, self.epsilon)

    @property
    def verdict(self) -> list[str]:
        """Sentences on whether the data are ready for training, at how many hospitals metrics are defined, and how the
        hospitals differ."""
        s = self.summary
        suspects = (*s.leaks.suspects, *s.quality)
        warn, ask = (sum(suspect.level == level for suspect in suspects) for level in ("warn", "ask"))
        parts = [(warn + len(s.warnings), "warning"), (ask, "question")]
        odd = listed([counted(count, noun) for count, noun in parts if count])
        first = (
            f"look at the data before you train: {odd} above" if odd else ("ready to train: nothing unusual was found")
        )
        few = "" if s.judged >= FEWEST else f"; with fewer than {FEWEST} a comparison recommends nothing"
        judged = f"accuracy can be judged at {s.judged:,} of {counted(len(s.hospitals), 'hospital')}{few}"
        return [first, judged, *filter(None, [self.unlikeness.sentence])]

    def __repr__(self) -> str:
        return f"{self.federation!r}, seed {self.seed}: {self.verdict[0]}"

    def show(self, console: Console) -> None:
        """Print the whole description, with the verdict last."""
        render(self.summary, console)
        if self.other_seeds:
            others = ", ".join(map(str, self.other_seeds))
            console.print(
                f"the split is for seed {self.seed}; other seeds split the rows differently: {others}\n",
                highlight=False,
            )
        console.print(self.unlikeness.table(), markup=False)
        console.print()
        console.print(lines("verdict", self.verdict), highlight=False, markup=False)

    def _repr_html_(self) -> str:
        console = Console(record=True, width=120, file=io.StringIO(), force_jupyter=False)
        self.show(console)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def describe(
    config: Source | None = None,
    *,
    data: pd.DataFrame | None = None,
    seed: int | None = None,
    overrides: Overrides | None = None,
    epsilon: Smoothing = EPSILON,
) -> Description:
    """Describe the hospitals' data that a configuration names, as ``raysim describe`` does.

    ``epsilon`` is a number that is added to each share of rows before the population stability index (PSI) is computed;
    ``counts`` adds half a row to each count instead. The other arguments have the same meaning as for
    :func:`raysim.run`. If the configuration lists several seeds, the first one splits rows into training, validation
    and test.
    """
    with search_path_restored():
        asked = configuration(config, data=data, seed=seed, overrides=overrides)
        whole = reading.resolve(asked, reads={*reading.RUN, *reading.COMPARISON})
        if not whole.model_fields_set.isdisjoint(COMPARED):  # a configuration of a comparison
            compared = [plugins.label(each.strategy) for each in reading.compared(whole)]
            learners.reference_among(whole, compared)
        seeds, split = whole.seeds or (whole.seed,), whole.data.split
        federation = plugins.build_federation(whole, plugins.build_source(whole.data), seeds[0])
    divided = {(split.effective_seed(each), split.fold(each)) for each in seeds}
    return Description(whole, federation, seeds[0], seeds[1:] if len(divided) > 1 else (), epsilon)

"""What a federation holds, from Python."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rich.console import Console

from raysim.api.request import Overrides, configuration, search_path_restored
from raysim.config import plugins, reading
from raysim.config.reading import Source
from raysim.config.schema import COMPARED, Config
from raysim.data.describe import Summary, render, summarise
from raysim.data.federation import Federation
from raysim.report.terminal.tables import unlikeness_table
from raysim.strategies.shared.psi import EPSILON, Smoothing

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Description:
    """A federation as a run with ``config`` would learn on it."""

    config: Config
    federation: Federation
    seed: int
    """The seed by which its rows are divided into parts."""
    other_seeds: tuple[int, ...]
    """The seeds of a comparison that divide them differently."""
    epsilon: Smoothing
    """What smooths the shares of PSI."""

    @cached_property
    def summary(self) -> Summary:
        """Sizes, classes, missing values, and where metrics are undefined."""
        return summarise(self.federation)

    @cached_property
    def hospitals(self) -> pd.DataFrame:
        """One row per hospital: its training rows, and how much they differ from the other hospitals' (PSI)."""
        from raysim.data.heterogeneity import hospital_table

        return hospital_table(self.federation, epsilon=self.epsilon)

    def show(self, console: Console) -> None:
        """Print all of it."""
        render(self.summary, console)
        if self.other_seeds:
            others = ", ".join(map(str, self.other_seeds))
            console.print(
                f"parts are those of seed {self.seed}; other seeds divide the rows anew: {others}\n", highlight=False
            )
        console.print(unlikeness_table(self.federation, self.epsilon), markup=False)

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
    """What a configuration's federation holds, as ``raysim describe`` shows it; arguments as for :func:`raysim.run`.

    ``epsilon`` smooths the shares of PSI: a number, or ``counts``, half a row in every bin. A configuration
    that a run or comparison would refuse is refused here too. Rows are divided by the first seed that would be run.
    """
    with search_path_restored():
        asked = configuration(config, data=data, seed=seed, overrides=overrides)
        whole = reading.resolve(asked, reads={*reading.RUN, *reading.COMPARISON})
        if not whole.model_fields_set.isdisjoint(COMPARED):  # it is meant for a comparison
            compared = [plugins.label(each.strategy) for each in reading.compared(whole)]
            reading.check_reference(whole.reference, compared)
        seeds, split = whole.seeds or (whole.seed,), whole.data.split
        federation = plugins.build_federation(whole, plugins.build_source(whole.data), seeds[0])
    divided = {(split.effective_seed(each), split.fold(each)) for each in seeds}
    return Description(whole, federation, seeds[0], seeds[1:] if len(divided) > 1 else (), epsilon)

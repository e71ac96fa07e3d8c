"""What a round costs the coordinator on many nodes, from two costs that are measured here.

``python -m benchmarks.coordinator`` measures on this machine how fast sums are added, and how much processor time a
call of an actor through Ray costs the process that makes it. From these and from the speed of a network it prints the
seconds of a round that are not training, by nodes: with one sum an actor, and with sums that are added up on their way
(:mod:`raysim.cluster.node_sums`). Nothing is run on so many nodes; who adds what is what a run would do.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.scale import make
from raysim.cluster import node_sums
from raysim.cluster.placement import Placement, balance
from raysim.cluster.pool import RayPool
from raysim.engine.messages.plan import ModelSpec, RoundPlan, Work
from raysim.strategies.problem import LocalProblem, Upload
from raysim.training.base import Optimizer

ROUNDS = 30


@dataclass(frozen=True)
class Costs:
    """``added``: bytes of sums a second; ``call``: processor seconds of a call; ``network``: bytes a second."""

    added: float
    call: float
    network: float

    def arriving(self, sums: int, size: int) -> float:
        """Seconds until so many sums of ``size`` bytes have come over one link and are added."""
        return sums * size / self.network + sums * size / self.added


def adding_rate(size: int) -> float:
    """Bytes of sums that one core adds in a second."""
    sums = [np.ones(size // 8, np.int64) for _ in range(4)]
    node_sums.added(sums)
    began = time.perf_counter()
    node_sums.added(sums)
    return len(sums) * size / (time.perf_counter() - began)


def call_cost(actors: int) -> float:
    """Processor seconds that a call of one of ``actors`` through Ray costs the process that makes it."""
    import ray

    with tempfile.TemporaryDirectory() as folder:
        federation = make(Path(folder), actors, 20)
        ids = np.arange(actors)
        pool = RayPool(Placement(balance(federation.totals, actors), 0.01, 0), "cpu")
        pool.wait(600)
        work = Work(
            folder, ModelSpec("logistic_regression", None, {}, "default"), Optimizer("sgd", 0.1, 32), 1, 1, "float32"
        )
        problem = LocalProblem(start=np.zeros(actors, np.int64), upload=Upload(weight=np.full(actors, 1 / actors)))
        plan = RoundPlan(work, 1, np.zeros((1, federation.X.shape[1] + 1), np.float32), ids, problem)
        pool.round(plan, None)
        began = time.process_time()
        for _ in range(ROUNDS):
            pool.round(plan, None)
        seconds = (time.process_time() - began) / ROUNDS / actors
        for actor in pool.actors:
            ray.kill(actor)
    return seconds


def one_sum_an_actor(costs: Costs, nodes: int, actors: int, size: int) -> float:
    """Seconds of a round where every actor's sum goes to the coordinator."""
    return costs.call * nodes * actors + costs.arriving(nodes * actors, size)


def added_on_the_way(costs: Costs, nodes: int, actors: int, size: int) -> tuple[float, float]:
    """Seconds of a round where nodes add first, and those of them that are the coordinator's calls."""
    homes = np.repeat(np.arange(nodes), actors).tolist()
    levels = node_sums.additions(range(len(homes)), homes)
    calls = costs.call * (len(homes) + sum(len(level) for level in levels))
    left, adding = nodes, 0.0
    for level in levels:
        widest = max(level, key=len)
        if len({homes[actor] for actor in widest}) == 1:
            adding += len(widest) * size / costs.added
        else:
            adding += costs.arriving(len(widest), size)
            left -= sum(len(group) - 1 for group in level)
    return calls + adding + costs.arriving(left, size), calls


def main() -> None:
    """Print the two costs, and a table by nodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[2, 8, 32, 100, 300, 1000])
    parser.add_argument("--actors", type=int, default=16, help="on each node")
    parser.add_argument("--megabytes", type=float, nargs="*", default=[0.4, 2.0, 17.9, 89.7], help="of an actor's sums")
    parser.add_argument("--gigabits", type=float, default=10.0, help="a second, of a node's network")
    parser.add_argument("--on", type=int, default=8, help="actors with which the cost of a call is measured")
    options = parser.parse_args()
    import ray

    ray.init(address="local", include_dashboard=False, log_to_driver=False, num_cpus=2)
    costs = Costs(adding_rate(2**27), call_cost(options.on), options.gigabits * 1e9 / 8)
    print(f"sums are added at {costs.added / 1e9:.1f} GB/s; a call costs {costs.call * 1e3:.2f} ms")
    print(f"{'sums of an actor':>16}{'nodes':>7}{'one an actor, s':>17}{'added first, s':>16}{'of it calls, s':>16}")
    for megabytes in options.megabytes:
        for nodes in options.nodes:
            size = int(megabytes * 1e6)
            before = one_sum_an_actor(costs, nodes, options.actors, size)
            now, calls = added_on_the_way(costs, nodes, options.actors, size)
            print(f"{f'{megabytes:g} MB':>16}{nodes:>7}{before:>17.2f}{now:>16.2f}{calls:>16.2f}")


if __name__ == "__main__":
    main()

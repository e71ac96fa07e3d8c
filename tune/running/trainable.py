"""The trials that one process runs in turn for Ray Tune (``reuse_actors``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ray.tune import Trainable

from raysim.core import host
from raysim.core.importing import search_only
from raysim.engine.job import Round
from raysim.storage.encoding import decode, encode
from raysim.tune.plan import SweepPlan
from raysim.tune.running.heartbeat import Pulse
from raysim.tune.running.places import Hospitals
from raysim.tune.trial import Trial, continued, figures

MEMORY = 2**20
"""The bytes of memory that a trial requests from Ray."""


STATE = "standing-{}.safetensors"
"""The name of a checkpoint's file with the state of one run; the seed's index replaces ``{}``."""


class TrialProcess(Trainable):  # type: ignore[misc]
    """The Ray Tune trainable that runs the trial ``{trial: {number, params}}`` in ``config``.

    The user's modules are imported from ``folders``. The trial's heartbeat is a file in the folder ``alive``.
    """

    def setup(
        self, config: dict[str, Any], plan: SweepPlan, hospitals: Hospitals, folders: Sequence[str], alive: Path
    ) -> None:
        search_only(folders)
        host.limit_threads(1)
        self._plan, self._pool, self._alive = plan, hospitals.pool(), alive
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        sweep = self._plan.sweep
        self._rounds: dict[int, list[Round]] = {}
        pulse = Pulse(self._alive, self.trial_id)
        self._trial = Trial(
            self._pool,
            self._plan.jobs(config["trial"]["params"], "validation"),
            paced=sweep.judge is not None,
            retries=sweep.retries,
            beat=pulse.beat,
        )

    def step(self) -> dict[str, Any]:
        """Execute the trial up to its next report.

        Return the ``report`` for the driver, and the objectives by name for the scheduler.
        """
        report = self._trial.step()
        for seed, news in report.rounds.items():
            self._rounds[seed] = continued(self._rounds.get(seed, []), news)
        # Over all rounds so far: traffic is cumulative, and the scheduler receives only the last report.
        means = {name: mean for name, (mean, _) in figures(report.latest(), self._rounds).items()}
        objectives = {name: means[name] for name in self._plan.sweep.names if name in means}
        return {
            **objectives,
            "round": report.round,
            "failed": bool(report.error),
            "done": report.done,
            "report": report,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save the state of each seed's run, from which another trial can continue."""
        for i, (job, state) in enumerate(zip(self._trial.jobs, self._trial.states(), strict=True)):
            if state is not None:
                Path(checkpoint_dir, STATE.format(i)).write_bytes(encode(state, "", job.strategy))

    def load_checkpoint(self, checkpoint: Any) -> None:
        paths = [Path(checkpoint, STATE.format(i)) for i in range(len(self._trial.jobs))]
        self._trial.go_on(
            [
                decode(path.read_bytes(), job.strategy)[0] if path.exists() else None
                for path, job in zip(paths, self._trial.jobs, strict=True)
            ]
        )

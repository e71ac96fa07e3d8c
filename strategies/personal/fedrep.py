"""FedRep: a common representation, found by hospitals that first fit their own heads to it.

L. Collins, H. Hassani, A. Mokhtari, S. Shakkottai: *Exploiting Shared Representations for Personalized Federated
Learning*, ICML 2021, Algorithm 1.

A participant receives the body, trains its own head for ``head_epochs`` with the body frozen, then the body with that
head frozen; the bodies are averaged, by rows or uniformly as in the paper. A head never leaves its hospital. One that
was never trained is the common start's, unless ``final_head_epochs`` lets every hospital fit its head to the last body.
An empty head is federated averaging, an empty body local training, and no head epochs leave all heads as they started.

Traffic: per participant the P_b scalars of the body down, P_b + 1 up; before the final epochs P_b down per hospital.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from raysim.strategies.base import LAST, FederationView, Ids, LocalProblem, Objective, State, Upload, at_least
from raysim.strategies.personal.heads import HeadOptimizer, SharedBody, head_mask
from raysim.strategies.shared.weights import Weighted


@dataclass(frozen=True)
class FedRep(SharedBody, Weighted):
    """``head``: names of tensors or layers, None for the last layer (of a linear model the bias); weights as FedAvg.

    ``head_epochs``: as many as ``training.local_epochs``, which are the body's, where None.
    """

    head: tuple[str, ...] | None = None
    """Tensors or layers that stay at the hospital; null is the last layer (of a linear model, the bias)."""
    head_epochs: int | None = None
    """Epochs of the head in a round; null is ``training.local_epochs``."""
    final_head_epochs: int = 0
    """Epochs in which every hospital fits its head to the last body, after the last round."""
    head_optimizer: HeadOptimizer | None = None
    """The optimiser of the head where it is trained alone; null is ``training.optimizer``."""
    head_learning_rate: float | None = None
    """Its learning rate; null is ``training.learning_rate``."""

    def __post_init__(self) -> None:
        if self.head_epochs is not None:
            at_least("head_epochs", self.head_epochs, 0)
        self.check_head()
        super().__post_init__()

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        head = head_mask(view, self.head)
        everyone = np.zeros_like(ids)
        body = LocalProblem(
            start=everyone,
            upload=Upload(self.weigh(view.sizes[ids])),
            objective=Objective(frozen=head),
        )
        if self.head_epochs == 0 or not head.any():
            return body
        return LocalProblem(
            start=everyone,
            objective=Objective(frozen=~head),
            training=self.of_head(self.head_epochs),
            then=replace(body, start=np.full_like(ids, LAST)),
        )

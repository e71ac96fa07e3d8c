"""FedRep: hospitals first fit their own heads to a common representation, and then train the representation.

L. Collins, H. Hassani, A. Mokhtari, S. Shakkottai: *Exploiting Shared Representations for Personalized Federated
Learning*, ICML 2021, Algorithm 1.

A participant receives the body (the representation), trains its own head for ``head_epochs`` with the body frozen, and
then trains the body with the head frozen. The server averages the bodies, weighted by training rows, or uniformly as in
the paper. A head never leaves its hospital. With ``final_head_epochs``, every hospital fits its head to the body of the
last round, even if the hospital never took part.

Traffic of a round: the server sends the P_b parameters of the body to each participant. Each participant sends back P_b
numbers and its number of training rows. With ``final_head_epochs``, the last body is also sent to every hospital.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from raysim.strategies.base import LAST, FederationView, Ids, LocalProblem, NonNegativeInt, Objective, State, Upload
from raysim.strategies.personal.heads import HeadOptimizer, HeadRate, SharedBody, head_mask
from raysim.strategies.shared.weights import Weighted


@dataclass(frozen=True)
class FedRep(SharedBody, Weighted):
    """A shared representation with a head for each hospital (FedRep). Hospitals' weights are as in FedAvg.

    ``training.local_epochs`` is the number of epochs of the body in a round.
    """

    head: tuple[str, ...] | None = None
    """Tensors or layers that stay at the hospital; null means the last layer (in a linear model, the bias)."""
    head_epochs: NonNegativeInt | None = None
    """Epochs of the head in a round; null means ``training.local_epochs``."""
    final_head_epochs: NonNegativeInt = 0
    """Epochs in which every hospital fits its head to the last body, after the last round."""
    head_optimizer: HeadOptimizer | None = None
    """The optimiser for training the head alone; null means ``training.optimizer``."""
    head_learning_rate: HeadRate | None = None
    """The learning rate for training the head alone; null means ``training.learning_rate``."""

    def problem(self, view: FederationView, state: State, ids: Ids) -> LocalProblem:
        head = head_mask(view, self.head)
        everyone = np.zeros_like(ids)
        body = LocalProblem(
            start=everyone, upload=Upload(self.weigh(view.sizes[ids])), objective=Objective(frozen=head)
        )
        if self.head_epochs == 0 or not head.any():
            return body
        return LocalProblem(
            start=everyone,
            objective=Objective(frozen=~head),
            training=self.of_head(self.head_epochs),
            then=replace(body, start=np.full_like(ids, LAST)),
        )

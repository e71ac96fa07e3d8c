"""FedPer: hospitals share the lower layers, and each has its own last layer.

M. G. Arivazhagan, V. Aggarwal, A. K. Singh, S. Choudhary: *Federated Learning with Personalization Layers*,
arXiv:1912.00818, 2019, Algorithms 1 and 2.

A participant receives the body (the lower layers) and trains it together with its own head (the last layer). The server
averages the bodies. A head never leaves its hospital. With ``final_head_epochs``, every hospital fits its head to the
body of the last round, even if the hospital never took part.

Traffic of a round: the server sends the P_b parameters of the body to each participant. Each participant sends back P_b
numbers and its number of training rows. With ``final_head_epochs``, the last body is also sent to every hospital.
"""

from __future__ import annotations

from dataclasses import dataclass

from raysim.strategies.base import NonNegativeInt
from raysim.strategies.personal.heads import HeadOptimizer, HeadRate, SharedBody
from raysim.strategies.shared.weights import Weighted


@dataclass(frozen=True)
class FedPer(SharedBody, Weighted):
    """A shared body with a head for each hospital (FedPer); hospitals are weighted as in FedAvg."""

    head: tuple[str, ...] | None = None
    """Tensors or layers that stay at the hospital; null means the last layer (in a linear model, the bias)."""
    final_head_epochs: NonNegativeInt = 0
    """Epochs in which every hospital fits its head to the last body, after the last round."""
    head_optimizer: HeadOptimizer | None = None
    """The optimiser for training the head alone; null means ``training.optimizer``."""
    head_learning_rate: HeadRate | None = None
    """The learning rate for training the head alone; null means ``training.learning_rate``."""

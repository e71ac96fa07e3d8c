"""Text networks of published experiments (Clust-PSI-PFL: Jimenez-Gutierrez et al., 2025), as ``torch`` modules.

Rows ``[n, L]`` are token ids: whole numbers below ``vocabulary``, stored as floats like all features. The id 0 is
padding. Its embedding has the gradient 0, and therefore stays zero unless privacy noise is added. All hospitals use the
same vocabulary, which the data set defines.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from raysim.training.base import whole

PADDING = 0
UNITS = 10


class TextLstm(nn.Module):
    """The Sent140 network of Clust-PSI-PFL: embedding, dropout .5, an LSTM of 10 units with dropout .2 on its inputs.

    The classifier receives the state after the last token. Padding is skipped. The dropout on inputs is as in Keras: a
    row's mask is the same at all tokens. The paper's recurrent dropout of 0.2 is left out, because ``nn.LSTM`` does not
    have it. The paper gives neither ``vocabulary`` nor the embedding's ``dimension``.
    """

    lookup = "embedding.weight"

    def __init__(self, n_features: int, n_outputs: int, vocabulary: int = 10_000, dimension: int = 32) -> None:
        super().__init__()
        self.embedding, self.drop = embedding(vocabulary, dimension), nn.Dropout(0.5)
        self.input_drop = nn.Dropout1d(0.2)  # of all steps of a row's input at once
        self.lstm = nn.LSTM(dimension, UNITS, batch_first=True)
        self.head = nn.Linear(UNITS, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``[n, n_outputs]`` of rows ``[n, L]``."""
        ids = token_ids(x, self.embedding.num_embeddings)
        # Move tokens to the front, in their order, and run only as many steps as the longest row has tokens.
        padded, order = (ids == PADDING).sort(dim=1, stable=True)
        tokens = (~padded).sum(1)
        steps = max(1, int(tokens.max())) if len(x) else 1
        embedded = self.drop(self.embedding(ids.gather(1, order[:, :steps])))
        states, _ = self.lstm(self.input_drop(embedded.transpose(1, 2)).transpose(1, 2))
        last = states[torch.arange(len(x), device=x.device), tokens.clamp(min=1) - 1]
        logits: Tensor = self.head(last * (tokens > 0).unsqueeze(1))
        return logits


class TextDense(nn.Module):
    """The Amazon reviews network of Clust-PSI-PFL: a flattened embedding, and a dense layer of 8 units with ReLU.

    The paper gives neither ``vocabulary`` nor the embedding's ``dimension``.
    """

    lookup = "embedding.weight"

    def __init__(self, n_features: int, n_outputs: int, vocabulary: int = 10_000, dimension: int = 32) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, dimension)
        self.head = nn.Sequential(nn.Linear(n_features * dimension, 8), nn.ReLU(), nn.Linear(8, n_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``[n, n_outputs]`` of rows ``[n, L]``."""
        logits: Tensor = self.head(self.embedding(token_ids(x, self.embedding.num_embeddings)).flatten(1))
        return logits


def embedding(vocabulary: int, dimension: int) -> nn.Embedding:
    """Return the embedding layer for token ids. Raises ``ValueError`` for an invalid option."""
    whole("vocabulary", vocabulary, 2)
    whole("dimension", dimension, 1)
    return nn.Embedding(vocabulary, dimension, padding_idx=PADDING)


def token_ids(x: Tensor, vocabulary: int) -> Tensor:
    """Return the ids ``x [n, L]`` as int64. Raises ``ValueError`` for an id outside ``0..vocabulary-1``.

    Under ``vmap`` (DP-SGD) nothing is checked here, because the values of tensors cannot be compared.
    """
    if x.numel():
        try:
            # Comparing tensors would take three times as long.
            least, most = (float(each) for each in x.aminmax())
        except RuntimeError:
            return x.long()
        if not (least >= 0 and most < vocabulary):
            wrong = least if not least >= 0 else most
            raise ValueError(
                f"a token has the id {wrong:g}, which is not from 0 to {vocabulary - 1}; set model.vocabulary to the "
                "vocabulary of the data"
            )
    return x.long()

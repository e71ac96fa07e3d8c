"""Text networks of published experiments, as ``torch`` modules on rows of token ids.

Rows ``[n, L]`` hold whole numbers below ``vocabulary`` as floats, as features are; 0 is padding, whose embedding is
zero and stays it. All hospitals have the same vocabulary, the data's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from raysim.training.base import whole
from raysim.training.networks.dropout import Dropout, mask
from raysim.training.networks.joint import JointModule
from raysim.training.networks.recurrent import Gates, recurrences
from raysim.training.networks.written import Array, Backward, WrittenModule

PADDING = 0
UNITS, INPUT_DROP, RECURRENT_DROP = 10, 0.2, 0.2


class TextLstm(JointModule):
    """The Sent140 network of Clust-PSI-PFL: embedding, dropout .5, an LSTM of 10 units (dropout .2, recurrent .2).

    The classifier sees the state after the last token. Padding is skipped, wherever it stands; a row of nothing else
    has the state zero. The LSTM's dropout is Keras's: one mask for a row's inputs and one for its hidden states, alike
    at all steps. The paper gives neither ``vocabulary`` nor ``dimension``, the embedding's.
    """

    lookup = "embedding.weight"

    def __init__(self, n_features: int, n_outputs: int, vocabulary: int = 10_000, dimension: int = 32) -> None:
        super().__init__()
        self.embedding, self.drop = embedding(vocabulary, dimension), Dropout(0.5)
        self.inputs = nn.Linear(dimension, 4 * UNITS)
        self.recurrent = nn.Linear(UNITS, 4 * UNITS, bias=False)
        self.head = nn.Linear(UNITS, n_outputs)

    def before(self, x: Tensor) -> Gates:
        """The inputs of the recurrence for the tokens of rows ``[n, L]``."""
        ids = token_ids(x, self.embedding.num_embeddings)
        # Padding in front, tokens in their order behind it, and no more steps than the longest row has tokens.
        present, order = (ids > 0).sort(dim=1, stable=True)
        counts = present.sum(0).tolist()  # of the rows that have begun at each step
        first = next((step for step, count in enumerate(counts) if count), len(counts))
        full = next((step for step, count in enumerate(counts) if count == len(x)), len(counts))
        embedded, recurrent = self.drop(self.embedding(ids.gather(1, order)[:, first:].t())), None
        begun = present[:, first:full].t().unsqueeze(2).to(x.dtype)
        if self.training:
            embedded = embedded * mask(embedded.new_empty(embedded.shape[1:]), INPUT_DROP)
            recurrent = mask(embedded.new_empty(len(x), UNITS), RECURRENT_DROP)
        weight = self.recurrent.weight  # gates have its precision, also under autocast
        return Gates(self.inputs(embedded).to(weight.dtype), weight, recurrent, begun)

    @staticmethod
    def joint(several: Sequence[Gates]) -> list[Tensor]:
        """See :func:`recurrences`."""
        return recurrences(several)

    def after(self, state: Tensor) -> Tensor:
        """Logits ``[n, n_outputs]``."""
        logits: Tensor = self.head(state)
        return logits


class TextDense(WrittenModule):
    """The Amazon reviews network of Clust-PSI-PFL: embedding, flattened, a dense layer of 8 with ReLU.

    The paper gives neither ``vocabulary`` nor ``dimension``, the embedding's.
    """

    lookup = "embedding.weight"

    def __init__(self, n_features: int, n_outputs: int, vocabulary: int = 10_000, dimension: int = 32) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, dimension)
        self.head = nn.Sequential(nn.Linear(n_features * dimension, 8), nn.ReLU(inplace=True), nn.Linear(8, n_outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``[n, n_outputs]`` of rows ``[n, L]``."""
        logits: Tensor = self.head(self.embedding(token_ids(x, self.embedding.num_embeddings)).flatten(1))
        return logits

    def written(self, x: Tensor) -> tuple[Array, Backward]:
        """See :class:`WrittenModule`."""
        ids = token_ids(x, self.embedding.num_embeddings)
        table = self.embedding.weight.detach()
        first, first_bias, last, last_bias = (tensor.detach().numpy() for tensor in self.head.parameters())
        entries = nn.functional.embedding(ids, table).flatten(1).numpy()
        hidden = np.maximum(entries @ first.T + first_bias, 0)

        def backward(by_output: Array, into: Sequence[Array]) -> None:
            by_table, by_first, by_first_bias, by_last, by_last_bias = into
            by_hidden = by_output @ last * (hidden > 0)
            by_entries = torch.from_numpy(by_hidden @ first).view(ids.numel(), -1)
            torch.from_numpy(by_table).zero_().index_add_(0, ids.flatten(), by_entries)[PADDING].zero_()
            np.matmul(by_hidden.T, entries, out=by_first)
            by_hidden.sum(0, out=by_first_bias)
            np.matmul(by_output.T, hidden, out=by_last)
            by_output.sum(0, out=by_last_bias)

        return hidden @ last.T + last_bias, backward


def embedding(vocabulary: int, dimension: int) -> nn.Embedding:
    """The embedding of tokens. Raises ``ValueError`` naming the option that it cannot be made with."""
    whole("vocabulary", vocabulary, 2)
    whole("dimension", dimension, 1)
    return nn.Embedding(vocabulary, dimension, padding_idx=PADDING)


def token_ids(x: Tensor, vocabulary: int) -> Tensor:
    """The ids ``x [n, L]`` as int64. Raises ``ValueError`` for one that is not in ``0..vocabulary-1``.

    Under ``vmap``, by which private steps take gradients row by row, there are no numbers to compare here: those rows
    are checked before (:func:`raysim.training.kernels.modules.lookup.check_entries`).
    """
    if x.numel():
        try:
            # Compared as tensors they would take three times as long.
            least, most = (float(each) for each in x.aminmax())
        except RuntimeError:
            return x.long()
        if not (least >= 0 and most < vocabulary):
            wrong = least if not least >= 0 else most
            raise ValueError(f"a token is {wrong:g}, not an id below model.vocabulary ({vocabulary}); make them agree")
    return x.long()

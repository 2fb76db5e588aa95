"""Recurrent layers on padded samples of several documents, with and without an initial state, in
PyTorch; make_reference.py writes them.

The documents of all samples are packed sequences, each with the initial state of its sample.
"""
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

UNITS, FEATURES, VOCABULARY = 3, 4, 5
# Padding after documents; before, within and between them.
SEGMENTS = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 0, 0], [0, 3, 3, 0, 3, 3, 0, 1, 2]])


class Documents(nn.Module):
    """A network whose input are segments, which are also tokens. The initial state is a dense layer
    of all of them."""

    def __init__(self, kind, directions, sequences, initial_state):
        super().__init__()
        self.states = 2 if kind is nn.LSTM else 1
        self.directions, self.sequences = directions, sequences
        self.embedding = nn.Embedding(VOCABULARY, FEATURES)
        self.positional_embedding = nn.Embedding(SEGMENTS.shape[1], FEATURES)
        self.layer = kind(FEATURES, UNITS, batch_first=True, bidirectional=directions == 2)
        if initial_state:
            self.dense = nn.Linear(SEGMENTS.shape[1] * FEATURES, directions * self.states * UNITS)

    def forward(self, segments):
        x = self.embedding(segments) + self.positional_embedding.weight
        state = torch.zeros(len(x), self.directions * self.states * UNITS, dtype=x.dtype)
        if hasattr(self, "dense"):
            state = self.dense(x.flatten(1))
        places = [(sample, (row == document).nonzero().flatten())
                  for sample, row in enumerate(segments)
                  for document in dict.fromkeys(row.tolist())
                  if document != 0]
        owners = [sample for sample, _ in places]
        state = state[owners].unflatten(1, (self.directions, self.states,
                                            UNITS)).permute(2, 1, 0, 3).contiguous()
        packed, last = self.layer(
            pack_sequence([x[place] for place in places], enforce_sorted=False),
            tuple(state) if self.states == 2 else state[0])
        if self.sequences:
            output = torch.zeros(*segments.shape, self.directions * UNITS, dtype=x.dtype)
            for place, rows in zip(places, unpack_sequence(packed)):
                output[place] = rows
            return output
        last = last[0] if self.states == 2 else last
        ends = [[k for k, owner in enumerate(owners) if owner == sample] for sample in range(len(x))
                ]
        # The second direction ends in the first document.
        return torch.stack([
            torch.cat([last[0, mine[-1]], *([last[1, mine[0]]] if self.directions == 2 else [])])
            for mine in ends
        ])


def arrays_of(model, layer):
    """What a gradient is of, and what is stored of it, by our names: an LSTM and an RNN have one
    bias, the sum of PyTorch's two."""
    names = {
        "embedding": "embedding/embeddings",
        "positional_embedding": "positional_embedding/embeddings"
    }
    leaves, stored = {}, {}
    for name, array in model.named_parameters():
        owner, kind = name.split(".")
        if owner in names:
            ours = names[owner]
        elif owner == "dense":
            ours = f"dense/{'kernel' if kind == 'weight' else 'bias'}"
        else:
            prefix = "backward_" if kind.endswith("_reverse") else ""
            kinds = {
                "weight_ih": "kernel",
                "weight_hh": "recurrent_kernel",
                "bias_ih": "bias",
                "bias_hh": "recurrent_bias"
            }
            ours = f"{layer}/{prefix}{kinds[kind.split('_l0')[0]]}"
        if layer != "gru" and ours.endswith("recurrent_bias"):
            bias = ours.replace("recurrent_bias", "bias")
            stored[bias] = stored[bias] + array
        else:
            leaves[ours] = stored[ours] = array
    return leaves, stored


def values():
    torch.manual_seed(6)
    result = {}
    for layer, kind in {"lstm": nn.LSTM, "gru": nn.GRU, "simple_rnn": nn.RNN}.items():
        for name, options in {"documents": (2, True, True), "last_of_documents": (2, False, False),
                              "last_of_state": (1, False, True)}.items():
            model = Documents(kind, *options).double()
            leaves, stored = arrays_of(model, layer)
            output = model(SEGMENTS)
            target = torch.randn(output.shape).double()
            gradients = torch.autograd.grad(functional.mse_loss(output, target),
                                            list(leaves.values()))
            one = {"input": SEGMENTS, "target": target, "output": output}
            one |= {f"parameter/{key}": array for key, array in stored.items()}
            one |= {f"gradient/{key}": gradient for key, gradient in zip(leaves, gradients)}
            result |= {f"{layer}_{name}/{key}": array for key, array in one.items()}
    return result

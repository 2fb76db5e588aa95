"""PyTorch's side of scripts/bench --only sequences: networks of sequences, one batch in memory.

Usage: bench_sequences_torch.py KIND:LAYERSxWIDTH POSITIONS VOCABULARY BATCH STEPS PRECISION
THREADS. KIND is gpt, minilm, or lstm, whose positions have VOCABULARY features. PRECISION is
float32 or bfloat16, with autocast. Prints one JSON object: the tokens per second of the faster of
eager PyTorch and torch.compile, and the most memory of the process with eager PyTorch.
"""

import json
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional

CLASSES = 10


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        parts = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        rows = functional.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        x = x + self.projection(rows.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """The network of `lockstep train --model gpt:LAYERSxWIDTH`: as many heads of 64 elements as
    there are."""

    def __init__(self, layers, width, positions, vocabulary):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary,
                                                   width), nn.Embedding(positions, width)
        nn.init.normal_(self.tokens.weight, std=0.02)  # also the last kernel
        self.blocks = nn.Sequential(*(Block(width, width // 64) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.blocks(self.tokens(tokens) + self.positions.weight)
        return functional.linear(self.norm(x), self.tokens.weight).flatten(0, 1)


class Lstm(nn.Module):
    """The network of `lockstep train --model lstm:LAYERSxWIDTH`."""

    def __init__(self, layers, width, features):
        super().__init__()
        self.layers = nn.LSTM(features, width, layers, batch_first=True)
        self.dense = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.dense(self.layers(x)[0][:, -1])


class MiniLm(nn.Module):
    """The network of `lockstep train --model minilm:LAYERSxWIDTH`, by the transformers package: the
    mean of BERT's outputs."""

    def __init__(self, layers, width, positions, vocabulary):
        super().__init__()
        from transformers import BertConfig, BertModel
        self.bert = BertModel(
            BertConfig(vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers,
                       num_attention_heads=width // 32, intermediate_size=4 * width,
                       hidden_dropout_prob=0, attention_probs_dropout_prob=0),
            add_pooling_layer=False)
        self.classifier = nn.Linear(width, 2)

    def forward(self, tokens):
        return self.classifier(self.bert(tokens).last_hidden_state.mean(1))


def rate(is_compiled, kind, sizes, positions, vocabulary, batch, steps, precision):
    torch.manual_seed(1)
    if kind == "gpt":
        model = Gpt(*sizes, positions, vocabulary)
        x, labels = torch.randint(vocabulary, (2, batch, positions))
        labels = labels.flatten()
    elif kind == "minilm":
        model = MiniLm(*sizes, positions, vocabulary)
        x, labels = torch.randint(vocabulary, (batch, positions)), torch.randint(2, (batch,))
    else:
        model = Lstm(*sizes, vocabulary)
        x, labels = torch.rand(batch, positions, vocabulary), torch.randint(CLASSES, (batch,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def loss_of(x, labels):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            return functional.cross_entropy(model(x), labels)

    function = torch.compile(loss_of) if is_compiled else loss_of
    for step in range(steps + 3):
        if step == 3:
            start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        function(x, labels).backward()
        optimizer.step()
    return steps * batch * positions / (time.perf_counter() - start)


def main():
    torch.set_num_threads(int(sys.argv[7]))
    torch.set_num_interop_threads(1)
    kind, sizes = sys.argv[1].split(":")
    arguments = kind, [int(size) for size in sizes.split("x")
                       ], *map(int, sys.argv[2:6]), sys.argv[6]
    rates = {"eager": rate(False, *arguments)}
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    rates["torch.compile"] = rate(True, *arguments)
    best = max(rates, key=rates.get)
    print(
        json.dumps({
            "version": torch.__version__,
            "setting": best,
            "tokens_per_second": rates[best],
            "tried": rates,
            "megabytes": megabytes
        }))


if __name__ == "__main__":
    main()

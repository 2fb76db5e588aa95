"""PyTorch's side of scripts/bench --only tables: wide_deep, eagerly, on one thread, the table as
tensors in memory.

Usage: bench_tables_torch.py TABLE BATCH. Prints one JSON object: the samples per second of the
fastest setting.
"""

import json
import sys
import time

import pandas
import torch
from torch import nn

STEPS = 300


class WideDeep(nn.Module):
    """The network of `lockstep train --model wide_deep:128x128,embedding=8`."""

    def __init__(self, numbers, vocabularies, classes, sparse):
        super().__init__()
        self.wide = nn.ModuleList(
            nn.Embedding(size, classes, sparse=sparse) for size in vocabularies)
        self.embeddings = nn.ModuleList(
            nn.Embedding(size, 8, sparse=sparse) for size in vocabularies)
        self.linear = nn.Linear(numbers, classes, bias=False)
        self.deep = nn.Sequential(nn.Linear(numbers + 8 * len(vocabularies), 128), nn.ReLU(),
                                  nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, classes))

    def forward(self, numbers, words):
        columns = words.unbind(1)
        logits = self.linear(numbers)
        for embedding, column in zip(self.wide, columns):
            logits = logits + embedding(column)
        deep = [numbers
                ] + [embedding(column) for embedding, column in zip(self.embeddings, columns)]
        return logits + self.deep(torch.cat(deep, 1))


class OneTable(WideDeep):
    """The same with one table of embeddings for all columns, each with its offset: fewer and larger
    operations."""

    def __init__(self, numbers, vocabularies, classes, sparse):
        super().__init__(numbers, vocabularies, classes, sparse)
        self.register_buffer("offsets", torch.tensor([0, *vocabularies[:-1]]).cumsum(0))
        self.wide = nn.EmbeddingBag(sum(vocabularies), classes, mode="sum", sparse=sparse)
        self.embeddings = nn.Embedding(sum(vocabularies), 8, sparse=sparse)

    def forward(self, numbers, words):
        rows = words + self.offsets
        deep = torch.cat([numbers, self.embeddings(rows).flatten(1)], 1)
        return self.linear(numbers) + self.wide(rows) + self.deep(deep)


def load(path):
    table = pandas.read_csv(path)
    names = [name for name in table.columns if name.startswith("c")]
    numbers = torch.tensor(table[[name for name in table.columns if name.startswith("n")
                                  ]].to_numpy("float32"))
    numbers = (numbers - numbers.mean(0)) / numbers.std(0)
    words = [table[name].astype("category").cat.codes.to_numpy("int64") for name in names]
    vocabularies = [int(column.max()) + 1 for column in words]
    return numbers, torch.stack([torch.from_numpy(column) for column in words],
                                1), torch.tensor(table["label"]), vocabularies


def rate(kind, adam, data, batch):
    numbers, words, labels, vocabularies = data
    torch.manual_seed(1)
    model = kind(numbers.shape[1], vocabularies, 2, sparse=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **adam)
    loss = nn.CrossEntropyLoss()
    order = torch.randperm(len(labels)).split(batch)
    for step, ids in enumerate(order[:STEPS + 50]):
        if step == 50:
            start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss(model(numbers[ids], words[ids]), labels[ids]).backward()
        optimizer.step()
    return STEPS * batch / (time.perf_counter() - start)


def main():
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    data, batch = load(sys.argv[1]), int(sys.argv[2])
    kinds = {"a table per column": WideDeep, "one table": OneTable}
    adams = {"foreach": {"foreach": True}, "fused": {"fused": True}}
    rates = {
        f"{kind}, Adam {adam}": rate(kinds[kind], adams[adam], data, batch)
        for kind in kinds
        for adam in adams
    }
    best = max(rates, key=rates.get)
    print(
        json.dumps({
            "version": torch.__version__,
            "setting": best,
            "samples_per_second": rates[best],
            "tried": rates
        }))


if __name__ == "__main__":
    main()

"""The PyTorch side of scripts/bench: the network `cnn` on Fashion-MNIST, eagerly.

Prints one JSON object a line: {"event": "step"} after the first optimizer step, then, per measured
epoch, {"event": "epoch", "samples": ..., "seconds": ..., "samples_per_second": ...}, input
included. With --peak-rate it trains with the recipe of scripts/bench --only accuracy, without
warm-up, and the epochs have "validation_accuracy".
"""

import argparse
import gzip
import json
import math
import pathlib
import time

import numpy
import torch
from torch import nn


def read_idx(path):
    """An IDX file of unsigned bytes as a tensor of its shape."""
    with gzip.open(path) as file:
        data = file.read()
    dimensions = data[3]
    shape = numpy.frombuffer(data, ">i4", dimensions, offset=4).tolist()
    return torch.from_numpy(
        numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))


def adam(parameters, kind):
    choice = {"plain": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    return torch.optim.Adam(parameters, lr=1e-3, **choice[kind])


class Training:
    def __init__(self, options):
        self.batch = options.batch
        is_last = options.layout == "channels_last"
        self.layout = torch.channels_last if is_last else torch.contiguous_format
        # The images stay in memory, as bytes (converted batch by batch) or as floats (converted
        # once).
        self.images = read_idx(options.data / "train-images-idx3-ubyte.gz").unsqueeze(1)
        self.labels = read_idx(options.data / "train-labels-idx1-ubyte.gz").long()
        if options.input == "float32":
            self.images = self.images.float().div_(255)
        self.model = cnn().to(memory_format=self.layout)
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = adam(self.model.parameters(), options.adam)

    def prepared(self, images):
        if images.dtype == torch.uint8:
            images = images.float().div_(255)
        return images.contiguous(memory_format=self.layout)

    def step(self, ids):
        images = self.prepared(self.images[ids])
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(self.model(images), self.labels[ids]).backward()
        self.optimizer.step()

    def epoch(self, steps=None):
        """One pass in a new random order, or its first `steps` steps; the number of samples."""
        samples = 0
        for ids in torch.randperm(len(self.images)).split(self.batch)[:steps]:
            self.step(ids)
            samples += len(ids)
        return samples


def train_with_recipe(training, options):
    """Adam with a linear warm-up and a cosine to 0; validates on the test images after each
    epoch."""
    steps = options.epochs * math.ceil(len(training.images) / options.batch)

    def factor(step):
        if step < options.warm_up:
            return (step + 1) / options.warm_up
        return (1 + math.cos(math.pi * (step - options.warm_up) / (steps - options.warm_up))) / 2

    for group in training.optimizer.param_groups:
        group["lr"] = options.peak_rate
    schedule = torch.optim.lr_scheduler.LambdaLR(training.optimizer, factor)
    images = read_idx(options.data / "t10k-images-idx3-ubyte.gz").unsqueeze(1)
    labels = read_idx(options.data / "t10k-labels-idx1-ubyte.gz").long()
    for epoch in range(options.epochs):
        start = time.perf_counter()
        for ids in torch.randperm(len(training.images)).split(options.batch):
            training.step(ids)
            schedule.step()
        seconds = time.perf_counter() - start
        with torch.no_grad():
            correct = sum((training.model(training.prepared(batch)).argmax(1) == truth).sum().item()
                          for batch, truth in zip(images.split(500), labels.split(500)))
        print(json.dumps({"event": "epoch", "epoch": epoch, "seconds": seconds,
                          "samples_per_second": len(training.images) / seconds,
                          "validation_accuracy": correct / len(labels)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, help="end every epoch after this many steps")
    parser.add_argument("--warm-up", type=int, default=50,
                        help="steps before the first measured epoch")
    parser.add_argument("--layout", choices=["contiguous", "channels_last"], default="contiguous")
    parser.add_argument("--adam", choices=["plain", "foreach", "fused"], default="fused")
    parser.add_argument("--input", choices=["uint8", "float32"], default="uint8")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peak-rate", type=float, help="train with the recipe, to this rate")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    training = Training(options)
    parameters = sum(parameter.numel() for parameter in training.model.parameters())
    print(json.dumps({
        "event": "start",
        "torch": torch.__version__,
        "parameters": parameters
    }), flush=True)
    if options.peak_rate:
        return train_with_recipe(training, options)
    training.epoch(1)
    print(json.dumps({"event": "step", "step": 1}), flush=True)
    training.epoch(options.warm_up)
    for epoch in range(options.epochs):
        start = time.perf_counter()
        samples = training.epoch(options.steps)
        seconds = time.perf_counter() - start
        print(json.dumps({"event": "epoch", "epoch": epoch, "samples": samples, "seconds": seconds,
                          "samples_per_second": samples / seconds}), flush=True)


if __name__ == "__main__":
    main()

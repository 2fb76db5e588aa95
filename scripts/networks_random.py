"""Random networks of PyTorch's layers, which scripts/networks exports: odd strides and windows,
groups, permutations, slices, flattenings of every kind, recurrent layers, and arithmetic."""

import random

import torch
from torch import nn
from torch.nn import functional

from networks_torch import Apply

MOST_ELEMENTS = 6000  # in an array of one sample
ACTIVATIONS = [functional.relu, functional.silu, functional.gelu, functional.relu6, torch.tanh,
               torch.sigmoid, functional.hardswish, functional.elu, functional.mish,
               functional.softplus]


class Outputs(nn.Module):
    """The outputs of a recurrent layer, without its last state."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


class Positions(nn.Module):
    """A trained array that is added to each sample, or multiplied with it."""

    def __init__(self, shape, multiplies):
        super().__init__()
        self.array, self.multiplies = nn.Parameter(torch.randn(shape)), multiplies

    def forward(self, x):
        return x * self.array if self.multiplies else x + self.array


def of_any_rank(choose, shape):
    """Layers of an array of `shape`, without the batch, by a name."""
    axis = choose.randint(1, len(shape))
    factor = choose.uniform(0.5, 2)
    return {
        "activation": Apply(choose.choice(ACTIVATIONS)),
        "times a number": Apply(lambda x: functional.gelu(x) * factor),
        "plus a number": Apply(lambda x: x + factor),
        "swish written out": Apply(lambda x: x * torch.sigmoid(x)),
        "linear": nn.Linear(shape[-1], choose.randint(2, 7), bias=choose.random() < 0.7),
        "layer normalization": nn.LayerNorm(shape[-1], eps=choose.choice([1e-5, 1e-3])),
        "softmax": Apply(lambda x: x.softmax(axis)),
        "joined": Apply(lambda x: torch.cat([x, torch.relu(x)], axis)),
        "halves swapped": Apply(lambda x: torch.cat(
            list(x.split([1, x.shape[axis] - 1], axis))[::-1], axis)),
        "a part": Apply(lambda x: x.narrow(axis, 1, x.shape[axis] - 1)),
        "mean": Apply(lambda x: x.mean(axis, keepdim=len(shape) == 3)),
        "flat": nn.Flatten(choose.randint(1, len(shape))),
        "array": Positions(shape[choose.randint(0, len(shape) - 1):], choose.random() < 0.3),
    }


def of_images(choose, shape):
    channels, height, width = shape
    groups = choose.choice([k for k in range(1, channels + 1) if channels % k == 0])
    window = (choose.randint(1, 4), choose.randint(1, 4))
    pool = (choose.randint(1, 3), choose.randint(1, 3))
    strides = (choose.randint(1, 3), choose.randint(1, 3))
    zeros = [choose.randint(0, 2) for _ in range(4)]
    axes = choose.choice([(0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2), (0, 3, 2, 1)])
    joined = choose.choice([(2, 3), (1, 2)])
    inside = (choose.randint(0, pool[0] // 2), choose.randint(0, pool[1] // 2))
    return {
        "convolution": nn.Conv2d(channels, groups * choose.randint(1, 4), window, strides,
                                 (zeros[0], zeros[1]), groups=groups,
                                 bias=choose.random() < 0.7),
        "dilated convolution": nn.Conv2d(channels, choose.randint(1, 4), 2, 1, zeros[2], 2),
        "depthwise": nn.Conv2d(channels, channels * choose.randint(1, 2), pool[0],
                               padding=zeros[0], groups=channels),
        "transposed convolution": nn.ConvTranspose2d(channels, choose.randint(1, 4), 2, 2),
        "batch normalization": nn.BatchNorm2d(channels, eps=choose.choice([1e-5, 1e-2])),
        "group normalization": nn.GroupNorm(groups, channels),
        "maximum": nn.MaxPool2d(pool, strides[0], inside, ceil_mode=choose.random() < 0.3),
        "average": nn.AvgPool2d(pool, strides[0], inside,
                                count_include_pad=choose.random() < 0.5),
        "global average": nn.AdaptiveAvgPool2d(1),
        "zeros": nn.ZeroPad2d(zeros),
        "enlarged": nn.Upsample(scale_factor=2, mode=choose.choice(["nearest", "bilinear"])),
        "axes": Apply(lambda x: x.permute(*axes)),
        "tokens": Apply(lambda x: x.flatten(2).transpose(1, 2)),
        "two axes joined": Apply(lambda x: x.flatten(*joined)),
        "excitation": Apply(lambda x: x * x.mean((2, 3), keepdim=True).sigmoid()),
    }


def of_sequences(choose, shape):
    steps, features = shape
    window = choose.randint(1, 3)
    cell = choose.choice([nn.LSTM, nn.GRU, nn.RNN])
    end = choose.choice([0, -1])
    return {
        "recurrent": Outputs(cell(features, choose.randint(2, 5), choose.randint(1, 2),
                                  batch_first=True, bidirectional=choose.random() < 0.4)),
        "convolution": nn.Conv1d(steps, choose.randint(2, 6), window,
                                 padding=choose.randint(0, window // 2),
                                 stride=choose.randint(1, 2)),
        "batch normalization": nn.BatchNorm1d(steps),
        "pooling": nn.MaxPool1d(window),
        "transposed": Apply(lambda x: x.transpose(1, 2)),
        "one step": Apply(lambda x: x[:, end]),
        "written attention": Apply(
            lambda x: (x @ x.transpose(1, 2) * features**-0.5).softmax(-1) @ x),
    }


def of_vectors(choose, shape):
    parts = choose.choice([k for k in range(1, shape[0] + 1) if shape[0] % k == 0])
    return {
        "batch normalization": nn.BatchNorm1d(shape[0]),
        "sequence": Apply(lambda x: x.reshape(-1, parts, x.shape[1] // parts)),
    }


def network(seed):
    """A module, the shape of a sample, and the names of its layers."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    is_image = choose.random() < 0.65
    shape = ([choose.randint(2, 6), choose.randint(7, 14), choose.randint(7, 14)] if is_image
             else [choose.randint(4, 9), choose.randint(3, 8)])
    layers, names = [], []
    value = torch.randn(2, *shape)
    for _ in range(40):  # tries; some layers do not fit
        if len(layers) == 3 + seed % 6:
            break
        own = {3: of_images, 2: of_sequences, 1: of_vectors}[value.dim() - 1]
        try:
            some = own(choose, value.shape[1:]) if choose.random() < 0.6 else of_any_rank(
                choose, value.shape[1:])
            name = choose.choice(sorted(some))
            layer = some[name].eval()
            result = layer(value)
        except (RuntimeError, ValueError, IndexError):
            continue
        fits = (2 <= result.dim() <= 4 and result.shape[0] == 2 and 1 < result[0].numel()
                <= MOST_ELEMENTS)
        if fits:
            layers.append(layer)
            names.append(name)
            value = result.detach()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(value[0].numel(), 4)), shape, names

"""Outputs and gradients of PyTorch's MobileNetV2, with weights and images that need no file;
make_reference.py writes them."""
import numpy
import torch
from torch import nn
from torch.nn import functional

from make_reference_layout import CLASSES, named_arrays, named_buffers, normalization, to_nchw


class InvertedResidual(nn.Module):
    def __init__(self, inputs, expansion, filters, stride):
        super().__init__()
        width = expansion * inputs
        expand = [] if expansion == 1 else [convolution(inputs, width, 1)]
        self.conv = nn.Sequential(*expand, convolution(width, width, 3, stride, width),
                                  nn.Conv2d(width, filters, 1, bias=False), normalization(filters))
        self.is_residual = stride == 1 and inputs == filters

    def forward(self, x):
        return x + self.conv(x) if self.is_residual else self.conv(x)


def convolution(inputs, filters, kernel, stride=1, groups=1):
    return nn.Sequential(
        nn.Conv2d(inputs, filters, kernel, stride, kernel // 2, groups=groups, bias=False),
        normalization(filters), nn.ReLU6())


class MobileNetV2(nn.Module):
    """torchvision's, without dropout, a quarter as wide, for small images: its first two strides of
    2 are 1."""

    def __init__(self):
        super().__init__()
        stages = [(1, 8, 1, 1), (6, 8, 2, 1), (6, 8, 3, 2), (6, 16, 4, 2), (6, 24, 3, 1),
                  (6, 40, 3, 2), (6, 80, 1, 1)]
        features = [convolution(3, 8, 3)]
        inputs = 8
        for expansion, filters, blocks, stride in stages:
            for block in range(blocks):
                features.append(
                    InvertedResidual(inputs, expansion, filters, stride if block == 0 else 1))
                inputs = filters
        self.features = nn.Sequential(*features, convolution(inputs, 1280, 1))
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(1280, CLASSES))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def hashed(shape, seed):
    """Numbers in [-1, 1) that tests/model/support/hashed.cpp computes too: they need no file."""
    x = numpy.arange(numpy.prod(shape),
                     dtype=numpy.uint32) * numpy.uint32(0x9E3779B1) + numpy.uint32(seed)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> numpy.uint32(shift))) * numpy.uint32(factor)
    x ^= x >> numpy.uint32(16)
    return torch.from_numpy((x / 2**31 - 1).reshape(shape))


def initial(name, array, seed):
    """Hashed parameters, or moving statistics, of the scale that suits an array of this name;
    likewise."""
    scales = {
        "kernel": (0, (6 / array[0].numel())**0.5),
        "gamma": (1, 0.25),
        "moving_variance": (1, 0.25)
    }
    shift, scale = scales.get(name.rsplit("/")[-1], (0, 0.25))
    return (shift + scale * hashed(array.shape, seed)).float()


# one at which gradients do not hinge on rounding (make_reference.is_well_conditioned)
SEED = 110077


def values():
    """Outputs, loss, and of each gradient the norm and the product with hashed numbers, in the
    order of names."""
    model = MobileNetV2().double()
    arrays = named_arrays(model, lambda p: p) | named_buffers(model)
    for seed, name in enumerate(sorted(arrays)):
        arrays[name].copy_(initial(name, arrays[name], SEED + seed))
    x = to_nchw(hashed((2, 32, 32, 3), SEED + 1000).float().double())
    labels = torch.tensor([3, 7])
    model.eval()
    inference = model(x)
    model.train()
    logits = model(x)
    loss = functional.cross_entropy(logits, labels)
    loss.backward()
    gradients = named_arrays(model, lambda p: p.grad)
    pairs = [(gradients[name], hashed(gradients[name].shape, 2000 + i))
             for i, name in enumerate(sorted(gradients))]
    return {
        "labels": labels,
        "inference_logits": inference,
        "logits": logits,
        "loss": loss.reshape(1),
        "gradient_norms": torch.stack([gradient.norm() for gradient, _ in pairs]),
        "gradient_products": torch.stack([(gradient * numbers).sum() for gradient, numbers in pairs
                                          ])
    }

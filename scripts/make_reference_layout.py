"""Lockstep's names and layouts of the networks of make_reference.py: kernels are [O, kH, kW, I],
images NHWC."""
from torch import nn

CLASSES = 10


def normalization(channels):
    return nn.BatchNorm2d(channels, eps=1e-5, momentum=0.1)


def to_nchw(x):
    return x.permute(0, 3, 1, 2)


def to_nhwc(x):
    return x.permute(0, 2, 3, 1)


def named_arrays(model, pick):
    """pick(tensor) of every parameter under Lockstep's name and layout."""
    names = {
        nn.Conv2d: {
            "weight": "kernel",
            "bias": "bias"
        },
        nn.Linear: {
            "weight": "kernel",
            "bias": "bias"
        },
        nn.BatchNorm2d: {
            "weight": "gamma",
            "bias": "beta"
        }
    }
    arrays = {}
    for layer, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            array = pick(parameter).detach()
            arrays[f"{layer}/{names[type(module)][name]}"] = to_nhwc(
                array) if array.dim() == 4 else array
    return arrays


def named_buffers(model):
    return {
        f"{layer}/{ours}": getattr(module, theirs)
        for layer, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)
        for ours, theirs in (("moving_mean", "running_mean"), ("moving_variance", "running_var"))
    }

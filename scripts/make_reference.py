"""Writes reference values of PyTorch, and of NumPy for what PyTorch lacks, to the directory of the
first argument, with Lockstep's names and layouts.

Everything is computed in float64 from float32 inputs and rounded once at the end, so a comparison
in float32 sees the rounding of one side only. A network is taken only if its losses do not hinge on
rounding (see is_well_conditioned). Kernels of convolutions are [O, kH, kW, I], images are NHWC, and
flattening goes over them in that order.
"""
import itertools
import pathlib
import sys

import numpy
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

import make_reference_bert
import make_reference_gpt2
import make_reference_minilm
import make_reference_mobilenet
import make_reference_parts as parts
import make_reference_recurrent
import make_reference_sequences
import make_reference_vit
from make_reference_layout import CLASSES, named_arrays, named_buffers, normalization, to_nhwc

BATCH, BATCHES, STEPS = 8, 3, 10
OPTIMIZERS = {"adam": lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-7),
              "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9)}


class Mlp(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        sizes = [features, *hidden, CLASSES]
        for i in range(len(sizes) - 1):
            self.add_module("dense" if i == 0 else f"dense_{i}", nn.Linear(sizes[i], sizes[i + 1]))

    def forward(self, x):
        *hidden, last = self.children()
        x = to_nhwc(x).flatten(1)
        for layer in hidden:
            x = functional.relu(layer(x))
        return last(x)


class Cnn(nn.Module):
    def __init__(self, height, width, channels):
        super().__init__()
        self.conv2d = nn.Conv2d(channels, 32, 3)
        self.conv2d_1 = nn.Conv2d(32, 64, 3)
        rows, columns = (((extent - 2) // 2 - 2) // 2 for extent in (height, width))
        self.dense = nn.Linear(rows * columns * 64, 128)
        self.dense_1 = nn.Linear(128, CLASSES)

    def forward(self, x):
        for convolution in (self.conv2d, self.conv2d_1):
            x = functional.max_pool2d(functional.relu(convolution(x)), 2)
        return self.dense_1(functional.relu(self.dense(to_nhwc(x).flatten(1))))


class Block(nn.Module):
    def __init__(self, inputs, filters, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, filters, 3, stride, 1, bias=False)
        self.bn1 = normalization(filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.bn2 = normalization(filters)
        self.downsample = None
        if stride != 1 or inputs != filters:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, filters, 1, stride, bias=False),
                                            normalization(filters))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        residual = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(residual + shortcut)


class ResNet18(nn.Module):
    def __init__(self, width, imagenet):
        super().__init__()
        self.imagenet = imagenet
        kernel, stride = (7, 2) if imagenet else (3, 1)
        self.conv1 = nn.Conv2d(3, width, kernel, stride, kernel // 2, bias=False)
        self.bn1 = normalization(width)
        inputs = width
        for stage in range(4):
            filters = width << stage
            blocks = [Block(inputs, filters, 1 if stage == 0 else 2), Block(filters, filters, 1)]
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
            inputs = filters
        self.fc = nn.Linear(inputs, CLASSES)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        if self.imagenet:
            x = functional.max_pool2d(x, 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))


def stored(tensors):
    return {
        name: tensor.detach().to(torch.int32 if tensor.dtype ==
                                 torch.int64 else torch.float32).contiguous().clone()
        for name, tensor in tensors.items()
    }


def train(model, start, x, labels, optimizer):
    """Losses of STEPS updates, batches in turn."""
    model.load_state_dict(start)
    model.train()
    optimizer = optimizer(model.parameters())
    losses = []
    for step in range(STEPS):
        batch = slice(step % BATCHES * BATCH, (step % BATCHES + 1) * BATCH)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def is_well_conditioned(model, start, x, labels):
    """Whether initial weights that differ by a few roundings of float32 lead to the same losses.

    A ReLU or a maximum that is about to change sides, or a gradient that is 0 but for rounding
    under Adam, makes them part: PyTorch in float32 is then off its own float64 by up to a percent
    after ten steps, and says nothing about us.
    """
    for optimizer in OPTIMIZERS.values():
        losses = train(model, start, x, labels, optimizer)
        for _ in range(5):
            near = {
                name: value *
                (1 + 2e-7 * torch.randn_like(value)) if value.is_floating_point() else value
                for name, value in start.items()
            }
            if not torch.allclose(train(model, near, x, labels, optimizer), losses, rtol=2e-5,
                                  atol=0):
                return False
    return True


def instance(make_model, height, width, channels):
    """A model with weights, inputs and labels: from the first seed that produces a well-conditioned
    one."""
    for seed in itertools.count(1):
        torch.manual_seed(seed)
        model = make_model()
        drawn = draw(model, height, width, channels)
        if is_well_conditioned(model, *drawn):
            return model, *drawn


def draw(model, height, width, channels):
    with torch.no_grad():
        for parameter in model.parameters(
        ):  # biases and normalization too: a gradient at 0 or 1 hides mistakes
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape))
    model.double()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    x = torch.randn(BATCH * BATCHES, channels, height, width).double()
    labels = torch.randint(CLASSES, (BATCH * BATCHES,))
    return start, x, labels


def trajectory(make_model, height, width, channels):
    model, start, x, labels = instance(make_model, height, width, channels)
    model.load_state_dict(start)
    model.zero_grad()
    model.train()
    logits = model(x[:BATCH])
    functional.cross_entropy(logits, labels[:BATCH]).backward()
    result = {"input": to_nhwc(x), "labels": labels, "logits": logits}
    result |= {
        f"parameter/{name}": array
        for name, array in named_arrays(model, lambda p: p).items()
    }
    result |= {
        f"gradient/{name}": array
        for name, array in named_arrays(model, lambda p: p.grad).items()
    }
    result = stored(result)

    for name, optimizer in OPTIMIZERS.items():
        losses = train(model, start, x, labels, optimizer)
        model.eval()
        result |= stored({f"{name}/losses": losses, f"{name}/inference_logits": model(x[:BATCH])})
        result |= stored({
            f"{name}/{buffer}": value
            for buffer, value in named_buffers(model).items()
        })
    return result


def optimizer_trajectories():
    """Parameters after five updates with given gradients, for every optimizer; without decay and
    with it."""
    steps, size = 5, 37
    parameters, gradients = torch.randn(size), torch.randn(steps, size)
    optimizers = {
        "sgd": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01),
        "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=
                                              True),
        "adam": lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-7, weight_decay=0.1),
        "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, eps=1e-7, weight_decay=0.1),
        "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-7, weight_decay=0.1),
        "rmsprop_momentum": lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.99, eps=1e-7, momentum
                                                          =0.9),
        "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, initial_accumulator_value=0.1, eps=1e-7,
                                                 weight_decay=0.1)
    }
    result = {"parameters": parameters, "gradients": gradients}
    for name, make in optimizers.items():
        variable = parameters.double().requires_grad_()
        optimizer = make([variable])
        for gradient in gradients:
            variable.grad = gradient.double()
            optimizer.step()
        result[name] = variable
    return stored(result | parts.schedules())


def layer_wise_trajectories():
    """LARS and LAMB by NumPy in float64, from their papers: every step of layers with decay,
    without it, that begin at zero, and whose gradient is zero."""
    steps, random = 6, numpy.random.default_rng(1)
    layers = {
        "kernel": (37, True),
        "bias": (5, False),
        "zero_kernel": (33, True),
        "still_kernel": (16, True),
        "gamma": (7, False)
    }
    rates = numpy.float32([0.5, 1, 2, 2, 1, 0.25])
    start = {
        name: random.normal(size=size).astype(numpy.float32)
        for name, (size, _) in layers.items()
    }
    start["zero_kernel"][:] = 0
    gradients = {
        name: random.normal(size=(steps, size)).astype(numpy.float32)
        for name, (size, _) in layers.items()
    }
    gradients["still_kernel"][:4] = 0
    gradients["zero_kernel"][0] = 0

    def ratio(above, below):
        return above / below if above > 0 and below > 0 else 1.0

    norm = numpy.linalg.norm

    def lars(w, layer_gradients, decays, momentum, weight_decay, trust, epsilon):
        velocity, decay = numpy.zeros_like(w), weight_decay if decays else 0.0
        for rate, g in zip(rates.astype(float), layer_gradients):
            local = 1.0
            if decays and norm(w) > 0 and norm(g) > 0:
                local = trust * norm(w) / (norm(g) + decay * norm(w) + epsilon)
            velocity = momentum * velocity + rate * local * (g + decay * w)
            w = w - velocity
            yield w

    def lamb(w, layer_gradients, decays, beta1, beta2, weight_decay, epsilon):
        m, v, decay = numpy.zeros_like(w), numpy.zeros_like(w), weight_decay if decays else 0.0
        for step, (rate, g) in enumerate(zip(0.01 * rates.astype(float), layer_gradients), 1):
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
            u = m / (1 - beta1**step) / (numpy.sqrt(v / (1 - beta2**step)) + epsilon) + decay * w
            w = w - rate * (ratio(norm(w), norm(u)) if decays else 1.0) * u
            yield w

    def exact(**constants):
        """Rounded to float32, so that the comparison tests only the arithmetic."""
        return {name: float(numpy.float32(value)) for name, value in constants.items()}

    cases = {"lars": (lars, exact(momentum=0.9, weight_decay=5e-4, trust=0.001, epsilon=1e-9)),
             "lars_strong": (lars, exact(momentum=0.5, weight_decay=0.1, trust=0.02, epsilon=1e-3)),
             "lamb": (lamb, exact(beta1=0.9, beta2=0.999, weight_decay=0.01, epsilon=1e-6)),
             "lamb_strong": (lamb, exact(beta1=0.8, beta2=0.95, weight_decay=0.5, epsilon=1e-3))}
    result = {"rates": rates} | {f"start/{name}": w for name, w in start.items()}
    result |= {f"gradient/{name}": g for name, g in gradients.items()}
    for case, (rule, constants) in cases.items():
        for name, (_, decays) in layers.items():
            path = list(
                rule(start[name].astype(float), gradients[name].astype(float), decays, **constants))
            result[f"{case}/{name}"] = numpy.stack(path).astype(numpy.float32)
    return {name: torch.from_numpy(array) for name, array in result.items()}


def pretrained():
    """A small residual network as PyTorch saves it, in three types, and its logits in inference for
    each type."""
    model = ResNet18(2, imagenet=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        for _ in range(3):
            model(torch.randn(BATCH, 3, 16, 16))
    image = torch.randn(4, 16, 16, 3)
    files, expected = {}, {"input": image}
    for name, kind in {
            "float32": torch.float32,
            "bfloat16": torch.bfloat16,
            "float16": torch.float16
    }.items():
        # The number of batches is an integer, and stays one.
        state = {
            key: (tensor.to(kind) if tensor.is_floating_point() else tensor).clone()
            for key, tensor in model.state_dict().items()
        }
        copy = ResNet18(2, imagenet=False).double()
        copy.load_state_dict(state)
        copy.eval()
        files[f"pretrained_{name}"] = state
        expected[f"logits/{name}"] = copy(image.double().permute(0, 3, 1, 2))
    return files | {"pretrained_expected": stored(expected)}


def main():
    directory = pathlib.Path(sys.argv[1])
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True)
    shapes = {
        "mlp": (6, 5, 2),
        "cnn": (14, 14, 2),
        "resnet18_cifar": (16, 16, 3),
        "resnet18_imagenet": (33, 33, 3)
    }
    models = {"mlp": lambda: Mlp(6 * 5 * 2, [24, 16]), "cnn": lambda: Cnn(14, 14, 2),
              "resnet18_cifar": lambda: ResNet18(4, imagenet=False),
              "resnet18_imagenet": lambda: ResNet18(4, imagenet=True)}
    metadata = {"made_by": f"scripts/make_reference.py with torch {torch.__version__}"}
    references = {
        "optimizers": optimizer_trajectories(),
        "layer_wise_optimizers": layer_wise_trajectories()
    } | {
        name: trajectory(models[name], *shapes[name])
        for name in models
    }
    references |= pretrained()
    references["minilm"], expected = make_reference_minilm.values()
    references["minilm_expected"] = stored(expected)
    references["bert"], expected = make_reference_bert.values()
    references["bert_expected"] = stored(expected)
    transformers_of_images, expected = make_reference_vit.values()
    references |= transformers_of_images | {"vit_expected": stored(expected)}
    references["gpt2"], expected = make_reference_gpt2.values()
    references["gpt2_expected"] = stored(expected)
    layers = parts.layers() | parts.losses() | {
        f"mobilenet_v2/{name}": array
        for name, array in make_reference_mobilenet.values().items()
    }
    references["layers"] = stored(layers)
    references["recurrent_layers"] = stored(parts.recurrent_layers()
                                            | make_reference_recurrent.values())
    references["sequences"] = stored(make_reference_sequences.values())
    for name, tensors in references.items():
        file = directory / f"{name}.safetensors"
        save_file(tensors, file, metadata)
        file.chmod(0o644)


if __name__ == "__main__":
    main()

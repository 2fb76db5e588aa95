"""Reference values of PyTorch for single layers, losses and schedules; make_reference.py writes
them.

Shapes and layouts are Lockstep's: [T, C] and [H, W, C], kernels with the input channels last.
"""
import torch
from torch import nn
from torch.nn import functional

NAMES = {nn.BatchNorm2d: {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean",
                          "running_var": "moving_variance"},
         nn.LayerNorm: {"weight": "gamma", "bias": "beta"}, nn.Embedding: {"weight": "embeddings"},
         nn.GroupNorm: {"weight": "gamma", "bias": "beta"}}


class Scale(nn.Module):
    """The scale and bias of channels."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return x * self.weight[:, None, None] + self.bias[:, None, None]


NAMES[Scale] = {"weight": "gamma", "bias": "beta"}


def channels_last(array):
    return array.movedim(1, -1)


def on_channels_first(module):
    """The function of `module` on arrays whose channels are the last axis."""
    return lambda x: channels_last(module(x.movedim(-1, 1)))


def enlarged(**options):
    return on_channels_first(lambda x: functional.interpolate(x, scale_factor=(2, 3), **options))


def layer_cases():
    """The shape of a sample, and a function of a batch, by name; the name of a module is its
    layer's."""
    image, vector = (5, 6, 4), (12,)
    averages = {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False}
    modules = {"conv1d": ((9, 4), nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2)),
               "depthwise_conv2d": (image, nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=4)),
               "conv2d_transpose": ((3, 4, 3), nn.ConvTranspose2d(3, 5, 3, stride=2, padding=1)),
               "batch_normalization": (image, nn.BatchNorm2d(4, eps=1e-3).eval()),
               "layer_normalization": ((3, 8), nn.LayerNorm(8, eps=1e-3)),
               "embedding": ((3,), nn.Embedding(7, 4))}
    functions = {
        "average_pool2d": (image,
                           on_channels_first(lambda x: functional.avg_pool2d(x, **averages))),
        "max_pool2d": (image, on_channels_first(lambda x: functional.max_pool2d(x, 3, 2, 1))),
        "global_average_pooling2d": (image, lambda x: x.mean((1, 2))),
        "global_max_pooling2d": (image, lambda x: x.amax((1, 2))),
        "up_sampling2d": ((3, 2, 4), enlarged(mode="nearest")),
        "bilinear_up_sampling2d": ((3, 2, 4), enlarged(mode="bilinear", align_corners=False)),
        "zero_padding2d": (image, lambda x: functional.pad(x, (0, 0, 0, 3, 1, 2))),
        "permute": (image, lambda x: x.permute(0, 3, 1, 2)),
        "reshape": (image, lambda x: x.reshape(-1, 10, 12)),
        "concatenate": (image, lambda x: torch.cat([x, x.tanh()], 1)),
        "multiply": (vector, lambda x: x * x.tanh()),
        "add": (vector, lambda x: x + x.tanh()),
        "relu": (vector, functional.relu),
        "relu6": (vector, functional.relu6),
        "leaky_relu": (vector, lambda x: functional.leaky_relu(x, 0.3)),
        "gelu": (vector, functional.gelu),
        "approximate_gelu": (vector, lambda x: functional.gelu(x, approximate="tanh")),
        "silu": (vector, functional.silu),
        "sigmoid": (vector, torch.sigmoid),
        "softmax": (vector, lambda x: x.softmax(-1)),
        "tanh": (vector, torch.tanh),
        "fake_quantize": (
            vector,
            lambda x: torch.fake_quantize_per_tensor_affine(x.float(), 2**-6, 10, -128, 127))
    }
    return modules | functions


def further_cases():
    """layer_cases() that were added later: their random numbers follow those of the others."""
    image, vector = (5, 6, 4), (12,)
    return {
        "conv2d": ((7, 6, 4), nn.Conv2d(4, 6, 3, dilation=2, padding=2)),
        "group_normalization": (image, nn.GroupNorm(2, 4)),
        "scale": (image, Scale(4)),
        "matmul": ((3, 4, 5), lambda x: x @ x.tanh().transpose(-1, -2)),
        "multiply_by_channels": (image, lambda x: x * x.tanh().mean((1, 2), keepdim=True)),
        "multiply_by_positions": (image, lambda x: x * x.tanh()[..., :1]),
        "elu": (vector, lambda x: functional.elu(x, 0.75)),
        "selu": (vector, functional.selu),
        "mish": (vector, functional.mish),
        "softplus": (vector, functional.softplus),
        "softsign": (vector, functional.softsign),
        "hard_swish": (vector, functional.hardswish),
        "hard_sigmoid": (vector, functional.hardsigmoid),
        "hard_tanh": (vector, lambda x: functional.hardtanh(x, -0.5, 2)),
        "swish": (vector, lambda x: x * (1.702 * x).sigmoid()),
        "rescaling": (vector, lambda x: 2 * x - 3)
    }


def randomize(module):
    with torch.no_grad():
        for name, array in module.state_dict().items():
            if name == "running_var":
                array.copy_(1 + 0.5 * torch.rand(array.shape))
            elif array.is_floating_point() and array.dim() == 1:
                array.copy_(0.5 + 0.3 * torch.randn(array.shape))
    return module.double()


def layer_values(layer, shape, function):
    """Output, and gradients of the mean squared error to targets, of a layer of x + offset."""
    samples = 2
    is_module = isinstance(function, nn.Module)
    module = randomize(function) if is_module else None
    if isinstance(module, nn.Embedding):
        x = torch.randint(module.num_embeddings, (samples, *shape))
        leaves, output = {}, module(x)
    else:
        x = (2 * torch.randn(samples, *shape)).double()
        offset = torch.randn(shape).double().requires_grad_()
        leaves = {"shift/offset": offset}
        swaps = is_module and not isinstance(module, nn.LayerNorm)
        output = (on_channels_first(module) if swaps else function)(x + offset)
    target = torch.randn(output.shape).double()

    def laid_out(array):
        return channels_last(array) if array.dim() > 2 else array

    result = {"input": x, "target": target, "output": output}
    is_frozen = isinstance(module, nn.BatchNorm2d)  # uses moving statistics
    names = NAMES.get(type(module), {"weight": "kernel", "bias": "bias"})
    if is_module:
        arrays = {f"{layer}/{names[name]}": array for name, array in module.named_parameters()}
        result |= {f"parameter/{name}": laid_out(array) for name, array in arrays.items()}
        result |= {f"buffer/{layer}/{names[name]}": array for name, array in module.named_buffers()
                   if name in names}
        leaves |= {} if is_frozen else arrays
    if "shift/offset" in leaves:
        result["parameter/shift/offset"] = leaves["shift/offset"]
    gradients = torch.autograd.grad(functional.mse_loss(output, target), list(leaves.values()))
    return result | {f"gradient/{name}": laid_out(g) if name != "shift/offset" else g
                     for name, g in zip(leaves, gradients)}


def layers():
    torch.manual_seed(3)
    return {f"{name}/{key}": array for cases in (layer_cases, further_cases)
            for name, case in cases().items() for key, array in layer_values(name, *case).items()}


def recurrent_layers():
    """As layers(), for bidirectional layers with sequences as outputs."""
    torch.manual_seed(5)
    samples, steps, features, units = 2, 5, 4, 3
    result = {}
    for layer, kind in {"lstm": nn.LSTM, "gru": nn.GRU, "simple_rnn": nn.RNN}.items():
        module = kind(features, units, batch_first=True, bidirectional=True).double()
        x = torch.randn(samples, steps, features).double()
        offset = torch.randn(steps, features).double().requires_grad_()
        output = module(x + offset)[0]
        target = torch.randn(output.shape).double()
        result |= {f"{layer}/input": x, f"{layer}/target": target, f"{layer}/output": output,
                   f"{layer}/parameter/shift/offset": offset}
        leaves = {"shift/offset": offset}
        for prefix, suffix in {"": "l0", "backward_": "l0_reverse"}.items():
            arrays = {"kernel": f"weight_ih_{suffix}", "recurrent_kernel": f"weight_hh_{suffix}",
                      "bias": f"bias_ih_{suffix}", "recurrent_bias": f"bias_hh_{suffix}"}
            arrays = {f"{layer}/{prefix}{name}": getattr(module, theirs)
                      for name, theirs in arrays.items()}
            bias, other = f"{layer}/{prefix}bias", f"{layer}/{prefix}recurrent_bias"
            values = dict(arrays)
            if layer != "gru":  # has one bias, the sum of PyTorch's two
                values[bias] = arrays[bias] + arrays[other]
                del arrays[other], values[other]
            leaves |= arrays
            result |= {f"{layer}/parameter/{name}": array for name, array in values.items()}
        gradients = torch.autograd.grad(functional.mse_loss(output, target), list(leaves.values()))
        result |= {f"{layer}/gradient/{name}": g for name, g in zip(leaves, gradients)}
    return result


def losses():
    """The sum of weighted losses of samples and its gradient, by the names of `--loss`."""
    torch.manual_seed(4)
    samples, width = 5, 4
    output = (2 * torch.randn(samples, width)).double()
    value = torch.rand(samples, width).double()
    distribution = value / value.sum(1, keepdim=True)
    label = torch.randint(width, (samples,))
    weight = torch.tensor([0.5, 2, 0, 1, 0.25]).double()
    # What is stored is rounded; the losses must be those of what is stored.
    distribution = distribution.float().double()

    def binary(x, smoothing):
        return functional.binary_cross_entropy_with_logits(
            x, value * (1 - smoothing) + smoothing / 2, reduction="none").mean(1)

    def entropy(x, target, smoothing):
        return functional.cross_entropy(x, target, reduction="none", label_smoothing=smoothing)

    def mean_of(loss, **options):
        return lambda x: loss(x, value, reduction="none", **options).mean(1)

    cases = {"mse": mean_of(functional.mse_loss), "mae": mean_of(functional.l1_loss),
             "huber": mean_of(functional.huber_loss),
             "huber:delta=2": mean_of(functional.huber_loss, delta=2),
             "bce": lambda x: binary(x, 0), "bce:label_smoothing=0.2": lambda x: binary(x, 0.2),
             "cross-entropy": lambda x: entropy(x, label, 0),
             "cross-entropy:label_smoothing=0.2": lambda x: entropy(x, label, 0.2),
             "cce": lambda x: entropy(x, distribution, 0),
             "cce:label_smoothing=0.2": lambda x: entropy(x, distribution, 0.2)}
    result = {"output": output, "value": value, "distribution": distribution, "label": label,
              "weight": weight}
    for name, loss in cases.items():
        x = output.clone().requires_grad_()
        total = (weight * loss(x)).sum()
        result |= {
            f"{name}/sum": total.reshape(1),
            f"{name}/gradient": torch.autograd.grad(total, x)[0]
        }
    return {f"loss/{name}": array for name, array in result.items()}


def schedules():
    """Rates of the updates 0 to 20 of a training of 20 updates; `step` and `exponential` decay for
    every 6."""
    updates, every, factor = 20, 6, 0.5
    rates = torch.optim.lr_scheduler
    cases = {"cosine": lambda o: rates.CosineAnnealingLR(o, updates, eta_min=0.1),
             "linear": lambda o: rates.LinearLR(o, 1, 0.1, updates),
             "step": lambda o: rates.StepLR(o, every, factor),
             "polynomial": lambda o: rates.PolynomialLR(o, updates, power=2),
             "exponential": lambda o: rates.ExponentialLR(o, factor ** (1 / every)),
             "one-cycle": lambda o: rates.OneCycleLR(o, 1, updates, cycle_momentum=False)}
    result = {}
    for name, make in cases.items():
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=1)
        schedule, path = make(optimizer), []
        for _ in range(updates + (name != "one-cycle")):  # which has no rate beyond its end
            path.append(schedule.get_last_lr()[0])
            optimizer.step()
            if len(path) < updates or name != "one-cycle":
                schedule.step()
        result[f"schedule/{name}"] = torch.tensor(path, dtype=torch.float64)
    return result

"""The networks of torchvision and PyTorch that scripts/networks exports."""

import contextlib
import io

import torch
from torch import nn
from torch.nn import functional

TORCHVISION = [
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "inception_v3",
    "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "regnet_x_400mf",
    "regnet_y_400mf", "resnet18", "resnet34", "resnet50", "resnext50_32x4d", "shufflenet_v2_x0_5",
    "squeezenet1_0", "squeezenet1_1", "swin_t", "vgg11_bn", "vit_b_16", "wide_resnet50_2"
]
SIZES = {"alexnet": 224, "vgg11_bn": 224, "inception_v3": 96, "vit_b_16": 32, "squeezenet1_0": 66,
         "googlenet": 66, "squeezenet1_1": 66}


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Attention(nn.Module):
    """Attention written out, or by PyTorch's function."""

    def __init__(self, width, heads, written=False, causal=False):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.written, self.causal = heads, written, causal

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.written:
            y = (q @ k.transpose(-2, -1) * (d // self.heads)**-0.5).softmax(-1) @ v
        else:
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(n, t, d))


class Excitation(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, channels):
        super().__init__()
        self.conv, self.down, self.up = (nn.Conv2d(3, channels, 3), nn.Conv2d(channels, 4, 1),
                                         nn.Conv2d(4, channels, 1))

    def forward(self, x):
        x = self.conv(x)
        return x * self.up(self.down(x.mean((2, 3), keepdim=True)).relu()).sigmoid()


class Unet(nn.Module):
    """Two levels, enlarged by a transposed convolution or by interpolation."""

    def __init__(self, transposed):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.bottom = nn.Conv2d(8, 16, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 2, 2) if transposed else nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(16, 8, 3, padding=1))
        self.last = nn.Conv2d(16, 4, 1)

    def forward(self, x):
        level = self.down(x).relu()
        x = self.bottom(functional.max_pool2d(level, 2)).relu()
        return self.last(torch.cat([self.up(x), level], 1))


class First(nn.Module):
    """The first output of a module, at its last position or their mean."""

    def __init__(self, module, mean=False):
        super().__init__()
        self.module, self.mean = module, mean

    def forward(self, x):
        y = self.module(x)[0]
        return y.mean(1) if self.mean else y[:, -1]


class Gamma(nn.Module):
    """LayerScale."""

    def __init__(self, width):
        super().__init__()
        self.gamma = nn.Parameter(torch.randn(width))

    def forward(self, x):
        return x * self.gamma


def classifier(*layers, width):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 4))


def image(activation):
    return lambda: classifier(nn.Conv2d(3, 6, 3), activation(), width=6 * 14 * 14)


def pooled(pool, width):
    return lambda: classifier(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), pool(), width=width)


def encoder(prenorm=False, batch_first=False):
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, norm_first=prenorm,
                                       batch_first=batch_first)
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return module if batch_first else nn.Sequential(Apply(lambda x: x.transpose(0, 1)), module,
                                                    Apply(lambda x: x.transpose(0, 1)))


IMAGE, SEQUENCE, ROW = (3, 16, 16), (9, 16), (12,)


def torch_networks():
    """A function that makes the network and the shape of a sample, by name."""
    activations = {
        "elu": nn.ELU, "gelu_tanh": lambda: nn.GELU("tanh"), "hardsigmoid": nn.Hardsigmoid,
        "hardswish": nn.Hardswish, "hardtanh": nn.Hardtanh, "mish": nn.Mish, "prelu": nn.PReLU,
        "prelu_of_channels": lambda: nn.PReLU(6), "relu6": nn.ReLU6, "selu": nn.SELU,
        "quickgelu": lambda: Apply(lambda x: x * torch.sigmoid(1.702 * x)), "silu": nn.SiLU,
        "softmax": lambda: nn.Softmax(1), "softplus": nn.Softplus, "softsign": nn.Softsign}
    networks = {f"a_{name}": (image(activation), IMAGE) for name, activation in activations.items()}
    networks |= {
        "attention_written": (lambda: Attention(16, 4, written=True), SEQUENCE),
        "sdpa": (lambda: Attention(16, 4), SEQUENCE),
        "sdpa_causal": (lambda: Attention(16, 4, causal=True), SEQUENCE),
        "encoder": (encoder, SEQUENCE),
        "encoder_prenorm": (lambda: encoder(True), SEQUENCE),
        "encoder_batch_first": (lambda: encoder(batch_first=True), SEQUENCE),
        "avg_ceil": (pooled(lambda: nn.AvgPool2d(3, 2, ceil_mode=True), 6 * 8 * 8), IMAGE),
        "avg_pad_excl": (pooled(
            lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), 6 * 8 * 8), IMAGE),
        "avg_pad_incl": (pooled(lambda: nn.AvgPool2d(3, 2, 1), 6 * 8 * 8), IMAGE),
        "maxpool_ceil": (pooled(lambda: nn.MaxPool2d(3, 2, ceil_mode=True), 6 * 8 * 8), IMAGE),
        "conv1d_dilated": (lambda: classifier(nn.Conv1d(9, 8, 3, dilation=2, padding=2), nn.ReLU(),
                                              nn.MaxPool1d(2), width=8 * 8), SEQUENCE),
        "conv2d_dilated": (lambda: classifier(nn.Conv2d(3, 8, 3, dilation=2, padding=2), nn.ReLU(),
                                              width=8 * 256), IMAGE),
        "flat_bn1d": (lambda: nn.Sequential(nn.Linear(12, 8), nn.BatchNorm1d(8), nn.ReLU(),
                                            nn.Linear(8, 4)), ROW),
        "groupnorm": (pooled(lambda: nn.GroupNorm(3, 6), 6 * 256), IMAGE),
        "instancenorm": (pooled(lambda: nn.InstanceNorm2d(6, affine=True), 6 * 256), IMAGE),
        "gru_1": (lambda: nn.Sequential(First(nn.GRU(16, 8, batch_first=True)), nn.Linear(8, 4)),
                  SEQUENCE),
        "gru_bi2_mean": (lambda: nn.Sequential(
            First(nn.GRU(16, 8, 2, batch_first=True, bidirectional=True), True),
            nn.Linear(16, 4)), SEQUENCE),
        "lstm_3": (lambda: nn.Sequential(First(nn.LSTM(16, 8, 3, batch_first=True)),
                                         nn.Linear(8, 4)), SEQUENCE),
        "lstm_bi2": (lambda: nn.Sequential(
            First(nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True)), nn.Linear(16, 4)),
            SEQUENCE),
        "rnn_bi2": (lambda: nn.Sequential(
            First(nn.RNN(16, 8, 2, batch_first=True, bidirectional=True)), nn.Linear(16, 4)),
            SEQUENCE),
        "layer_scale": (lambda: nn.Sequential(nn.Linear(16, 16), Gamma(16), nn.Linear(16, 4)),
                        SEQUENCE),
        "odd": (lambda: classifier(nn.Conv2d(3, 6, (3, 2), (2, 1), (1, 0)), nn.ReLU(),
                                   nn.MaxPool2d((2, 3), (1, 2)), width=6 * 7 * 7), IMAGE),
        "se": (lambda: classifier(Excitation(8), width=8 * 196), IMAGE),
        "twice": (lambda: nn.Sequential(nn.Linear(12, 8), Apply(lambda x: functional.gelu(x) * 2),
                                        nn.Linear(8, 4), Apply(lambda x: x / 3 - 1)), ROW),
        "unet_bilinear": (lambda: Unet(False), IMAGE),
        "unet_transposed": (lambda: Unet(True), IMAGE),
    }
    return networks


def torchvision_networks():
    import torchvision

    def make(name):
        options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        if name == "vit_b_16":
            options = {"image_size": 32}
        return torchvision.models.get_model(name, weights=None, num_classes=10, **options)

    return {name: ((lambda name=name: make(name)),
                   (3, SIZES.get(name, 64), SIZES.get(name, 64))) for name in TORCHVISION}


def randomize(module):
    """Statistics and scales as after a training, so that no term vanishes."""
    for part in module.modules():
        if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    for array in module.parameters():
        if not array.any() or (array.numel() > 1 and array.std() == 0):
            array.normal_(0.5, 0.2)
    return module.eval()


# One operator for a whole layer of a transformer, which has no counterpart in ONNX.
torch.backends.mha.set_fastpath_enabled(False)


def export(networks, name, exporter, path, opset=17):
    """Writes the network `name`, with weights that depend only on the name."""
    make, shape = networks[name]
    torch.manual_seed(len(name))
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        module = randomize(make())
        example = (torch.randn(2, *shape), )
        if exporter == "dynamo":
            torch.onnx.export(module, example, path, dynamo=True, external_data=False,
                              verbose=False, dynamic_shapes=({0: torch.export.Dim("n")}, ))
        else:
            free = {"x": {0: "n"}} if exporter == "free" else None
            torch.onnx.export(module, example if free else (example[0][:1], ), path, dynamo=False,
                              input_names=["x"], dynamic_axes=free, opset_version=opset)


def for_training(networks, name):
    """The network as it is trained, without random parts and auxiliary outputs."""
    torch.manual_seed(len(name))
    with torch.no_grad():
        module = randomize(networks[name][0]()).train()
    for part in module.modules():
        for option in ("p", "dropout"):
            if isinstance(getattr(part, option, None), float):
                setattr(part, option, 0.0)
        for option in ("aux_logits", "aux1", "aux2", "AuxLogits"):
            if hasattr(part, option):
                setattr(part, option, None)
    return module


def export_training(networks, name, path):
    """Writes the network with normalizations by the batch, as it is before the first step."""
    module = for_training(networks, name)
    example = (torch.randn(2, *networks[name][1]), )
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(module, example, path, dynamo=False, input_names=["x"],
                          dynamic_axes={"x": {0: "n"}}, opset_version=17,
                          training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)


def losses(networks, name, inputs, targets, rate, steps, shift=None):
    """The losses before each step of gradient descent on the mean squared error. `shift`: seed of
    random numbers that first move the weights by about one step of float32."""
    module = for_training(networks, name)
    if shift is not None:
        torch.manual_seed(shift)
        with torch.no_grad():
            for array in module.parameters():
                array *= 1 + 2 * torch.finfo().eps * torch.randn_like(array)
    optimizer = torch.optim.SGD(module.parameters(), rate)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.mse_loss(module(torch.from_numpy(inputs)), torch.from_numpy(targets))
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found

"""Small files of ONNX as PyTorch exports them and as tf2onnx would, with PyTorch's outputs, and
losses of a step of SGD.

    python scripts/make_reference_onnx.py [DIRECTORY]

DIRECTORY (tests/reference/onnx) gets NAME.onnx, NAME_after.onnx with the weights after the step,
and expected.safetensors. Needs torch, onnx, onnxscript, numpy and safetensors. Inputs and outputs
that are images are channels last in expected.safetensors.
"""
import copy
import pathlib
import sys
import warnings

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file
from torch import nn
from torch.nn import functional

BATCH, CLASSES, RATE, VOCABULARY = 4, 5, 0.1, 20


class Residual(nn.Module):
    """What networks of images have: normalization, GELU, a residual, pooling, a flattened image."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.conv, self.fc = nn.Conv2d(6, 6, 3, padding=1), nn.Linear(6 * 4 * 4, CLASSES)

    def forward(self, x):
        x = functional.relu(self.norm(self.stem(x)))
        x = functional.gelu(self.conv(x)) + x
        return self.fc(torch.flatten(functional.max_pool2d(x, 2), 1))


class Mobile(nn.Module):
    """Depthwise convolutions, uneven zeros, activations with limits, a concatenation."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(
            nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(2, 8, 3, 2), nn.ReLU6()),
            nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), nn.BatchNorm2d(8),
                          nn.SiLU()))
        self.left, self.right = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 6, 1, groups=2)
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(10, CLASSES))

    def forward(self, x):
        x = self.blocks(x)
        x = torch.cat([functional.leaky_relu(self.left(x), 0.2), torch.sigmoid(self.right(x))], 1)
        x = functional.avg_pool2d(functional.pad(x, (1, 2, 0, 1)), 2)
        return self.classifier(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Rows(nn.Module):
    """Dense layers on an image, which PyTorch flattens channels first, through functions of
    elements."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Tanh(), nn.Linear(2 * 4 * 3, 7),
                                    nn.GELU(approximate="tanh"), nn.Linear(7, CLASSES))

    def forward(self, x):
        return self.layers(x)


class Sequence(nn.Module):
    """Recurrent layers; an LSTM has two biases, which have the same gradients."""

    def __init__(self):
        super().__init__()
        self.embed, self.lstm = nn.Embedding(VOCABULARY, 6), nn.LSTM(6, 5, batch_first=True,
                                                                     bidirectional=True)
        self.norm, self.gru, self.fc = nn.LayerNorm(10), nn.GRU(10, 4, batch_first=True), nn.Linear(
            4, CLASSES)

    def forward(self, x):
        rows, _ = self.lstm(self.embed(x))
        rows, _ = self.gru(self.norm(rows))
        return self.fc(rows[:, -1])


class Elman(nn.Module):
    """Layers of RNN, whose activation the exporter writes out although it is the default."""

    def __init__(self):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(VOCABULARY,
                                            6), nn.RNN(6, 4, num_layers=2, batch_first=True,
                                                       bidirectional=True)
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.fc(self.rnn(self.embed(x))[0][:, 2])


class LastState(nn.Module):
    """The state of a recurrent layer after the last position."""

    def __init__(self):
        super().__init__()
        self.embed, self.gru, self.fc = nn.Embedding(VOCABULARY,
                                                     6), nn.GRU(6, 4, batch_first=True), nn.Linear(
                                                         4, CLASSES)

    def forward(self, x):
        return self.fc(self.gru(self.embed(x))[1][0])


class Positions(nn.Module):
    """Positions, normalization of rows, dense layers at each position, a convolution along them,
    and their mean."""

    def __init__(self):
        super().__init__()
        self.embed, self.places = nn.Embedding(VOCABULARY, 6), nn.Parameter(torch.randn(7, 6) * 0.1)
        self.norm, self.wide, self.narrow = nn.LayerNorm(6), nn.Linear(6, 12), nn.Linear(12, 6)
        self.conv, self.fc = nn.Conv1d(6, 8, 3, padding=1), nn.Linear(8, CLASSES)

    def forward(self, x):
        x = self.embed(x) + self.places
        x = x + self.narrow(functional.gelu(self.wide(self.norm(x))))
        return self.fc(self.conv(x.transpose(1, 2)).relu().mean(2))


class Excited(nn.Module):
    """Dilation, normalizations of groups, squeeze and excitation, a scale of channels, windows that
    end outside, and images that become larger again."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 6, 3, dilation=2, padding=2), nn.GroupNorm(3, 6)
        self.down, self.up, self.slopes = nn.Conv2d(6, 3, 1), nn.Conv2d(3, 6, 1), nn.PReLU(6)
        self.gamma = nn.Parameter(torch.randn(6, 1, 1))
        self.larger = nn.ConvTranspose2d(6, 4, 3, 2, padding=1, output_padding=1)
        self.instances, self.fc = nn.InstanceNorm2d(4, affine=True), nn.Linear(8, CLASSES)

    def forward(self, x):
        x = functional.hardswish(self.norm(self.conv(x)))
        weights = self.up(functional.mish(self.down(x.mean((2, 3), keepdim=True))))
        x = self.slopes(x * functional.hardsigmoid(weights) - 0.25) * self.gamma
        x = functional.avg_pool2d(functional.max_pool2d(x, 3, 2, ceil_mode=True), 2, 1, 1)
        x = functional.elu(self.instances(self.larger(x)) * 2, 0.5)
        y = functional.interpolate(functional.softplus(x), scale_factor=2, mode="bilinear")
        return self.fc(torch.cat([x.mean((2, 3)), functional.softsign(y).amax((2, 3))], 1))


class Encoder(nn.Module):
    """A layer of a transformer with the positions first, behind the token of a class and a causal
    mask, and pooling along the positions."""

    def __init__(self):
        super().__init__()
        self.embed, self.token = nn.Embedding(VOCABULARY, 8), nn.Parameter(torch.randn(1, 1, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, functional.gelu, norm_first=True)
        self.conv, self.fc = nn.Conv1d(8, 6, 2, dilation=3), nn.Linear(12, CLASSES)
        self.register_buffer("mask", torch.full((8, 8), float("-inf")).triu(1))
        for norm in (self.layer.norm1, self.layer.norm2):  # equal arrays would become one
            norm.weight.data.uniform_(0.5, 1.5)
            norm.bias.data.uniform_(-0.5, 0.5)

    def forward(self, x):
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), self.embed(x)], 1).transpose(0, 1)
        x = self.conv(self.layer(x, src_mask=self.mask).permute(1, 2, 0))
        return self.fc(functional.max_pool1d(x, 2).flatten(1))


def export(network, example, path, opset, training, dynamo):
    values = {name: value.numpy().copy() for name, value in network.state_dict().items()}
    network = copy.deepcopy(network).train(training)
    names = {"input_names": ["x"], "output_names": ["y"], "opset_version": opset}
    if dynamo:
        torch.onnx.export(network, (example, ), path, dynamo=True, dynamic_shapes=({
            0: torch.export.Dim("n")
        }, ), external_data=False, **names)
    else:
        mode = torch.onnx.TrainingMode.PRESERVE
        torch.onnx.export(network, example, path, dynamo=False, training=mode,
                          do_constant_folding=not training, dynamic_axes={"x": {
                              0: "n"
                          }}, **names)
    model = onnx.load(path)
    model.doc_string = ""
    for node in model.graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
    for tensor in model.graph.initializer:
        # the exporter has run the network, which changed moving statistics
        if training and tensor.name in values:
            tensor.CopyFrom(numpy_helper.from_array(values[tensor.name], tensor.name))
    del model.graph.value_info[:]
    del model.metadata_props[:]
    onnx.save(model, path)
    assert path.stat().st_size < 100_000, path


def last(x):
    return x.movedim(1, -1) if x.ndim == 4 else x


def case(folder, expected, name, network, x, opset, training=False, dynamo=False, steps=True):
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):  # other values than those of a new layer
            for values in (module.weight, module.running_var):
                values.data.uniform_(0.5, 1.5)
            for values in (module.bias, module.running_mean):
                values.data.uniform_(-0.5, 0.5)
    export(network, x, folder / f"{name}.onnx", opset, training, dynamo)
    labels = torch.arange(len(x)) % CLASSES
    network.eval()
    expected[f"{name}/input"] = last(x).to(torch.int32 if x.dtype == torch.int64 else torch.float32)
    expected[f"{name}/output"] = network(x)
    if not steps:
        return
    network.train()
    optimizer = torch.optim.SGD(network.parameters(), RATE)
    loss = functional.cross_entropy(network(x), labels)
    loss.backward()
    optimizer.step()
    expected[f"{name}/loss"] = loss.reshape(1)
    export(network, x, folder / f"{name}_after.onnx", opset, training, dynamo)


def of_tensorflow(folder, expected):
    """As tf2onnx writes a network of Keras: channels last at the edges, products and biases as
    nodes of their own, a Reshape."""
    kernel, bias = torch.randn(6, 3, 3, 3) * 0.3, torch.randn(6) * 0.1
    dense, shift = torch.randn(6 * 3 * 3, CLASSES) * 0.2, torch.randn(CLASSES)
    nodes = [
        helper.make_node("Transpose", ["image"], ["first"], "model/conv2d/Conv2D__6",
                         perm=[0, 3, 1, 2]),
        helper.make_node("Conv", [
            "first", "model/conv2d/Conv2D/ReadVariableOp:0", "model/conv2d/BiasAdd/ReadVariableOp:0"
        ], ["filtered"], "model/conv2d/BiasAdd", auto_pad="SAME_UPPER", strides=[2, 2],
                         kernel_shape=[3, 3], dilations=[1, 1], group=1),
        helper.make_node("Relu", ["filtered"], ["positive"], "model/conv2d/Relu"),
        helper.make_node("Transpose", ["positive"], ["last"], "model/conv2d/BiasAdd__8",
                         perm=[0, 2, 3, 1]),
        helper.make_node("Reshape", ["last", "shape"], ["row"], "model/flatten/Reshape"),
        helper.make_node("MatMul", ["row", "model/dense/MatMul/ReadVariableOp:0"], ["product"],
                         "model/dense/MatMul"),
        helper.make_node("Add", ["product", "model/dense/BiasAdd/ReadVariableOp:0"], ["y"],
                         "model/dense/BiasAdd")
    ]
    weights = {
        "model/conv2d/Conv2D/ReadVariableOp:0": kernel,
        "model/conv2d/BiasAdd/ReadVariableOp:0": bias,
        "model/dense/MatMul/ReadVariableOp:0": dense,
        "model/dense/BiasAdd/ReadVariableOp:0": shift,
        "shape": torch.tensor([-1, 54])
    }
    graph = helper.make_graph(nodes, "tf2onnx", [
        helper.make_tensor_value_info("image", TensorProto.FLOAT, ["unk__9", 6, 6, 3])
    ], [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["unk__10", CLASSES])
        ], [numpy_helper.from_array(value.numpy(), name) for name, value in weights.items()])
    model = helper.make_model(graph, producer_name="tf2onnx",
                              opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "tensorflow.onnx")
    x = torch.randn(BATCH, 3, 6, 6)
    y = functional.relu(functional.conv2d(functional.pad(x, (0, 1, 0, 1)), kernel, bias, 2))
    expected["tensorflow/input"] = last(x)
    expected["tensorflow/output"] = y.movedim(1, -1).flatten(1) @ dense + shift


def main():
    warnings.filterwarnings("ignore")
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/reference/onnx")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    expected = {}
    image, tokens = torch.randn(BATCH, 3, 8, 8), torch.randint(0, VOCABULARY, (BATCH, 7))
    case(folder, expected, "residual", Residual(), image, 11, training=True)
    case(folder, expected, "residual_folded", Residual(), image, 20, dynamo=True, steps=False)
    case(folder, expected, "mobile", Mobile(), torch.randn(BATCH, 2, 9, 9), 13, training=True)
    case(folder, expected, "rows", Rows(), torch.randn(BATCH, 2, 4, 3), 17)
    case(folder, expected, "rows_dynamo", Rows(), torch.randn(BATCH, 2, 4, 3), 21, dynamo=True)
    case(folder, expected, "sequence", Sequence(), tokens, 11)
    case(folder, expected, "sequence_training", Sequence(), tokens, 14, training=True)
    case(folder, expected, "sequence_dynamo", Sequence(), tokens, 18, dynamo=True)
    case(folder, expected, "last_state", LastState(), tokens, 17)
    case(folder, expected, "positions", Positions(), tokens, 12)
    case(folder, expected, "positions_dynamo", Positions(), tokens, 20, dynamo=True)
    of_tensorflow(folder, expected)
    case(folder, expected, "elman", Elman(), tokens, 17)
    torch.backends.mha.set_fastpath_enabled(False)
    case(folder, expected, "excited", Excited(), torch.randn(BATCH, 2, 9, 8), 17)
    case(folder, expected, "excited_dynamo", Excited(), torch.randn(BATCH, 2, 9, 8), 18,
         dynamo=True)
    case(folder, expected, "encoder", Encoder(), tokens, 17)
    case(folder, expected, "encoder_dynamo", Encoder(), tokens, 18, dynamo=True)
    save_file(
        {
            name: np.ascontiguousarray(value.detach().numpy())
            for name, value in expected.items()
        }, folder / "expected.safetensors")


if __name__ == "__main__":
    main()

"""fast_cifar in PyTorch for gpu_bench_torch.py: the network, recipe and files of
scripts/gpu_check's time to accuracy."""

import concurrent.futures
import glob
import io
import os
import struct
import time

import torch
from torch import nn
from torch.nn import functional

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def records(file):
    """The records of a TFRecord file, without their checksums."""
    with open(file, "rb") as stream:
        while head := stream.read(12):
            yield stream.read(struct.unpack("<Q", head[:8])[0])
            stream.read(4)


def fields(message):
    """(number, value) of each field of a protocol buffer's message: bytes, or an int."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(message):
        key = varint()
        value = varint()
        if key & 7 == 2:
            at, value = at + value, message[at:at + value]
        yield key >> 3, value


def image_and_label(record):
    """The JPEG file and the label of a tf.train.Example."""
    features = {}
    for _, entry in fields(dict(fields(record))[1]):
        pair = dict(fields(entry))
        kind, values = next(fields(pair[2]))
        features[pair[1].decode()] = (kind, dict(fields(values))[1])
    label = features["image/class/label"][1]
    return features["image/encoded"][1], label if isinstance(label, int) else label[0]


def decoder():
    """Decodes a JPEG file to [3, 32, 32]."""
    try:
        from torchvision.io import ImageReadMode, decode_jpeg
        return lambda data: decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8),
                                        ImageReadMode.RGB)
    except ImportError:
        import numpy
        from PIL import Image
        return lambda data: torch.from_numpy(
            numpy.array(Image.open(io.BytesIO(data)).convert("RGB"))).permute(2, 0, 1)


def read(pattern, device):
    """All images as bytes [N, 3, 32, 32], and their labels, on the device."""
    files = sorted(glob.glob(pattern))
    decode = decoder()

    def read_file(file):
        pairs = [image_and_label(record) for record in records(file)]
        return torch.stack([decode(image) for image, _ in pairs
                            ]), torch.tensor([label for _, label in pairs])
    with concurrent.futures.ThreadPoolExecutor(min(len(files), os.cpu_count())) as pool:
        images, labels = zip(*pool.map(read_file, files))
    return torch.cat(images).to(device), torch.cat(labels).to(device)


def normalized(images):
    shape = (1, 3, 1, 1)
    mean, deviation = (torch.tensor(values, device=images.device).view(shape)
                       for values in (MEAN, DEVIATION))
    return ((images.float() / 255 - mean) / deviation).to(memory_format=torch.channels_last)


def augmented(images):
    """A border of 4 black pixels, a random crop of 32 x 32, half of the images mirrored."""
    count, device = len(images), images.device
    x, y = torch.randint(9, (2, count, 1), device=device)
    pixels = torch.arange(32, device=device)
    columns = torch.where(torch.rand(count, 1, device=device) < 0.5, pixels, 31 - pixels) + x
    padded = functional.pad(images, (4, 4, 4, 4))
    sample = torch.arange(count, device=device).view(-1, 1, 1)
    return padded.permute(0, 2, 3, 1)[sample, (pixels + y).unsqueeze(2),
                                      columns.unsqueeze(1)].permute(0, 3, 1, 2)


def fast_cifar(width=64):
    """The network of `lockstep train --model fast_cifar`."""
    layers, channels = [nn.Conv2d(3, 24, 2), nn.ReLU()], 24

    def normalize(filters):
        return [nn.BatchNorm2d(filters, eps=1e-5, momentum=0.4), nn.ReLU()]
    for filters in (width, 4 * width, 4 * width):
        layers += [
            nn.Conv2d(channels, filters, 3, padding=1, bias=False),
            nn.MaxPool2d(2), *normalize(filters),
            nn.Conv2d(filters, filters, 3, padding=1, bias=False), *normalize(filters)
        ]
        channels = filters
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def optimizer_of(model):
    """SGD with Nesterov momentum, without weight decay of biases and normalization."""
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    return torch.optim.SGD([{
        "params": decayed,
        "weight_decay": 5e-4
    }, {
        "params": others
    }], lr=0.4, momentum=0.9, nesterov=True)


def train(folder, batch, steps, compiles, device="cuda"):
    """The validated epochs: accuracy, and the time of day at its end."""
    images, labels = read(f"{folder}/train-*.tfrecord", device)
    test_images, test_labels = read(f"{folder}/test-*.tfrecord", device)
    model = fast_cifar().to(device).to(memory_format=torch.channels_last)
    forward = torch.compile(model) if compiles else model
    optimizer = optimizer_of(model)
    warm_up = max(1, steps // 5)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(
            (step + 1) / warm_up, max(0.0, (steps - step) / max(1, steps - warm_up))))
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    epochs, step = [], 0
    while step < steps:
        model.train()
        order = torch.randperm(len(images), device=device)
        for begin in range(0, len(images) - batch + 1, batch):
            if step == steps:
                break
            chosen = order[begin:begin + batch]
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
                value = loss(forward(normalized(augmented(images[chosen]))), labels[chosen])
            value.backward()
            optimizer.step()
            schedule.step()
            step += 1
        model.eval()
        with torch.no_grad(), torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            right = sum(
                (model(normalized(part)).argmax(1) == answers).sum()
                for part, answers in zip(test_images.split(2000), test_labels.split(2000))).item()
        epochs.append({"validation_accuracy": right / len(test_images), "time": time.time()})
    return epochs

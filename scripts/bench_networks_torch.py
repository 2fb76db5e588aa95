"""PyTorch's side of scripts/bench --only networks: networks of images on one thread, images as
bytes in memory.

Usage: bench_networks_torch.py MODEL HEIGHTxWIDTHxCHANNELS BATCH STEPS PRECISION SETTING. PRECISION
is float32 or bfloat16, with autocast. SETTING is a memory layout, "compiled" or not, or "all": the
fastest. Prints one JSON object.
"""

import json
import resource
import sys
import time

import torch
import torchvision
from torch import nn

CLASSES = 10
LAYOUTS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
SETTINGS = {
    f"{layout}{compiled}": (LAYOUTS[layout], bool(compiled))
    for layout in LAYOUTS
    for compiled in ("", ", compiled")
}


def network(name, shape):
    """The network of `lockstep train --model NAME`."""
    if name == "cnn":
        return nn.Sequential(nn.Conv2d(shape[2], 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                             nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    if name.startswith("mlp:"):
        layers, features = [nn.Flatten()], shape[0] * shape[1] * shape[2]
        for width in map(int, name.removeprefix("mlp:").split(",")):
            layers += nn.Linear(features, width), nn.ReLU()
            features = width
        return nn.Sequential(*layers, nn.Linear(features, CLASSES))
    model = getattr(torchvision.models, name)(num_classes=CLASSES)
    if name.startswith("resnet") and shape[0] <= 64:  # the form for small images
        model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    return model


def rate(setting, name, shape, batch, steps, precision):
    layout, is_compiled = SETTINGS[setting]
    torch.manual_seed(1)
    images = torch.randint(256, (batch, shape[2], shape[0], shape[1]), dtype=torch.uint8)
    labels = torch.randint(CLASSES, (batch,))
    model = network(name, shape).to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)

    def loss_of(images, labels):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            return nn.functional.cross_entropy(model(images), labels)

    function = torch.compile(loss_of, mode="max-autotune") if is_compiled else loss_of
    for step in range(steps + 3):
        if step == 3:
            start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        function(images.float().div_(255).contiguous(memory_format=layout), labels).backward()
        optimizer.step()
    return steps * batch / (time.perf_counter() - start)


def main():
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    name, shape, batch, steps, precision, setting = sys.argv[1:7]
    arguments = name, [int(extent) for extent in shape.split("x")
                       ], int(batch), int(steps), precision
    rates = {each: rate(each, *arguments) for each in (SETTINGS if setting == "all" else [setting])}
    best = max(rates, key=rates.get)
    print(
        json.dumps({
            "version": torch.__version__,
            "setting": best,
            "samples_per_second": rates[best],
            "tried": rates,
            "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        }))


if __name__ == "__main__":
    main()

"""PyTorch's side of scripts/bench --only mobilenet: torchvision's mobilenet_v2, eagerly, on one thread, images in memory.

Usage: bench_torch_mobilenet.py SIZE BATCH STEPS. Prints one JSON object: the images per second of the faster memory layout.
"""

import json
import sys
import time

import torch
import torchvision


def rate(layout, size, batch, steps):
    torch.manual_seed(1)
    images = torch.randint(256, (batch, 3, size, size), dtype=torch.uint8)
    labels = torch.randint(10, (batch,))
    model = torchvision.models.mobilenet_v2(num_classes=10).to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=True)
    loss = torch.nn.CrossEntropyLoss()
    for step in range(steps + 2):
        if step == 2:
            start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss(model(images.float().div_(255).contiguous(memory_format=layout)), labels).backward()
        optimizer.step()
    return steps * batch / (time.perf_counter() - start)


def main():
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    size, batch, steps = map(int, sys.argv[1:4])
    layouts = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
    rates = {name: rate(layout, size, batch, steps) for name, layout in layouts.items()}
    best = max(rates, key=rates.get)
    print(json.dumps({"version": torch.__version__, "setting": best, "samples_per_second": rates[best], "tried": rates}))


if __name__ == "__main__":
    main()

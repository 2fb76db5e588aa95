"""PyTorch's side of scripts/gpu_check: one work in one way, on the first GPU; prints one JSON
object.

  resnet50  a training step in bfloat16 (autocast), channels_last, SGD with momentum: eager, or
            compile (torch.compile)
  cnn       a training step of the network `cnn` in float32, Adam: eager, or graph (a CUDA graph of
            the whole step)
  adam      a step of fused Adam over one tensor
  attention causal attention of heads of 64 elements in bfloat16, forward and backward: eager
  (PyTorch's choice), or cudnn
  gpt       a training step of GPT-2's network in bfloat16 (autocast), fused AdamW: eager, or
            compile
  link      copies from each GPU to the next one, all at once: bytes a second of the slowest
  fast_cifar  a training on CIFAR-10's shards in the folder --data, bfloat16 (autocast): eager, or
              compile

Inputs lie on the GPU already: it is the quickest that PyTorch can be. `rates` are samples a second
of each measurement (`seconds` of a step for adam).
"""

import argparse
import json
import time

import torch
from torch import nn
from torch.nn import attention, functional

from bench_sequences_torch import Gpt
from gpu_cifar_torch import train


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))


class Bottleneck(nn.Module):
    """Three convolutions; the 3x3 one carries the stride."""

    def __init__(self, channels, width, stride):
        super().__init__()
        outputs = 4 * width
        self.main = nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width),
                                  nn.ReLU(inplace=True),
                                  nn.Conv2d(width, width, 3, stride, 1, bias=False),
                                  nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                  nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.side = nn.Identity() if stride == 1 and channels == outputs else nn.Sequential(
            nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.main(x) + self.side(x))


def resnet50(classes=1000):
    """ResNet-50 as in torchvision, which is not required."""
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1)
    ]
    channels = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            layers.append(Bottleneck(channels, 64 << stage, 2 if stage > 0 and block == 0 else 1))
            channels = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(channels, classes))


def timed(step, steps, rounds):
    """Seconds of one step, in each of `rounds` measurements."""
    seconds = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / steps)
    return seconds


def resnet50_step(options):
    model = resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    images = torch.randn(options.batch, 3, 224, 224,
                         device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (options.batch,), device="cuda")
    forward = torch.compile(model) if options.way == "compile" else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            value = loss(forward(images), labels)
        value.backward()
        optimizer.step()
    return step


def cnn_step(options):
    model = cnn().cuda()
    graphed = options.way == "graph"
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True, capturable=graphed)
    loss = nn.CrossEntropyLoss()
    images = torch.randn(options.batch, 1, 28, 28, device="cuda")
    labels = torch.randint(0, 10, (options.batch,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss(model(images), labels).backward()
        optimizer.step()
    if not graphed:
        return step
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss(model(images), labels).backward()
        optimizer.step()
    return graph.replay


def adam_step(options):
    weights = nn.Parameter(torch.zeros(options.parameters, device="cuda"))
    weights.grad = torch.full_like(weights, 0.01)
    return torch.optim.Adam([weights], lr=1e-3, fused=True).step


def attention_step(options):
    shape = (options.batch, options.positions, 3, options.heads, 64)
    packed = torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn(options.batch, options.heads, options.positions, 64, device="cuda",
                           dtype=torch.bfloat16)

    def step():
        packed.grad = None
        parts = packed.permute(2, 0, 3, 1, 4).unbind(0)
        functional.scaled_dot_product_attention(*parts, is_causal=True).backward(gradient)
    if options.way != "cudnn":
        return step

    def by_cudnn():
        with attention.sdpa_kernel(attention.SDPBackend.CUDNN_ATTENTION):
            step()
    return by_cudnn


def gpt_step(options):
    model = Gpt(options.layers, options.width, options.positions, options.vocabulary).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    tokens, labels = torch.randint(options.vocabulary, (2, options.batch, options.positions),
                                   device="cuda")
    labels = labels.flatten()

    def loss_of(tokens, labels):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return functional.cross_entropy(model(tokens), labels)
    loss = torch.compile(loss_of) if options.way == "compile" else loss_of

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss(tokens, labels).backward()
        optimizer.step()
    return step


def link():
    """Bytes per second in one direction. A copy also waits for the current stream of the
    destination GPU, which is idle here: each GPU copies on a separate stream."""
    count, size, times = torch.cuda.device_count(), 1 << 28, 20
    arrays = [(torch.zeros(size, dtype=torch.uint8, device=f"cuda:{i}"),
               torch.zeros(size, dtype=torch.uint8, device=f"cuda:{(i + 1) % count}"))
              for i in range(count)]
    streams = [torch.cuda.Stream(device=i) for i in range(count)]
    for i in range(count):
        torch.cuda.synchronize(i)

    def measure():
        events = []
        for i, (source, target) in enumerate(arrays):
            with torch.cuda.stream(streams[i]):
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                for _ in range(times):
                    target.copy_(source, non_blocking=True)
                end.record()
                events.append((begin, end))
        for i in range(count):
            torch.cuda.synchronize(i)
        return [size * times / (begin.elapsed_time(end) / 1e3) for begin, end in events]
    measure()
    rates = measure()
    reach = [torch.cuda.can_device_access_peer(i, (i + 1) % count) for i in range(count)]
    return {"bytes_per_second": min(rates), "each": rates, "peer_access": reach}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "work", choices=["resnet50", "cnn", "adam", "attention", "gpt", "link", "fast_cifar"])
    parser.add_argument("--way", choices=["eager", "compile", "graph", "cudnn"], default="eager")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--positions", type=int, default=1024,
                        help="of attention and gpt, as the following")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--parameters", type=int, default=100_000_000)
    parser.add_argument("--data",
                        help="of fast_cifar: the folder of train-*.tfrecord and test-*.tfrecord")
    parser.add_argument("--steps", type=int, default=20,
                        help="of one measurement, or of the training of fast_cifar")
    parser.add_argument("--rounds", type=int, default=3, help="measurements")
    parser.add_argument("--warm-up", type=int, default=10, help="steps before the first")
    options = parser.parse_args()

    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    if options.work in ("link", "fast_cifar"):
        done = link() if options.work == "link" else {
            "epochs": train(options.data, options.batch, options.steps, options.way == "compile")
        }
        print(
            json.dumps({
                "work": options.work,
                "way": options.way,
                "torch": torch.__version__,
                **done
            }), flush=True)
        return
    step = {
        "resnet50": resnet50_step,
        "cnn": cnn_step,
        "adam": adam_step,
        "attention": attention_step,
        "gpt": gpt_step
    }[options.work](options)
    timed(step, options.warm_up, 1)
    seconds = timed(step, options.steps, options.rounds)
    report = {
        "work": options.work,
        "way": options.way,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "seconds_per_step": seconds
    }
    if options.work != "adam":
        report["rates"] = [options.batch / value for value in seconds]
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()

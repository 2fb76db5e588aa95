"""The floor of each kernel of a training step of ResNet-50 (224x224) on one GPU: the larger of bytes over the memory's bandwidth and FLOP over
the peak of 16-bit products. With --profile, the measured time beside it.

    python3 scripts/gpu_floor.py [--gpu H200] [--batch 256] [--profile FILE]

--gpu       part of a name in gpu_tools.py's table of data sheets
--profile   the JSON lines of `lockstep train --profile FILE`: name, ms, bytes, flop. A name of this table, such as "layer1.0.conv1 forward",
            is compared with its row; for the others the floor is that of the bytes and FLOP in the line

A kernel's bytes are those that it has to move once: inputs read, outputs written, two bytes for each element. The model has ReLU fused with
normalization and remembered in one bit for an element, and the gradients that meet at a block's input added by the data gradient itself.
"""

import argparse
import json
import sys

from gpu_tools import gpu_limits, table

STAGES = [(3, 64), (4, 128), (6, 256), (3, 512)]  # blocks, filters
PARAMETERS = 25_557_032
OPTIMIZER_BYTES = 28  # of one parameter: SGD with momentum, the 16-bit copy, and the 16-bit gradient that becomes float32


def convolution(name, batch, size, channels, filters, kernel, stride, first=False, adds=False):
    """Forward, weight gradient and data gradient; `first` has no data gradient, `adds` reads what is there and adds to it."""
    out = size // stride
    flop = 2 * channels * filters * kernel ** 2 * out ** 2 * batch
    image, output, weights = 2 * channels * size ** 2 * batch, 2 * filters * out ** 2 * batch, 2 * channels * filters * kernel ** 2
    read = image // stride ** 2 if kernel == 1 else image  # a 1x1 convolution with a stride skips pixels
    rows = [(f"{name} forward", read + weights + output, flop), (f"{name} weight gradient", read + output + weights, flop)]
    if not first:
        rows.append((f"{name} data gradient", output + weights + image * (2 if adds else 1), flop))
    return rows


def normalization(name, batch, size, channels, relu=False, adds=False):
    """`relu` writes a bit for each element, `adds` a second input and its gradient."""
    tensor = 2 * channels * size ** 2 * batch
    bits = tensor // 16 if relu else 0
    second = tensor if adds else 0
    return [(f"{name} statistics", tensor, 0), (f"{name} forward", 2 * tensor + second + bits, 0),
            (f"{name} gradient sums", 2 * tensor + bits, 0), (f"{name} backward", 3 * tensor + second + bits, 0)]


def kernels(batch):
    """(name, bytes, FLOP) of a step, in the order of the layers."""
    rows = convolution("conv1", batch, 224, 3, 64, 7, 2, first=True) + normalization("bn1", batch, 112, 64)
    stem = 2 * 64 * 112 ** 2 * batch
    rows += [("max_pool2d forward", stem + stem // 4 + stem // 8, 0), ("max_pool2d backward", stem // 4 + stem // 8 + stem, 0)]
    channels, size = 64, 56
    for stage, (blocks, filters) in enumerate(STAGES):
        for block in range(blocks):
            name, stride = f"layer{stage + 1}.{block}", 2 if stage > 0 and block == 0 else 1
            out, outputs = size // stride, 4 * filters
            rows += convolution(f"{name}.conv1", batch, size, channels, filters, 1, 1, adds=True)
            rows += normalization(f"{name}.bn1", batch, size, filters, relu=True)
            rows += convolution(f"{name}.conv2", batch, size, filters, filters, 3, stride)
            rows += normalization(f"{name}.bn2", batch, out, filters, relu=True)
            rows += convolution(f"{name}.conv3", batch, out, filters, outputs, 1, 1)
            rows += normalization(f"{name}.bn3", batch, out, outputs, relu=True, adds=True)
            if block == 0:
                rows += convolution(f"{name}.downsample.0", batch, size, channels, outputs, 1, stride)
                rows += normalization(f"{name}.downsample.1", batch, out, outputs)
            channels, size = outputs, out
    pooled, classes = 2 * 2048 * batch, 1000
    rows += [(f"global_average_pooling2d {part}", 49 * pooled + pooled, 0) for part in ("forward", "backward")]
    weights, logits, flop = 2 * 2048 * classes, 2 * classes * batch, 2 * 2048 * classes * batch
    rows += [("fc forward", pooled + weights + logits, flop), ("fc weight gradient", pooled + weights + logits, flop),
             ("fc data gradient", pooled + weights + logits, flop)]
    return [*rows, ("update", OPTIMIZER_BYTES * PARAMETERS, 0)]


def floor_seconds(limits, size, flop):
    return max(size / limits["memory_bytes_per_second"], flop / limits["bfloat16_flops_per_second"])


def read_profile(file):
    """The pieces of a step, without the line of the whole step."""
    with open(file, encoding="utf-8") as lines:
        pieces = [json.loads(line) for line in lines if line.strip()]
    return [piece for piece in pieces if piece["name"] != "step"]


def report(gpu, batch, profile=None):
    """The table as text, and the floors' share of the measured time (None without a profile). ValueError for a GPU without a data sheet."""
    limits = gpu_limits(gpu)
    if limits is None:
        raise ValueError(f"expected a GPU of the table in scripts/gpu_tools.py, got {gpu}")
    model = {name: (size, flop) for name, size, flop in kernels(batch)}
    measured = {}
    for line in read_profile(profile) if profile else []:
        entry = measured.setdefault(line["name"], {"ms": 0.0, "bytes": 0, "flop": 0})
        for key in entry:
            entry[key] += line.get(key) or 0
    rows, floors, spent = [], 0.0, 0.0
    names = list(measured) + [name for name in model if name not in measured]
    for name in names if profile else model:
        size, flop = model.get(name) or (measured[name]["bytes"], measured[name]["flop"])
        floor = 1e3 * floor_seconds(limits, size, flop)
        by = "arithmetic" if flop / limits["bfloat16_flops_per_second"] > size / limits["memory_bytes_per_second"] else "memory"
        row = [name, f"{size / 1e6:.1f}", f"{flop / 1e9:.1f}", by, f"{floor:.4f}"]
        if name in measured:
            floors, spent = floors + floor, spent + measured[name]["ms"]
            row += [f"{measured[name]['ms']:.4f}", f"{floor / measured[name]['ms']:.0%}" if measured[name]["ms"] else ""]
        elif profile:
            row += ["not in the profile", ""]
        rows.append(row)
    head = ["kernel", "MB", "GFLOP", "bound by", "floor ms", *(["ms", "share"] if profile else [])]
    text = table(head, rows)
    total = sum(floor_seconds(limits, size, flop) for size, flop in model.values())
    text += (f"\n\n{gpu}, batch {batch}: {len(model)} kernels, {sum(size for size, _ in model.values()) / 1e9:.1f} GB, "
             f"{sum(flop for _, flop in model.values()) / 1e12:.2f} TFLOP; floor {1e3 * total:.1f} ms, {batch / total:.0f} images/s")
    share = floors / spent if spent else None
    if share is not None:
        text += f"; measured {spent:.1f} ms, of which the floors are {share:.0%}"
    return text, share


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--profile")
    options = parser.parse_args()
    try:
        print(report(options.gpu, options.batch, options.profile)[0])
    except (OSError, ValueError, KeyError) as error:
        print(f"scripts/gpu_floor.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

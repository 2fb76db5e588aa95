"""The floor of each kernel of a training step of ResNet-50 (224x224) or of GPT-2's network on one
GPU: the larger of bytes over the memory's bandwidth and FLOP over the peak of 16-bit products. With
--profile, the measured time beside it, and the largest gaps between the two.

    python3 scripts/gpu_floor.py [--model resnet50|gpt:12x768] [--gpu H200] [--batch N] [--profile
    FILE]

--model     gpt:LAYERSxWIDTH has 1,024 positions and 50,257 tokens
--gpu       part of a name in gpu_tools.py's table of data sheets
--batch     256, or 8 for gpt
--profile   the JSON lines of `lockstep train --profile FILE`: name, ms, bytes, flop. A name of this
            table, such as "layer1.0.conv1 forward", is compared with its row; for the others the
            floor is that of the bytes and FLOP in the line

A kernel's bytes are those that it has to move once: inputs read, outputs written, two bytes for
each element. ResNet-50 has ReLU fused with normalization and remembered in one bit for an element,
and the gradients that meet at a block's input added by the data gradient itself.
"""

import argparse
import json
import re
import sys

from gpu_tools import ADAM_BYTES, gpu_limits, table

STAGES = [(3, 64), (4, 128), (6, 256), (3, 512)]  # blocks, filters
PARAMETERS = 25_557_032
# per parameter: SGD with momentum, the 16-bit copy, and the 16-bit gradient that becomes float32
MOMENTUM_BYTES = 28
COPY_BYTES = 2  # per parameter: the 16-bit copy that the layers read
LARGEST_GAPS = 3


def convolution(name, batch, size, channels, filters, kernel, stride, first=False, adds=False):
    """Forward, weight gradient and data gradient; `first` has no data gradient, `adds` reads what
    is there and adds to it."""
    out = size // stride
    flop = 2 * channels * filters * kernel ** 2 * out ** 2 * batch
    image, output = 2 * channels * size**2 * batch, 2 * filters * out**2 * batch
    weights = 2 * channels * filters * kernel**2
    # a 1x1 convolution with a stride skips pixels
    read = image // stride**2 if kernel == 1 else image
    rows = [(f"{name} forward", read + weights + output, flop),
            (f"{name} weight gradient", read + output + weights, flop)]
    if not first:
        rows.append((f"{name} data gradient", output + weights + image * (2 if adds else 1), flop))
    return rows


def normalization(name, batch, size, channels, relu=False, adds=False):
    """`relu` writes a bit for each element, `adds` a second input and its gradient."""
    tensor = 2 * channels * size ** 2 * batch
    bits = tensor // 16 if relu else 0
    second = tensor if adds else 0
    return [(f"{name} statistics", tensor, 0), (f"{name} forward", 2 * tensor + second + bits, 0),
            (f"{name} gradient sums", 2 * tensor + bits, 0),
            (f"{name} backward", 3 * tensor + second + bits, 0)]


def resnet50_kernels(batch):
    """(name, bytes, FLOP) of a step, in the order of the layers."""
    rows = convolution("conv1", batch, 224, 3, 64, 7, 2, first=True) + normalization(
        "bn1", batch, 112, 64)
    stem = 2 * 64 * 112 ** 2 * batch
    rows += [("max_pool2d forward", stem + stem // 4 + stem // 8, 0),
             ("max_pool2d backward", stem // 4 + stem // 8 + stem, 0)]
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
                rows += convolution(f"{name}.downsample.0", batch, size, channels, outputs, 1,
                                    stride)
                rows += normalization(f"{name}.downsample.1", batch, out, outputs)
            channels, size = outputs, out
    pooled, classes = 2 * 2048 * batch, 1000
    rows += [(f"global_average_pooling2d {part}", 49 * pooled + pooled, 0)
             for part in ("forward", "backward")]
    weights, logits, flop = 2 * 2048 * classes, 2 * classes * batch, 2 * 2048 * classes * batch
    rows += [("fc forward", pooled + weights + logits, flop),
             ("fc weight gradient", pooled + weights + logits, flop),
             ("fc data gradient", pooled + weights + logits, flop)]
    return [*rows, ("update", MOMENTUM_BYTES * PARAMETERS, 0)]


def product(name, rows, inner, columns):
    """The three products of a dense layer. Operands and results have 16 bits, except the float32
    gradient of its weights."""
    size, flop = 2 * (rows * inner + inner * columns + rows * columns), 2 * rows * inner * columns
    return [(f"{name} forward", size, flop),
            (f"{name} weight gradient", size + 2 * inner * columns, flop),
            (f"{name} data gradient", size, flop)]


def numbered(name, i):
    """The default name of the i-th layer."""
    return f"{name}_{i}" if i else name


def gpt_kernels(batch, layers, width, positions=1024, vocabulary=50257):
    """The same of GPT-2's network with Adam; forward and backward of a layer together. The last
    layer shares the tokens' table and is computed with its loss, block by block, in the backward
    pass: logits need not leave the second-level cache."""
    rows = batch * positions
    array = 2 * rows * width
    # FLOP of the half of two products of all positions that the causal mask leaves
    scores = 2 * rows * positions * width
    pairs = [("wte", 2 * array, 3 * array, 0, 0), ("wpe", 2 * array, array, 0, 0)]
    kernels = []
    for i in range(layers):
        pairs += [(f"h.{i}.ln_1", 2 * array, 4 * array, 0, 0),
                  (f"h.{i}.ln_2", 2 * array, 4 * array, 0, 0),
                  (numbered("attention", i), 4 * array, 8 * array, scores, 5 * scores // 2),
                  (numbered("add", 2 * i), 3 * array, 0, 0, 0),
                  (numbered("add", 2 * i + 1), 3 * array, 0, 0, 0),
                  (numbered("gelu", i), 8 * array, 12 * array, 0, 0)]
        kernels += product(f"h.{i}.attn.c_attn", rows, width, 3 * width) + product(
            f"h.{i}.attn.c_proj", rows, width, width)
        kernels += product(f"h.{i}.mlp.c_fc", rows, width, 4 * width) + product(
            f"h.{i}.mlp.c_proj", rows, 4 * width, width)
    pairs.append(("ln_f", 2 * array, 4 * array, 0, 0))
    for name, forward, backward, flop, backward_flop in pairs:
        kernels += [(f"{name} forward", forward, flop),
                    (f"{name} backward", backward, backward_flop)]
    parameters = (vocabulary + positions) * width + layers * (12 * width + 13) * width + 2 * width
    return [
        *kernels,
        ("lm_head backward", 2 * array + (2 + 4) * width * vocabulary,
         3 * 2 * rows * width * vocabulary), ("update", (ADAM_BYTES + COPY_BYTES) * parameters, 0)
    ]


def kernels(model, batch):
    """The kernels of a name of --model. ValueError for another name."""
    if model == "resnet50":
        return resnet50_kernels(batch)
    if sizes := re.fullmatch(r"gpt:(\d+)x(\d+)", model):
        return gpt_kernels(batch, int(sizes[1]), int(sizes[2]))
    raise ValueError(f"expected resnet50 or gpt:LAYERSxWIDTH, got {model}")


def floor_seconds(limits, size, flop):
    return max(size / limits["memory_bytes_per_second"], flop / limits["bfloat16_flops_per_second"])


def read_profile(file):
    """The pieces of a step, without the line of the whole step."""
    with open(file, encoding="utf-8") as lines:
        pieces = [json.loads(line) for line in lines if line.strip()]
    return [piece for piece in pieces if piece["name"] != "step"]


def largest_gaps(times):
    """The kinds of kernels with the largest times above their floors: text of (name, floor ms, ms),
    layers of one kind together."""
    kinds = {}
    for name, floor, spent in times:
        kind = kinds.setdefault(re.sub(r"(?<=\.)\d+(?=\.)", "N", re.sub(r"_\d+(?= )", "", name)),
                                [0.0, 0.0])
        kind[0], kind[1] = kind[0] + floor, kind[1] + spent
    most = sorted(kinds.items(), key=lambda kind: kind[1][0] - kind[1][1])[:LARGEST_GAPS]
    return ", ".join(f"{name} {spent:.2f} ms (floor {floor:.2f})" for name, (floor, spent) in most)


def report(gpu, rows, batch, profile=None):
    """The table of `rows` (kernels()) as text; the floors' share of the measured time and the
    largest gaps (None without a profile). ValueError for a GPU without a data sheet."""
    limits = gpu_limits(gpu)
    if limits is None:
        raise ValueError(f"expected a GPU of the table in scripts/gpu_tools.py, got {gpu}")
    model = {name: (size, flop) for name, size, flop in rows}
    measured = {}
    for line in read_profile(profile) if profile else []:
        entry = measured.setdefault(line["name"], {"ms": 0.0, "bytes": 0, "flop": 0})
        for key in entry:
            entry[key] += line.get(key) or 0
    lines, times = [], []
    names = list(measured) + [name for name in model if name not in measured]
    for name in names:
        size, flop = model.get(name) or (measured[name]["bytes"], measured[name]["flop"])
        floor = 1e3 * floor_seconds(limits, size, flop)
        by = "arithmetic" if flop / limits["bfloat16_flops_per_second"] > size / limits[
            "memory_bytes_per_second"] else "memory"
        line = [name, f"{size / 1e6:.1f}", f"{flop / 1e9:.1f}", by, f"{floor:.4f}"]
        if name in measured:
            spent = measured[name]["ms"]
            times.append((name, floor, spent))
            line += [f"{spent:.4f}", f"{floor / spent:.0%}" if spent else ""]
        elif profile:
            line += ["not in the profile", ""]
        lines.append(line)
    head = ["kernel", "MB", "GFLOP", "bound by", "floor ms", *(["ms", "share"] if profile else [])]
    text = table(head, lines)
    total = sum(floor_seconds(limits, size, flop) for size, flop in model.values())
    text += (
        f"\n\n{gpu}, batch {batch}: {len(model)} kernels, "
        f"{sum(size for size, _ in model.values()) / 1e9:.1f} GB, "
        f"{sum(flop for _, flop in model.values()) / 1e12:.2f} TFLOP; floor {1e3 * total:.1f} ms, "
        f"{batch / total:.0f} samples/s"
    )
    spent = sum(ms for _, _, ms in times)
    if not spent:
        return text, None, None
    share, gaps = sum(floor for _, floor, _ in times) / spent, largest_gaps(times)
    text += f"; measured {spent:.1f} ms, of which the floors are {share:.0%}; largest gaps: {gaps}"
    return text, share, gaps


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--profile")
    options = parser.parse_args()
    try:
        batch = options.batch or (256 if options.model == "resnet50" else 8)
        print(report(options.gpu, kernels(options.model, batch), batch, options.profile)[0])
    except (OSError, ValueError, KeyError) as error:
        print(f"scripts/gpu_floor.py: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Computations of scripts/gpu_check: tables, medians, comparisons, lower bounds. They need no
GPU."""

import dataclasses
import json
import math
import re
import statistics

# Figures of NVIDIA's data sheets: bytes per second of the GPU's memory, and operations per second
# of bfloat16 (float16 before the A100) with float32 sums, without sparsity. The first pattern that
# is found in the name counts.
GPUS = [
    ("B200", 8.0e12, 2250e12),
    ("GH200", 4.0e12, 989e12),
    ("H200", 4.8e12, 989e12),
    ("H100.*NVL", 3.9e12, 835e12),
    ("H100.*PCIe", 2.0e12, 756e12),
    ("H100", 3.35e12, 989e12),
    ("A100.*80GB PCIe", 1.935e12, 312e12),
    ("A100.*80GB", 2.039e12, 312e12),
    ("A100", 1.555e12, 312e12),
    ("L40S", 0.864e12, 362e12),
    (r"L4\b", 0.3e12, 121e12),
    ("A10G?$", 0.6e12, 125e12),
    ("V100", 0.9e12, 125e12),
    (r"T4\b", 0.32e12, 65e12),
    ("RTX 4090", 1.008e12, 165e12),
    ("RTX 3090", 0.936e12, 71e12),
]

# ResNet-50 at 224x224: multiplications and additions of one image forward (backward takes twice as
# many), and the elements of its convolutions' outputs (Radosavovic et al., "Designing network
# design spaces", CVPR 2020, table 8).
RESNET50_FORWARD_FLOPS = 2 * 4.1e9
RESNET50_ACTIVATIONS = 11.1e6
# per float32 parameter: four arrays read, the gradient again to check that it is finite, three
# written
ADAM_BYTES = 32


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What the measurements train, in steps and samples."""
    resnet: str = "resnet50"
    image: int = 224
    resnet_batch: int = 256
    resnet_steps: int = 120
    gpt_layers: int = 12  # GPT-2's smallest network, whose attention has heads of 64 elements
    gpt_width: int = 768
    gpt_batch: int = 8
    positions: int = 1024
    vocabulary: int = 50257
    gpt_steps: int = 60
    cnn_batch: int = 64
    cnn_steps: int = 6000
    cifar_batch: int = 512
    cifar_steps: int = 20 * 50_000 // 512
    adam_parameters: int = 100_000_000
    jpeg_files: int = 8
    jpeg_records: int = 4096
    jpeg_images: str = "imagenet"
    log_every: int = 10


# The sizes of --rehearse, with which a simulated GPU trains in seconds.
REHEARSAL = Sizes(resnet="cnn", image=12, resnet_batch=2, resnet_steps=8, gpt_layers=1,
                  gpt_width=64, gpt_batch=1, positions=16, vocabulary=40, gpt_steps=8, cnn_batch=2,
                  cnn_steps=4, cifar_batch=2, cifar_steps=1, adam_parameters=10_000, jpeg_files=2,
                  jpeg_records=8, jpeg_images="random-crop=12", log_every=1)


def gpu_limits(name):
    """Bytes per second and bfloat16 operations per second of a GPU, or None if the table does not
    have it."""
    return next(({"memory_bytes_per_second": memory, "bfloat16_flops_per_second": flops}
                 for pattern, memory, flops in GPUS if re.search(pattern, name)), None)


def resnet50_floor(limits, batch):
    """The minimum seconds of a step in bfloat16. Arithmetic: the operations of three passes at the
    full rate. Memory: each activation written and read once forward, read once more backward, its
    gradient written and read once, two bytes each time."""
    arithmetic = 3 * RESNET50_FORWARD_FLOPS * batch / limits["bfloat16_flops_per_second"]
    memory = 5 * 2 * RESNET50_ACTIVATIONS * batch / limits["memory_bytes_per_second"]
    return {
        "arithmetic_seconds": arithmetic,
        "memory_seconds": memory,
        "seconds": max(arithmetic, memory)
    }


def adam_floor(limits, parameters):
    return parameters * ADAM_BYTES / limits["memory_bytes_per_second"]


def median(values):
    """The median, or None of no values."""
    return statistics.median(values) if values else None


def ratio(mine, other):
    return mine / other if mine is not None and other else None


def events_of(text):
    """The JSON objects of a training's output; other lines, such as mpirun's, are ignored."""
    events = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def training_of(text):
    """The output of a training with --log-format json: losses, rates, the hash of its
    parameters."""
    events = events_of(text)
    steps = [event for event in events if event.get("event") == "step"]
    end = next((event for event in events if event.get("event") == "end"), {})
    return {
        "losses": [event["loss"] for event in steps if "loss" in event],
        "skipped": sum(1 for event in steps if event.get("skipped")),
        "rates": [event["samples_per_second"] for event in steps],
        "input_wait_seconds": sum(event.get("input_wait_seconds", 0) for event in steps),
        "hash": end.get("parameter_hash"),
        "seconds": end.get("seconds"),
        "breakdown": next((event["breakdown"] for event in reversed(steps) if "breakdown" in event),
                          {}),
        "start": next((event for event in events if event.get("event") == "start"), {})
    }


def outside_the_graph(breakdown):
    """Seconds of a step in which the GPU computes neither passes nor sums nor the update, of the
    parts in a training's events."""
    return sum(seconds for part, seconds in breakdown.items()
               if part not in ("compute", "communication", "waiting", "update"))


def validations_of(text):
    """The epochs of a training with --log-format json that were validated."""
    return [
        event for event in events_of(text)
        if event.get("event") == "epoch" and "validation_accuracy" in event
    ]


def steady(rates, warm_up=2):
    """The rates without those of the first reports, in which algorithms are chosen and graphs
    recorded."""
    return rates[warm_up:] if len(rates) > warm_up else rates


def loss_difference(one, other):
    """The largest relative difference of two series of losses; infinite if they differ in length or
    are not finite."""
    if len(one) != len(other) or not one:
        return math.inf
    differences = [abs(a - b) / max(abs(a), abs(b), 1e-6) for a, b in zip(one, other)]
    return max(differences) if all(map(math.isfinite, differences)) else math.inf


def test_counts(text):
    """How many tests a gtest program passed, skipped and failed, from its last lines."""
    def count(pattern):
        found = re.findall(pattern, text, re.MULTILINE)
        return int(found[-1]) if found else 0

    return {
        "passed": count(r"^\[  PASSED  \] (\d+) tests?"),
        "skipped": count(r"^\[  SKIPPED \] (\d+) tests?"),
        "failed": count(r"^\[  FAILED  \] (\d+) tests?")
    }


def architecture(capability):
    """CMake's number of a compute capability: "9.0" is 90."""
    return capability.strip().replace(".", "")


def parse_gpus(text):
    """The GPUs of `nvidia-smi --query-gpu=name,uuid,driver_version,memory.total,compute_cap
    --format=csv,noheader,nounits`."""
    gpus = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 5:
            gpus.append({
                "name": cells[0],
                "uuid": cells[1],
                "driver": cells[2],
                "memory_mib": int(float(cells[3])),
                "compute_capability": cells[4]
            })
    return gpus


def table(head, rows):
    """Text in columns as wide as they need to be; the last one is not padded."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return "\n".join("  ".join(
        [*(cell.ljust(width)
           for cell, width in zip(row[:-1], widths)), row[-1]]).rstrip()
                     for row in cells)


def markdown(head, rows):
    """The same as a table of Markdown, for docs/gpu.md."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|")
                                       for cell in line) + " |"
                     for line in lines)


def exit_status(steps):
    """0 if no step failed; steps that could not run do not count, but at least one must have
    passed."""
    results = [step["result"] for step in steps]
    return 0 if "passed" in results and "failed" not in results else 1

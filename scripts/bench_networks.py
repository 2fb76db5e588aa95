"""The part of scripts/bench with networks of images and rows on one core, in float32 and bfloat16,
against the same in PyTorch."""

import argparse
import collections
import statistics
import sys

from bench_tools import (
    LOCKSTEP,
    ROOT,
    Run,
    compare,
    floor_of_step,
    on_cores,
    physical_cores,
    row,
    supports,
    title,
)

Work = collections.namedtuple("Work", "model data batch steps")
WORKS = [Work("cnn", "28x28x1", 64, 200), Work("mlp:1024,1024", "28x28x1", 64, 200),
         Work("resnet18", "32x32x3", 32, 10), Work("resnet18", "32x32x3", 128, 4),
         Work("resnet50", "224x224x3", 8, 5), Work("resnet50", "224x224x3", 32, 3),
         Work("mobilenet_v2", "96x96x3", 32, 20)]
PRECISIONS = "float32", "bfloat16"


def train(options, work, precision):
    return [
        str(LOCKSTEP), "train", "--checkpoint-dir", "none", "--model", work.model, "--data",
        f"synthetic-images:{work.data},10,{work.steps * work.batch}", "--global-batch",
        str(work.batch), "--epochs",
        str(options.epochs), "--optimizer", "sgd", "--momentum", "0.9", "--learning-rate", "0.01",
        "--precision", precision, "--log-format", "json"
    ]


def measure_pairs(options, precisions, result):
    """Two replicas of one process and two ranks on two cores, against two independent runs at the
    same time."""
    cores = physical_cores(2)
    title("2 x one")
    for work in WORKS:
        for precision in precisions:
            alone, doubled = (train(options, each, precision)
                              for each in (work, work._replace(batch=2 * work.batch)))
            replicas = [*doubled, "--devices", "cpu:0,cpu:0"]
            ranks = ["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none", *doubled]
            rates = {"independent": [], "replicas": [], "ranks": []}
            for _ in range(options.rounds):
                pair = [Run(alone, [core]) for core in cores]
                rates["independent"].append(sum(run.finish().rate() for run in pair))
                for kind, command in (("replicas", replicas), ("ranks", ranks)):
                    rates[kind].append(Run(command, cores, threads=None).finish().rate())
            result["pairs"].append(work._asdict() | {"precision": precision} | rates)
            other = statistics.median(rates["independent"])
            for kind in ("replicas", "ranks"):
                rate = statistics.median(rates[kind])
                row(f"images per second, {work.model}, batch {work.batch}, {precision}, two {kind}",
                    f"{rate:,.1f}", f"{other:,.1f}", f"{rate / other:.1%}")


def measure_networks(options, result):
    """Generated images as bytes in memory. PyTorch in its fastest setting, found once: eager or
    compiled, in two memory layouts."""
    [core] = physical_cores(1)
    precisions = [each for each in PRECISIONS if supports(each)]
    result["networks"], result["pairs"] = [], []
    title("PyTorch")
    for work in WORKS:
        rates = {}
        for precision in precisions:
            command = train(options, work, precision)
            torch = [sys.executable, ROOT / "scripts" / "bench_networks_torch.py", *work, precision]
            tried = on_cores([*torch, "all"], [core])
            ours, theirs, megabytes = [], [], []
            for _ in range(options.rounds):
                run = Run(command, [core]).finish()
                ours.append(run.rate())
                megabytes.append(run.resident_megabytes)
                theirs.append(on_cores([*torch, tried["setting"]], [core]))
            step = floor_of_step(
                train(argparse.Namespace(epochs=-(-12 // work.steps)), work, precision), work.steps,
                [core])
            result["networks"].append(
                work._asdict() | {
                    "precision": precision,
                    "lockstep": ours,
                    "megabytes": megabytes,
                    "torch": theirs,
                    "tried": tried,
                    "step": step
                })
            name = f"{work.model}, batch {work.batch}, {precision}"
            compare(f"images per second, {name}", ours,
                    [each["samples_per_second"] for each in theirs], 1, 1, f": {tried['setting']}")
            floor = step["primitives_ms"] + step["others_ms"]
            row(
                f"ms of a step, {name}", f"{step['ms']:.1f}", f"{floor:.1f}",
                f"{floor / step['ms']:.0%}",
                f"the floor, of which primitives {step['primitives_ms']:.1f}; at the peak of a "
                f"core {step['peak_share']:.0%}"
            )
            compare(f"peak memory in MB, {name}", megabytes, [each["megabytes"] for each in theirs],
                    1, 0)
            rates[precision] = statistics.median(ours)
        if len(rates) < len(PRECISIONS):
            continue
        ours, other = rates["bfloat16"], rates["float32"]
        row(f"images per second, {work.model}, batch {work.batch}", f"{ours:,.1f}", f"{other:,.1f}",
            f"{ours / other:.2f} x", "bfloat16 against our float32")
    measure_pairs(options, precisions, result)

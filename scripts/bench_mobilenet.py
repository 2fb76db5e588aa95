"""The part of scripts/bench with mobilenet_v2 on images of 96x96, against torchvision's under PyTorch."""

import sys

from bench_tools import LOCKSTEP, ROOT, Run, compare, on_cores, physical_cores, title

SIZE, BATCH, STEPS = 96, 32, 20


def measure_mobilenet(options, result):
    """One core, generated images as bytes in memory; PyTorch eagerly, in the faster of its two memory layouts."""
    [core] = physical_cores(1)
    train = [str(LOCKSTEP), "train", "--model", "mobilenet_v2", "--data", f"synthetic-images:{SIZE}x{SIZE}x3:10:{STEPS * BATCH}",
             "--devices", "cpu:0", "--global-batch", str(BATCH), "--epochs", str(options.epochs), "--optimizer", "sgd",
             "--momentum", "0.9", "--learning-rate", "0.01", "--log-format", "json"]
    other = [sys.executable, ROOT / "scripts" / "bench_torch_mobilenet.py", SIZE, BATCH, STEPS]
    ours, theirs = [], []
    for _ in range(options.rounds):
        ours.append(Run(train, [core]).finish().rate())
        theirs.append(on_cores(other, [core]))
    result["mobilenet"] = {"lockstep": ours, "torch": theirs}
    title("PyTorch")
    compare(f"images per second, mobilenet_v2, {SIZE}x{SIZE}", ours, [each["samples_per_second"] for each in theirs], 1, 1,
            f": {theirs[0]['setting']}")

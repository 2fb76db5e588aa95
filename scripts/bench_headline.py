"""The headline figures of scripts/bench: the seconds to an accuracy, against PyTorch with the same
recipe, and README's table."""

import statistics
import sys

from bench_tools import LOCKSTEP, ROOT, Run, fail, physical_cores, row, spread, title

TARGET = 0.91  # accuracy on the 10,000 test images
EPOCHS, PEAK_RATE, WARM_UP = 5, 3e-3, 300  # as in scripts/quickstart
OURS = [
    str(LOCKSTEP), "train", "--checkpoint-dir", "none", "--model", "cnn", "--data", "fashion-mnist",
    "--validation-data", "fashion-mnist:test", "--epochs", str(EPOCHS), "--lr-schedule", "cosine",
    "--learning-rate", str(PEAK_RATE), "--warmup-steps", str(WARM_UP), "--log-format", "json"
]
THEIRS = [
    sys.executable, str(ROOT / "scripts" / "bench_torch.py"), "--layout", "channels_last",
    "--epochs", str(EPOCHS), "--peak-rate", str(PEAK_RATE), "--warm-up", str(WARM_UP), "--threads",
    "2"
]


def seconds_to_target(command, cores):
    """From the start of the process to the end of the validation that reaches TARGET."""
    events = Run(command, cores, threads=None).finish().events
    epochs = [(seconds, event) for seconds, event in events if event["event"] == "epoch"]
    for seconds, event in epochs:
        if event["validation_accuracy"] >= TARGET:
            return seconds
    best = max(event["validation_accuracy"] for _, event in epochs)
    fail(f"expected an accuracy of {TARGET} after {EPOCHS} epochs, got {best}: {' '.join(command)}")


def measure_accuracy(options, result):
    """Two cores, global batch 64: one process of each side, alternating."""
    cores = physical_cores(2)
    ours, theirs = [], []
    for _ in range(options.rounds):
        ours.append(seconds_to_target(OURS, cores))
        theirs.append(seconds_to_target(THEIRS, cores))
    seconds, other = statistics.median(ours), statistics.median(theirs)
    result["accuracy"] = {"lockstep": ours, "torch": theirs, "target": TARGET}
    title("PyTorch")
    row(f"seconds to {100 * TARGET:.0f} % accuracy, two cores", f"{seconds:.1f}", f"{other:.1f}",
        f"{other / seconds:.2f} x", f"ours {spread(ours)}, theirs {spread(theirs)}")


def markdown(result, machine):
    """README's table."""
    def median(values):
        return statistics.median(values)

    lines = ["| measured side by side | Lockstep | peer | |", "|---|---|---|---|"]

    def add(name, ours, theirs, peer, digits, is_time):
        ratio = theirs / ours if is_time else ours / theirs
        lines.append(f"| {name} | {ours:,.{digits}f} | {theirs:,.{digits}f} {peer} | "
                     f"{ratio:.{0 if ratio >= 10 else 1}f} x |")

    accuracy = result["accuracy"]
    add(f"start of the program to {100 * TARGET:.0f} % on Fashion-MNIST, `cnn`, two cores, s",
        median(accuracy["lockstep"]), median(accuracy["torch"]), "PyTorch", 1, True)
    single = result["single"]
    add("training `cnn`, one core, images/s", median(single["lockstep"]),
        max(median(rates) for rates in single["torch"].values()), "PyTorch", 0, False)
    if "torch_ddp" in result:
        jobs = result["torch_ddp"]["mlp"]
        ours = median([job["milliseconds"]["lockstep"] for job in jobs["two"]])
        theirs = jobs["pytorch"] or [job["milliseconds"]["ddp"] for job in jobs["two"]]
        add("step of two ranks (LibTorch `mlp`), ms", ours, median(theirs),
            "PyTorch DDP, Gloo" if jobs["pytorch"] else "LibTorch's reducer, Gloo", 1, True)
    records = result["records"]
    if records["tensorflow"]:
        add("parsing image records, million/s per core",
            median([each["images"][0] / 1e6 for each in records["lockstep"]]),
            median([each["images"] / 1e6 for each in records["tensorflow"]]), "tf.data", 2, False)
    ratios = sorted(result["replicas"][kind]["ratio"] for kind in ("mirrored", "two ranks"))
    lines.append("| two replicas against two independent runs | | | "
                 f"{100 * ratios[0]:.0f} to {100 * ratios[1]:.0f} % |")
    start = result["start"]
    add("start to first step, s", median(start["lockstep"]), median(start["torch"]), "PyTorch", 2,
        True)
    return "\n".join([*lines, "", machine])

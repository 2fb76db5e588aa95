"""LibTorch under lockstep::torch, compared with PyTorch's DistributedDataParallel over Gloo: the
part `torch` of scripts/bench."""

import os
import statistics
import subprocess
import tempfile

from bench_allreduce import RATE, across
from bench_tools import BUILD, ROOT, Run, physical_cores, row, title

PROGRAM = BUILD / "tests" / "bench" / "lockstep_bench_torch"
PYTHON = os.environ.get("LOCKSTEP_TORCH_PYTHON",
                        "/usr/bin/python3")  # one whose torch is the LibTorch of the build
BATCH = 32  # per rank: a global batch of 64
STEPS, BLOCKS = 5, 10
NETWORKS = ("mlp", "cnn")
OURS = "lockstep"
TWO_RANKS = ["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none"]


def run(model, ranks, cores):
    """The JSON object of one job, in which all kinds alternate in blocks."""
    with tempfile.TemporaryDirectory() as folder:
        mpirun = TWO_RANKS if ranks == 2 else ["mpirun", "-np", "1", "--bind-to", "none"]
        command = [
            str(PROGRAM), "--model", model, "--batch",
            str(BATCH), "--steps",
            str(STEPS), "--rounds",
            str(BLOCKS)
        ]
        [(_, result)] = Run(mpirun + command + ["--store", f"{folder}/store"],
                            cores).finish().events
    return result


def run_pytorch(model, views):
    """Median milliseconds of a step of PyTorch's own DistributedDataParallel."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            PYTHON,
            str(ROOT / "scripts" / "bench_torch_steps.py"), model,
            str(BATCH),
            str(STEPS),
            str(BLOCKS), f"{folder}/store", "1" if views else "0"
        ]
        [(_, result)] = Run(TWO_RANKS + command, physical_cores(2)).finish().events
    return statistics.median(result["blocks"])


def has_pytorch():
    """Whether there is a PyTorch on the same LibTorch to compare with, and its version."""
    found = subprocess.run([
        PYTHON, "-c", "import torch.distributed as d; assert d.is_gloo_available()"
    ], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return found.returncode == 0


def paired(result, kind, other):
    """The median over pairs of neighbouring blocks of the time of `other` over that of `kind`."""
    return statistics.median(b / a for a, b in zip(result["blocks"][kind], result["blocks"][other]))


def measure_torch(options, result):
    """Two ranks on two cores, one rank on one core, and two hosts connected by a link."""
    if not PROGRAM.exists():
        print(f"  {PROGRAM} was not built: it needs Debian's libtorch-dev and libgloo-dev")
        return
    found = result["torch_ddp"] = {}
    pytorch = has_pytorch()
    if not pytorch:
        print(
            f"  {PYTHON} has no PyTorch with Gloo (Debian's python3-torch): compared with its "
            "reducer alone"
        )
    for model in NETWORKS:
        found[model] = measure_network(model, options.rounds, pytorch)
    if os.geteuid() == 0:
        measure_hidden(found)


def measure_network(model, rounds, pytorch):
    """Jobs of all sides in turn; rows of medians over the rounds."""
    jobs = {"two": [], "one": [], "pytorch": [], "pytorch, views": []}
    for _ in range(rounds):
        jobs["two"].append(run(model, 2, physical_cores(2)))
        if pytorch:
            jobs["pytorch"].append(run_pytorch(model, views=False))
            jobs["pytorch, views"].append(run_pytorch(model, views=True))
        jobs["one"].append(run(model, 1, physical_cores(1)))

    def median(which, kind):
        return statistics.median(job["milliseconds"][kind] for job in jobs[which])

    def ratio(which, kind, other):
        return statistics.median(paired(job, kind, other) for job in jobs[which])

    ours, parameters = median("two", OURS), jobs["two"][0]["parameters"]
    title("other side")
    for kind in ("pytorch", "pytorch, views") if pytorch else ():
        pairs = [theirs / job["milliseconds"][OURS] for theirs, job in zip(jobs[kind], jobs["two"])]
        row(f"{model}, {parameters:,} parameters, ms per step of 2 ranks", f"{ours:.2f}",
            f"{statistics.median(jobs[kind]):.2f}", f"{statistics.median(pairs):.2f} x",
            f"PyTorch DDP + Gloo{', gradients as bucket views' if 'views' in kind else ''}")
    for kind in ("ddp", "ddp, views"):
        row(f"{model}, the same", f"{ours:.2f}", f"{median('two', kind):.2f}",
            f"{ratio('two', OURS, kind):.2f} x",
            f"its reducer without Python{', views' if 'views' in kind else ''}")
    row("  samples per second against one rank alone", f"{2e3 * BATCH / ours:,.0f}",
        f"{1e3 * BATCH / median('two', 'alone'):,.0f}", f"{2 * ratio('two', OURS, 'alone'):.2f} x",
        f"two ranks that do not reduce: {2 * ratio('two', 'independent', 'alone'):.2f} x")
    row("  ms per step of one rank, and without wrapper", f"{median('one', OURS):.2f}",
        f"{median('one', 'independent'):.2f}", f"{ratio('one', 'independent', OURS) - 1:+.1%}")
    return jobs


def measure_hidden(found):
    """Across two hosts: how much of the reduction's time the backward pass hides."""
    wanted = [str(PROGRAM), "--model", "cnn", "--batch", "256", "--steps", "2", "--rounds", "5"]
    [(_, result)] = across(2, wanted, cores_per_host=1).finish().events
    times, communication = result["milliseconds"], result["communication"]
    hidden = 1 - (times[OURS] - times["independent"]) / communication
    found["hosts"] = result | {"hidden": hidden}
    title("alone")
    row(f"cnn, batch 256, two hosts, link of {RATE}, ms per step", f"{times[OURS]:.0f}",
        f"{times['independent']:.0f}", f"{hidden:.0%}",
        f"of {communication:.0f} ms of communication hidden")

"""LibTorch under lockstep::torch, beside LibTorch's own reducer over Gloo: the part `torch` of scripts/bench."""

import os
import pathlib
import statistics
import tempfile

from bench_allreduce import RATE, across
from bench_tools import BUILD, Run, physical_cores, row, title

PROGRAM = BUILD / "apps" / "bench" / "lockstep_bench_torch"
SECONDS_OF_A_RUN = 20
NETWORKS = {"mlp": 8, "cnn": 30}  # milliseconds of a step, about
OURS = "lockstep"


def command(model, ranks, *more, folder):
    steps = 5
    kinds = 3 + 3 * (ranks > 1)
    rounds = max(5, int(SECONDS_OF_A_RUN / (kinds * steps * NETWORKS[model] / 1e3)))
    return [str(PROGRAM), "--model", model, "--steps", str(steps), "--rounds", str(min(rounds, 60)),
            "--store", str(pathlib.Path(folder) / "store"), *more]


def run(model, ranks, cores, *more):
    """The JSON object of one job; in each, all kinds take turns block by block."""
    with tempfile.TemporaryDirectory() as folder:
        mpirun = ["mpirun", "-np", str(ranks), "--oversubscribe", "--bind-to", "none"]
        [(_, result)] = Run(mpirun + command(model, ranks, *more, folder=folder), cores).finish().events
    return result


def paired(result, kind, other):
    """The median over pairs of neighbouring blocks of the time of `other` over that of `kind`."""
    return statistics.median(b / a for a, b in zip(result["blocks"][kind], result["blocks"][other]))


def quickest_ddp(result):
    times = result["milliseconds"]
    return min((kind for kind in times if kind.startswith("ddp")), key=times.__getitem__)


def measure_torch(options, result):
    """Two ranks on two cores, one rank on one core, and two hosts behind a cable."""
    if not PROGRAM.exists():
        print(f"  {PROGRAM} was not built: it needs Debian's libtorch-dev and libgloo-dev")
        return
    found = result["torch"] = {}
    for model in NETWORKS:
        two, one = run(model, 2, physical_cores(2)), run(model, 1, physical_cores(1))
        found[model] = {"two": two, "one": one}
        times, theirs = two["milliseconds"], quickest_ddp(two)
        title("other side")
        row(f"{model}, {two['parameters']:,} parameters, ms a step of two ranks", f"{times[OURS]:.2f}", f"{times[theirs]:.2f}",
            f"{paired(two, OURS, theirs):.2f} x", f"LibTorch's reducer over Gloo ({theirs})")
        row("  samples a second against one rank alone", f"{2 * 64e3 / times[OURS]:,.0f}", f"{64e3 / times['alone']:,.0f}",
            f"{2 * paired(two, OURS, 'alone'):.2f} x",
            f"two that do not reduce: {2 * paired(two, 'independent', 'alone'):.2f} x")
        row("  ms a step of one rank, and without wrapper", f"{one['milliseconds'][OURS]:.2f}",
            f"{one['milliseconds']['independent']:.2f}", f"{paired(one, 'independent', OURS) - 1:+.1%}")
    if os.geteuid() == 0:
        measure_hidden(found)


def measure_hidden(found):
    """Across two hosts: how much of the reduction's time backward hides."""
    with tempfile.TemporaryDirectory() as folder:
        wanted = command("cnn", 2, "--batch", "256", "--steps", "2", "--rounds", "5", folder=folder)
        del wanted[wanted.index("--store"):wanted.index("--store") + 2]
        [(_, result)] = across(2, wanted, cores_per_host=1).finish().events
    times, communication = result["milliseconds"], result["communication"]
    hidden = 1 - (times[OURS] - times["independent"]) / communication
    found["hosts"] = result | {"hidden": hidden}
    title("alone")
    row(f"cnn, batch 256, two hosts, cable of {RATE}, ms a step", f"{times[OURS]:.0f}", f"{times['independent']:.0f}",
        f"{hidden:.0%}", f"of {communication:.0f} ms of communication hidden")

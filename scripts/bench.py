"""Implementation of scripts/bench: both sides, alternating, medians and ratios; see scripts/bench
for the options."""

import argparse
import datetime
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

from bench_allreduce import measure_allreduce, measure_cluster, measure_overlap
from bench_headline import markdown, measure_accuracy
from bench_images import measure_images
from bench_inference import measure_inference
from bench_networks import measure_networks
from bench_python import measure_python
from bench_records import measure_records
from bench_sequences import measure_sequences
from bench_tables import measure_tables
from bench_tools import BUILD, LOCKSTEP, ROOT, Run, fail, physical_cores, row, spread, title
from bench_torch_ddp import measure_torch
from bench_transport import measure_transport

PRIMITIVES = BUILD / "tests" / "bench" / "lockstep_bench_primitives"
TORCH = [sys.executable, str(ROOT / "scripts" / "bench_torch.py")]
BATCH = 64


def train(*more, batch=BATCH, epochs):
    return [
        str(LOCKSTEP), "train", "--checkpoint-dir", "none", "--model", "cnn", "--data",
        "fashion-mnist", "--global-batch",
        str(batch), "--epochs",
        str(epochs), "--log-format", "json", *more
    ]


def best_torch(core):
    """PyTorch's configurations, each tried once briefly; the fastest of each memory layout."""
    print("PyTorch's configurations, 300 steps each, images per second:", flush=True)
    best, tried = {}, {}
    for layout, adam, source in itertools.product(["contiguous", "channels_last"],
                                                  ["plain", "foreach", "fused"],
                                                  ["uint8", "float32"]):
        options = ["--layout", layout, "--adam", adam, "--input", source]
        tried[f"{layout} {adam} {source}"] = rate = Run(TORCH + options + ["--steps", "300"],
                                                        [core]).finish().rate()
        print(f"  {layout:<14} Adam {adam:<8} images stored as {source:<8}{rate:>9,.0f}",
              flush=True)
        if rate > best.get(layout, (0, None))[0]:
            best[layout] = (rate, options)
    return tried, {layout: options for layout, (_, options) in best.items()}


def measure_single(options, result):
    """One core, batch 64: Lockstep, then PyTorch in its two layouts, alternating."""
    [core] = physical_cores(1)
    tried, best = best_torch(core)
    ours, theirs, memory, torch_memory = [], {layout: [] for layout in best}, [], []
    for _ in range(options.rounds):
        run = Run(train("--devices", "cpu:0", epochs=options.epochs), [core]).finish()
        ours.append(run.rate())
        memory.append(run.resident_megabytes)
        for layout, choice in best.items():
            run = Run(TORCH + choice, [core]).finish()
            theirs[layout].append(run.rate())
            torch_memory.append(run.resident_megabytes)
    layout = max(theirs, key=lambda name: statistics.median(theirs[name]))
    rate, other = statistics.median(ours), statistics.median(theirs[layout])
    result["single"] = {
        "lockstep": ours,
        "torch": theirs,
        "torch_tried": tried,
        "torch_best": best[layout],
        "ratio": rate / other,
        "resident_megabytes": max(memory),
        "torch_resident_megabytes": max(torch_memory)
    }
    title("PyTorch")
    row(
        "images per second, one core, batch 64", f"{rate:,.0f}", f"{other:,.0f}",
        f"{rate / other:.2f} x",
        f"PyTorch: {layout}, Adam {best[layout][3]}; ours {spread(ours)}, theirs "
        f"{spread(theirs[layout])}"
    )
    row("maximum resident memory, MB", f"{max(memory):,.0f}", f"{max(torch_memory):,.0f}",
        f"{max(memory) / max(torch_memory):.2f} x")


def measure_replicas(options, result):
    """Two replicas on two cores against two independent runs at the same time, one on each."""
    cores = physical_cores(2)
    kinds = {"mirrored": train("--devices", "cpu:0,cpu:0", batch=2 * BATCH, epochs=options.epochs),
             "two ranks": ["mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none"] +
                          train("--devices", "cpu:0", batch=2 * BATCH, epochs=options.epochs)}
    independent, rates = [], {kind: [] for kind in kinds}
    for _ in range(options.rounds):
        pair = [Run(train("--devices", "cpu:0", epochs=options.epochs), [core]) for core in cores]
        independent.append(sum(run.finish().rate() for run in pair))
        for kind, command in kinds.items():
            rates[kind].append(Run(command, cores, threads=None).finish().rate())
    other = statistics.median(independent)
    result["replicas"] = {
        "independent": independent
    } | {
        kind: {
            "rates": values,
            "ratio": statistics.median(values) / other
        }
        for kind, values in rates.items()
    }
    title("2 x one")
    for kind, values in rates.items():
        rate = statistics.median(values)
        row(f"images per second, two cores, {kind}", f"{rate:,.0f}", f"{other:,.0f}",
            f"{rate / other:.0%}",
            f"ours {spread(values)}, two independent runs {spread(independent)}")


def measure_start(options, result):
    """From the start of the process to the end of its first step."""
    [core] = physical_cores(1)
    ours, theirs = [], []
    for _ in range(options.rounds):
        command = train("--devices", "cpu:0", "--steps", "1", "--log-every", "1", epochs=1)
        ours.append(Run(command, [core]).finish().seconds_to_first_step())
        theirs.append(
            Run(TORCH + ["--steps", "1", "--warm-up", "1"],
                [core]).finish().seconds_to_first_step())
    seconds, other = statistics.median(ours), statistics.median(theirs)
    result["start"] = {"lockstep": ours, "torch": theirs}
    title("PyTorch")
    row("seconds from start to first step", f"{seconds:.2f}", f"{other:.2f}",
        f"{seconds / other:.2f} x")


def measure_primitives(options, result):
    """The time of the oneDNN primitives of one step, compared with a whole step."""
    if not PRIMITIVES.exists():
        print(f"  {PRIMITIVES} was not built; the share of the primitives is not measured")
        return
    [core] = physical_cores(1)
    shares, details = [], []
    for _ in range(options.rounds):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        report = json.loads(
            subprocess.run([str(PRIMITIVES), "--model", "cnn", "--batch",
                            str(BATCH)], check=True, env=environment, stdout=subprocess.PIPE,
                           preexec_fn=lambda: os.sched_setaffinity(0, [core])).stdout)
        step = BATCH / Run(train("--devices", "cpu:0", epochs=options.epochs),
                           [core]).finish().rate()
        details.append(report | {"step_seconds": step})
        shares.append(report["primitive_seconds_per_step"] / step)
    middle = sorted(range(len(shares)), key=shares.__getitem__)[len(shares) // 2]
    result["primitives"] = {"shares": shares, "share": shares[middle], "runs": details}
    title("primitives")
    row("milliseconds per step, one core", f"{1e3 * details[middle]['step_seconds']:.2f}",
        f"{1e3 * details[middle]['primitive_seconds_per_step']:.2f}", f"{shares[middle]:.0%}",
        "of the speed of the oneDNN primitives alone")


PARTS = {
    "accuracy": measure_accuracy,
    "single": measure_single,
    "replicas": measure_replicas,
    "start": measure_start,
    "primitives": measure_primitives,
    "records": measure_records,
    "images": measure_images,
    "tables": measure_tables,
    "networks": measure_networks,
    "sequences": measure_sequences,
    "allreduce": measure_allreduce,
    "cluster": measure_cluster,
    "overlap": measure_overlap,
    "torch": measure_torch,
    "transport": measure_transport,
    "python": measure_python,
    "inference": measure_inference
}
# The parts of --headline.
HEADLINE = ("accuracy", "single", "torch", "records", "replicas", "start")
OF_TORCH = {"accuracy", "single", "start", "tables", "networks", "sequences", "transport", "python"}
OF_ROOT = {"cluster", "overlap", "transport", "python"}


# those that oneDNN chooses by
INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "sve",
                    "sve2")


def processor():
    """Properties of the first processor in /proc/cpuinfo and sysfs."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        values = {
            name.strip(): value.strip()
            for name, _, value in (line.partition(":")
                                   for line in lines.read().split("\n\n")[0].splitlines())
        }
    flags = values.get("flags", values.get("Features", "")).split()
    caches = {}
    for cache in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if (cache / "type").read_text(encoding="utf-8").strip() != "Instruction":
            caches["L" + (cache / "level").read_text(encoding="utf-8").strip()] = (
                cache / "size").read_text(encoding="utf-8").strip()
    return {
        "model": values.get("model name", platform.machine()),
        "family": values.get("cpu family"),
        "model_number": values.get("model"),
        "instruction_sets": [each for each in INSTRUCTION_SETS if each in flags],
        "caches": dict(sorted(caches.items()))
    }


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--headline", action="store_true")
    options = parser.parse_args()
    if options.headline:
        options.only, options.rounds = list(HEADLINE), min(options.rounds, 2)

    if os.geteuid() != 0 and (refused := OF_ROOT.intersection(options.only or ())):
        fail(
            f"--only {min(refused)} needs root to create hosts with network namespaces; try: sudo "
            "scripts/bench"
        )
    parts = options.only or [part for part in PARTS if os.geteuid() == 0 or part not in OF_ROOT]
    version = json.loads(
        subprocess.run([str(LOCKSTEP), "version", "--json"], check=True,
                       stdout=subprocess.PIPE).stdout)
    result = {
        "date": datetime.date.today().isoformat(),
        "processor": processor(),
        "processors": os.cpu_count(),
        "lockstep": version,
        "rounds": options.rounds,
        "epochs": options.epochs
    }
    of = result["processor"]
    machine = (
        f"{result['date']}, {of['model']} (family {of['family']}, model {of['model_number']}), "
        f"{result['processors']} processors, {' '.join(of['instruction_sets'])}, "
        f"{', '.join(f'{size} {level}' for level, size in of['caches'].items())}\n"
        f"{version['compiler']}, oneDNN {version['onednn']['loaded']}, {version['mpi']['loaded']}"
    )
    if OF_TORCH.intersection(parts):
        result["torch"] = importlib.metadata.version("torch")
        machine += f"\nPyTorch {result['torch']}"
    print(machine)
    if os.getloadavg()[0] > 0.5:
        print(
            f"note: the load average is {os.getloadavg()[0]:.1f}; other programs are running and "
            "will affect the figures"
        )

    for part in parts:
        PARTS[part](options, result)
    for part in PARTS.keys() - parts if not options.only else ():
        print(f"\nnot measured: {part}, which needs root")
    (ROOT / "build" / "bench.json").write_text(json.dumps(result, indent=1) + "\n")
    if options.headline:
        print(f"\n{markdown(result, machine)}")
    print("\nall figures: build/bench.json")


if __name__ == "__main__":
    main()

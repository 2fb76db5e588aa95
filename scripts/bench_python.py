"""The part of scripts/bench that measures Lockstep from Python, against Gloo: sums through
torch.distributed, steps of DDP, and the import."""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from bench_allreduce import KIB, MIB, RATE, Times, micro, mpirun, size_name
from bench_tools import BUILD, ROOT, Run, table
from bench_transport import ALL_CORES, on_hosts

SIZES = (64, KIB, 64 * KIB, MIB, 64 * MIB)
BETWEEN_HOSTS = (KIB, MIB, 64 * MIB)
RANKS = (2, 4, 8)
BACKENDS = ("lockstep", "gloo")
HOROVOD = "optimizer"  # see bench_backend.py
GROUPED = (MIB, 4 * MIB)
PACKAGE = BUILD / "python"


def backend(name, store, *arguments):
    return [sys.executable, str(ROOT / "scripts" / "bench_backend.py"), name, str(store),
            *map(str, arguments)]


def import_seconds():
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import lockstep"], check=True)
    whole = time.perf_counter() - start
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return whole - (time.perf_counter() - start)


def print_sizes(text, sizes, times):
    print(f"\n{text}, microseconds:")
    rows = []
    for size in sizes:
        own, gloo = (times.median(name, size) for name in BACKENDS)
        rows.append([size_name(size), micro(own), micro(gloo), f"{gloo / own:.1f} x"])
    table(["bytes", "lockstep", "Gloo", "Gloo / lockstep"], rows)


def measure_python(options, result):
    """Sums and steps of PyTorch with the backend "lockstep" and with Gloo."""
    os.environ["PYTHONPATH"] = str(PACKAGE)
    within, between = {ranks: Times() for ranks in RANKS}, Times()
    models, imports, grouped = {}, [], Times()
    for round_ in range(options.rounds):
        imports.append(import_seconds())
        for name in (*BACKENDS, HOROVOD):
            for ranks, times in within.items():
                with tempfile.TemporaryDirectory() as folder:
                    more = ("--pin", "--models") if ranks == 2 else ()
                    if name == HOROVOD and ranks > 2:
                        continue
                    sizes = (*SIZES, 4 * MIB) if name == HOROVOD else SIZES
                    command = backend(name, pathlib.Path(folder, "store"), *more, *sizes)
                    run = Run(mpirun(ranks, command, []), ALL_CORES).finish()
                    for _, event in run.events:
                        if event.get("tensors", 1) > 1:
                            grouped.add(event["route"], event["bytes"], event["microseconds"])
                        elif "bytes" in event:
                            times.add(event["route"], event["bytes"], event["microseconds"])
                        else:
                            key = event["model"], event["route"]
                            models.setdefault(key, []).append(event["milliseconds"])
            if name == HOROVOD:
                continue
            store = f"tcp://10.77.0.1:{29_500 + round_ * 2 + BACKENDS.index(name)}"
            between.add_run(on_hosts(2, backend(name, store, *BETWEEN_HOSTS), RATE))
    result["python"] = {"within a host": {ranks: times.all for ranks, times in within.items()},
                        "grouped": grouped.all,
                        "hosts": between.all, "import": imports,
                        "models": {f"{model} {route}": values
                                   for (model, route), values in models.items()}}
    for ranks, times in within.items():
        print_sizes(f"{ranks} ranks, {'each on a core' if ranks == 2 else 'on two cores'}", SIZES,
                    times)
    print_sizes(f"2 hosts with a link of {RATE}", BETWEEN_HOSTS, between)
    print("\nlockstep.torch by the names of Horovod, 2 ranks, microseconds:")
    one = within[2]
    table(["bytes", "one tensor", "64 tensors"], [[
        size_name(size), micro(one.median(HOROVOD, size)),
        micro(grouped.median(HOROVOD, size)) if size in GROUPED else ""]
        for size in sorted({*SIZES, *GROUPED})])
    print("\na step of DDP, 2 ranks, milliseconds:")
    medians = {key: statistics.median(values) for key, values in models.items()}
    table(["model", "lockstep", "optimizer", "Gloo", "no communication", "Gloo / lockstep"], [[
        model, f"{(own := medians[model, 'lockstep']):.2f}", f"{medians[model, HOROVOD]:.2f}",
        f"{(gloo := medians[model, 'gloo']):.2f}", f"{medians[model, 'none']:.2f}",
        f"{gloo / own:.2f} x"] for model in dict.fromkeys(model for model, _ in medians)])
    print(f"\nimport lockstep: {statistics.median(imports):.3f} s")

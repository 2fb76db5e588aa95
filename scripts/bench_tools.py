"""Shared by the parts of scripts/bench: runs as child processes, cores, rows of the tables."""

import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
LOCKSTEP = BUILD / "apps" / "lockstep" / "lockstep"


def fail(message):
    sys.exit(f"scripts/{pathlib.Path(sys.argv[0]).stem}: error: {message}")


class Run:
    """A training as a child process on given cores; its JSON events, with the seconds since it was
    started."""

    def __init__(self, command, cores, threads=1):
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        if threads:
            environment["OMP_NUM_THREADS"] = str(threads)
        self.command = command
        self.errors = tempfile.TemporaryFile("w+")
        self.started = time.perf_counter()
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, text=True,
                                        stdout=subprocess.PIPE, stderr=self.errors,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cores))

    def finish(self):
        """Waits for the end; the events as (seconds since the start, event). Exits if the training
        failed."""
        self.events = []
        for line in self.process.stdout:
            self.events.append((time.perf_counter() - self.started, json.loads(line)))
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode:
            self.errors.seek(0)
            fail(f"exit status {self.process.returncode} from {' '.join(self.command)}\n" +
                 self.errors.read())
        # The maximum over the child's life, including this process before its exec: so this program
        # imports little.
        self.resident_megabytes = usage.ru_maxrss * 1024 / 1e6
        return self

    def rate(self):
        """Samples per second of the last epoch: the epochs before it are a warm-up."""
        return [event for _, event in self.events if event["event"] == "epoch"
                ][-1]["samples_per_second"]

    def seconds_to_first_step(self):
        return next(seconds for seconds, event in self.events if event["event"] == "step")


def on_cores(command, cores):
    """The last line of JSON that a command prints, run with a thread on each of the cores."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(len(cores)), TF_CPP_MIN_LOG_LEVEL="2")
    lines = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, env=environment,
                           preexec_fn=lambda: os.sched_setaffinity(0, cores)).stdout
    return json.loads(lines.splitlines()[-1])


def physical_cores(count):
    """Processors of this process's affinity on `count` different cores."""
    chosen, taken = [], set()
    for processor in sorted(os.sched_getaffinity(0)):
        siblings = pathlib.Path(
            f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        core = siblings.read_text() if siblings.exists() else str(processor)
        if core not in taken:
            taken.add(core)
            chosen.append(processor)
    if len(chosen) < count:
        fail(f"expected {count} cores for this part, got {len(chosen)}")
    return chosen[:count]


PRIMITIVES = {"convolution", "inner_product",
              "matmul"}  # kinds whose operations --profile counts


def floor_of_step(command, steps_per_epoch, cores):
    """The milliseconds of a step of a training of at least 10 steps, and those of its floor: the
    same convolutions and products of oneDNN alone, as it times them in such a training, and what
    all else needs at the speed of a core (--profile)."""
    with tempfile.TemporaryDirectory() as directory:
        profile = pathlib.Path(directory) / "profile.json"
        Run([*command, "--profile", str(profile)], cores).finish()
        *pieces, step = [
            json.loads(line) for line in profile.read_text(encoding="utf-8").splitlines()
        ]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True,
                           env=dict(os.environ, ONEDNN_VERBOSE="1", OMP_NUM_THREADS="1"),
                           preexec_fn=lambda: os.sched_setaffinity(0, cores)).stdout.splitlines()
    times = collections.defaultdict(list)  # by primitive
    for line in lines:
        words = line.split(",")
        if words[0] == "onednn_verbose" and "exec" in words and PRIMITIVES.intersection(words):
            times[",".join(words[:-1])].append(float(words[-1]))
    steps = int(command[command.index("--epochs") + 1]) * steps_per_epoch * len(cores)
    primitives = sum(statistics.median(each) * len(each) for each in times.values()) / steps
    others = sum(piece["floor_ms"]
                 for piece in pieces
                 if not piece["flop"] or "attention " in piece["name"])
    return {
        "ms": step["ms"],
        "primitives_ms": primitives,
        "others_ms": others,
        "peak_share": step["share"]
    }


def supports(precision):
    """Whether this processor trains in it: without AVX-512 the program refuses bfloat16."""
    command = [
        LOCKSTEP, "train", "--checkpoint-dir", "none", "--model", "mlp:8", "--data",
        "synthetic-images:8x8x1,2,8", "--global-batch", "8", "--steps", "1", "--precision",
        precision
    ]
    return subprocess.run(command, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def spread(values):
    return f"{min(values):,.0f} to {max(values):,.0f}"


def row(name, lockstep, other, ratio, note=""):
    print(f"  {name:<44}{lockstep:>12}{other:>12}{ratio:>9}   {note}", flush=True)


def title(other):
    print()
    row("", "Lockstep", other, "ratio")


def compare(name, values, others, unit, digits, note=""):
    """A row of medians, both in `unit`, and their ratio."""
    middle, other = statistics.median(values), statistics.median(others)
    row(name, f"{middle / unit:,.{digits}f}", f"{other / unit:,.{digits}f}",
        f"{middle / other:.2f} x", f"ours {spread(values)}, theirs {spread(others)}{note}")


def table(head, rows):
    """Columns as wide as they need to be, numbers to the right; a cell beyond the head is a
    note."""
    widths = [max(len(cells[column]) for cells in [head, *rows]) for column in range(len(head))]
    for cells in [head, *rows]:
        aligned = [cell.rjust(width) for cell, width in zip(cells, widths)]
        print("  " + "  ".join(aligned + cells[len(head):]), flush=True)

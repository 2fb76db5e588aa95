"""Implementation of scripts/gpu_check, run if there is a GPU; see scripts/gpu_check for the
options."""

import argparse
import concurrent.futures
import datetime
import json
import math
import os
import pathlib
import platform
import shutil
import subprocess
import sys

from gpu_find import (
    BUILD,
    FOLDER,
    HEADERS,
    PACK,
    ROOT,
    TESTS,
    Cuda,
    Programs,
    environment_of,
    missing_from_system,
)
from gpu_next import NEXT, Next
from gpu_several import SEVERAL, Several
from gpu_speed import Speed
from gpu_steps import Failed, Steps
from gpu_tools import (
    architecture,
    exit_status,
    gpu_limits,
    markdown,
    parse_gpus,
    table,
    test_counts,
)
from gpu_trainings import Trainings

TARGETS = [
    "lockstep_program", "lockstep_bench_attention", "lockstep_bench_convolutions",
    "lockstep_bench_update", "lockstep_bench_jpeg_records", *TESTS.values()
]
# The steps of --only in the order in which they run, and the seconds that each has at most.
GROUPS = {
    "tests": 180,
    "resnet50": 360,
    "conv": 150,
    "torch": 210,
    "attention": 180,
    "cifar": 60,
    "adam": 45,
    "cnn": 45,
    "trainings": 120,
    "memcheck": 120,
    "racecheck": 60,
    "jpeg": 90
}
# The lists of steps: all of them, --next and --several; and the minutes that each has.
PLANS = {
    "all": GROUPS,
    "next": {
        name: seconds
        for name, seconds, _ in NEXT
    },
    "several": {
        name: seconds
        for name, seconds, _ in SEVERAL
    }
}
MINUTES = {"all": 28, "next": 9, "several": 5}
FACTS_SECONDS, BUILD_SECONDS = 30, 500
SHARDS = {"model": 8}  # processes that share the tests of a module


class Check:
    def __init__(self, options):
        self.options = options
        self.started = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.steps = Steps(options.out, dict(os.environ), 60 * options.minutes, self.save)
        self.gpus = parse_gpus(
            subprocess.run([
                "nvidia-smi", "--query-gpu=name,uuid,driver_version,memory.total,compute_cap",
                "--format=csv,noheader,nounits"
            ], capture_output=True, text=True, check=False).stdout)
        self.programs = Programs(options.prebuilt)
        self.cuda = self.variables = None
        self.versions = {"python": platform.python_version(), "libc": " ".join(platform.libc_ver())}
        self.help = ""

    # ---- Environment and build

    def find(self):
        """What this machine has: CUDA and its libraries, and the libraries that Lockstep is built
        from."""
        self.cuda = Cuda(dict(os.environ), FOLDER / "links")
        self.versions |= self.cuda.versions
        self.steps.log(
            subprocess.run(["nvidia-smi", "-q"], capture_output=True, text=True,
                           check=False).stdout)
        if self.programs.prebuilt:
            self.steps.environment = self.programs.environment()
            glibc = (self.programs.prebuilt / "glibc").read_text().strip()
            note = f"built elsewhere, with glibc {glibc}"
        else:
            note = self.find_to_build()
        # A separate cache: earlier measurements are used only with --cache.
        self.steps.environment["LOCKSTEP_CACHE_DIR"] = str(self.options.out)
        if self.options.cache not in (None, self.options.out / "convolutions.json"):
            shutil.copyfile(self.options.cache, self.options.out / "convolutions.json")
        return note

    def find_to_build(self):
        missing = missing_from_system(dict(os.environ))
        pack = PACK if missing and PACK.is_dir() else None
        self.steps.environment, self.variables = environment_of(self.cuda, pack)
        if self.cuda.nvcc is None:
            raise Failed("no nvcc on the PATH, in /usr/local/cuda*, or among Python's wheels")
        for name in ("cudnn", "cublasLt"):
            if name in self.cuda.missing:
                raise Failed(
                    f"{name} is missing: neither beside {self.cuda.nvcc}, nor in /usr, nor among "
                    "Python's wheels"
                )
        if missing and pack is None:
            raise Failed(
                f"missing here: {', '.join(missing)}; scripts/gpu_pack on a machine with a network "
                "packs them"
            )
        source = "scripts/gpu_pack's" if pack else "this system's"
        nccl = self.cuda.versions.get("nccl", "absent")
        return (f"nvcc {self.cuda.nvcc}, cuDNN {self.cuda.versions['cudnn']}, NCCL {nccl}; "
                f"{len(HEADERS) - 2} libraries are {source}")

    def configure(self):
        variables = {
            "CMAKE_BUILD_TYPE": "Release",
            "LOCKSTEP_CUDA": "ON",
            "LOCKSTEP_TORCH": "OFF",
            "LOCKSTEP_WERROR": "OFF",
            **self.variables, "LOCKSTEP_CUDA_ARCHITECTURES": architecture(self.gpus[0]
                                                                          ["compute_capability"])
        }
        self.steps.checked(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja",
                            *[f"-D{name}={value}" for name, value in variables.items()]], 90)
        return f"for compute capability {self.gpus[0]['compute_capability']}"

    def build(self):
        self.steps.checked([
            "cmake", "--build", BUILD, "-j", self.options.jobs, "--target", *TARGETS
        ], BUILD_SECONDS)

    def version(self):
        """The versions that the program was built with and that it loads here."""
        version = self.steps.checked([self.programs.path("lockstep"), "version", "--json"], 30)
        self.versions["lockstep"] = json.loads(version.text)
        self.help = self.steps.checked([self.programs.path("lockstep"), "train", "--help"], 30).text
        return self.versions["lockstep"].get("version")

    # ---- Tests

    def test(self, module, tests="*"):
        """Runs a test program, or several parts of it at once: most of the time cuDNN prepares
        algorithms, on one core each. `tests` is gtest's filter."""
        shards = min(SHARDS.get(module, 1), os.cpu_count())

        def run(shard):
            environment = dict(self.steps.environment, CUDNN_LOGLEVEL_DBG="1",
                               CUDNN_LOGDEST_DBG="stderr", GTEST_TOTAL_SHARDS=str(shards),
                               GTEST_SHARD_INDEX=str(shard))
            return self.steps.run([
                self.programs.path(TESTS[module]), "--gtest_brief=1", f"--gtest_filter={tests}"
            ], 150, environment=environment)
        with concurrent.futures.ThreadPoolExecutor(shards) as pool:
            outputs = list(pool.map(run, range(shards)))
        each = [test_counts(output.text) for output in outputs]
        counts = {kind: sum(one[kind] for one in each) for kind in each[0]}
        if wrong := [output for output in outputs if output.status != 0]:
            raise Failed(
                f"status {wrong[0].status}, {counts['failed']} tests failed, {counts['passed']} "
                f"passed; {wrong[0].last_words()}"
            )
        if counts["passed"] == 0:
            raise Failed(f"no test ran; {counts['skipped']} were skipped")
        return f"{counts['passed']} passed, {counts['skipped']} skipped", counts

    # ---- All of it

    def run_all(self):
        steps, started = self.steps, ["start of the program"]
        steps.begin("facts", FACTS_SECONDS)
        steps.step("find CUDA", self.find)
        if not self.programs.prebuilt:
            steps.begin("build", BUILD_SECONDS)
            steps.step("configure", self.configure, ["find CUDA"])
            steps.step("build", self.build, ["configure"])
        steps.step(started[0], self.version, ["find CUDA" if self.programs.prebuilt else "build"])
        plan = {
            "all": self.everything,
            "next": Next(self).actions,
            "several": Several(self).actions
        }[self.options.plan](started)
        groups = {
            name: seconds
            for name, seconds in PLANS[self.options.plan].items()
            if name in self.options.only
        }
        for i, (name, seconds) in enumerate(groups.items()):
            steps.begin(name, seconds if i +
                        1 < len(groups) else math.inf)  # the last one has what the others left
            plan[name]()

    def everything(self, started):
        """What each of GROUPS runs."""
        steps, speed, trainings = self.steps, Speed(self), Trainings(self)
        return {
            "tests": lambda: [
                steps.step(f"tests of {module}", lambda m=module: self.test(m), started)
                for module in TESTS
            ],
            "resnet50": lambda: speed.run_resnet50(started),
            "conv": lambda: steps.step("speed of convolutions", speed.convolutions, started),
            "torch": lambda: speed.run_torch(started),
            "attention": lambda: speed.run_attention(started),
            "cifar": lambda: steps.step("CIFAR-10 to 94 %", speed.cifar, started),
            "adam": lambda: steps.step("speed of adam, 100 million parameters", speed.adam, started
                                       ),
            "cnn": lambda: steps.step("speed of cnn", speed.cnn, started),
            "trainings": lambda: trainings.run_all(started),
            "memcheck": lambda: trainings.run_sanitizer("memcheck", started),
            "racecheck": lambda: trainings.run_sanitizer("racecheck", started),
            "jpeg": lambda: steps.step("speed of resnet50 from JPEG records", speed.jpeg, started),
        }

    def for_docs(self, rows):
        """The results in the form of docs/gpu.md."""
        gpu = self.gpus[0]
        versions = {
            name: value.get("version") if isinstance(value, dict) else value
            for name, value in self.versions.items()
        }
        summary = ", ".join(f"{name} {value}" for name, value in versions.items()
                         if value != "unknown")
        head = (f"{self.started[:10]}, {len(self.gpus)} x {gpu['name']} ({gpu['memory_mib']} MiB), "
                f"driver {gpu['driver']}; {summary}.")
        cells = [[row["step"], row["result"], row["seconds"], row["note"]] for row in rows]
        return f"{head}\n\n{markdown(['step', 'result', 'seconds', ''], cells)}\n"

    def save(self):
        """After each step: a call may be ended at any time."""
        rows = self.steps.rows
        result = {
            "date": self.started,
            "gpus": self.gpus,
            "limits": gpu_limits(self.gpus[0]["name"]),
            "machine": {
                "system": platform.platform(),
                "processors": os.cpu_count()
            },
            "versions": self.versions,
            "plan": self.options.plan,
            "only": self.options.only,
            "quick": self.options.quick,
            "rehearsal": self.options.rehearse,
            "steps": rows,
            "not_run": {
                row["step"]: row["note"]
                for row in rows
                if row["result"] == "not run"
            }
        }
        (self.options.out /
         "results.json").write_text(json.dumps(result, indent=1, default=str) + "\n")
        (self.options.out / "results.md").write_text(self.for_docs(rows))

    def report(self):
        rows, gpu = self.steps.rows, self.gpus[0]
        print("\n" + table(["step", "result", "seconds", "note"],
                           [[row["step"], row["result"], row["seconds"], row["note"]]
                            for row in rows]))
        count = {
            kind: sum(1
                      for row in rows
                      if row["result"] == kind)
            for kind in ("passed", "failed", "not run")
        }
        print(
            f"\n{gpu['name']}, driver {gpu['driver']}: {count['passed']} steps passed, "
            f"{count['failed']} failed, {count['not run']} not run; all figures: "
            f"{self.options.out}/results.json; for docs/gpu.md: {self.options.out}/results.md"
        )
        return exit_status(rows)


def main():
    parser = argparse.ArgumentParser(prog="scripts/gpu_check")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--prebuilt", type=pathlib.Path)
    parser.add_argument("--cache", type=pathlib.Path)
    parser.add_argument("--plan", choices=PLANS, default="all")
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--jobs", default=str(os.cpu_count()))
    options = parser.parse_args()
    options.only = options.only or list(PLANS[options.plan])
    options.minutes = options.minutes or MINUTES[options.plan]
    for name in ("log.txt", "results.json", "results.md", "convolutions.json"):
        if options.out / name != options.cache:
            (options.out / name).unlink(missing_ok=True)
    check = Check(options)
    if not check.gpus:
        print("scripts/gpu_check: error: needs a GPU; nvidia-smi describes none", file=sys.stderr)
        return 5
    for gpu in check.gpus:
        print(f"{gpu['name']}, {gpu['memory_mib']} MiB, driver {gpu['driver']}, {gpu['uuid']}")
    try:
        check.run_all()
    finally:
        check.steps.stop()
        status = check.report()
    return status


if __name__ == "__main__":
    sys.exit(main())

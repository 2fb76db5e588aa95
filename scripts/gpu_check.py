"""Implementation of scripts/gpu_check, run if there is a GPU; see scripts/gpu_check for the options."""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import shutil
import subprocess
import sys

import gpu_speed
from gpu_find import BUILD, FOLDER, HEADERS, LOCKSTEP, PACK, ROOT, Cuda, environment_of, missing_from_system
from gpu_steps import Failed, NotRun, Steps
from gpu_tools import architecture, exit_status, gpu_limits, loss_difference, markdown, parse_gpus, table, test_counts, training_of

# Test programs that need a GPU, by module: those of lockstep_gpu_test(). A build without NCCL has no NCCL tests.
TESTS = {"device": "device_on_gpu_tests", "allreduce": "allreduce_on_gpu_tests", "model": "model_on_gpu_tests",
         "strategy": "strategy_on_gpu_tests"}
TARGETS = ["lockstep_program", "lockstep_bench_update", "lockstep_bench_jpeg_records", *TESTS.values()]

# Small enough for compute-sanitizer, which makes kernels tens of times slower: (name, command).
SANITIZED = [
    ("all-reduce", [BUILD / "tests/allreduce/allreduce_on_gpu_tests", "--gtest_filter=GpuWork.*:OnAGpu.*"]),
    ("training", [LOCKSTEP, "train", "--model", "cnn", "--data", "synthetic:28x28x1:10:48", "--global-batch", "16", "--steps", "3",
                  "--devices", "gpu:0", "--no-graph"]),
    ("training with graphs", [LOCKSTEP, "train", "--model", "cnn", "--data", "synthetic:28x28x1:10:48", "--global-batch", "16", "--steps",
                              "6", "--devices", "gpu:0"]),
    ("two replicas", [LOCKSTEP, "train", "--model", "mlp", "--data", "synthetic:8x8x1:4:48", "--global-batch", "15", "--steps", "3",
                      "--devices", "gpu:0,gpu:0", "--no-graph"]),
]
# A batch whose tensors each fit 32-bit indices, and together exceed a GPU's memory.
TOO_LARGE = ["--model", "resnet50", "--data", "synthetic:224x224x3:1000:2600", "--global-batch", "2600", "--steps", "1", "--deterministic",
             "--devices", "gpu:0"]
SANITIZER_KINDS = {"memcheck": ["--leak-check", "no"], "racecheck": []}

# Twenty steps of these: (network, data, global batch, largest relative difference of float32 losses that rounding makes).
NETWORKS = {"cnn": ("synthetic:28x28x1:10:1280", 64, 1e-4), "resnet18": ("synthetic-images:32x32x3:10:640", 32, 5e-3)}
ROUNDED = {"bfloat16": 0.1, "float16": 0.05}  # of losses, against float32
TRAIN_STEPS = 20


class Check:
    def __init__(self, options):
        self.options = options
        self.steps = Steps(FOLDER, dict(os.environ), 60 * options.minutes)
        self.gpus = parse_gpus(subprocess.run(
            ["nvidia-smi", "--query-gpu=name,uuid,driver_version,memory.total,compute_cap", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, check=False).stdout)
        self.cuda = self.variables = None
        self.versions = {}
        self.trainings = {}
        self.help = ""

    # ---- Environment and build

    def find(self):
        self.cuda = Cuda(dict(os.environ), FOLDER / "links")
        missing = missing_from_system(dict(os.environ))
        pack = PACK if missing and PACK.is_dir() else None
        self.steps.environment, self.variables = environment_of(self.cuda, pack)
        # A separate cache, so that everything is measured again.
        self.steps.environment["LOCKSTEP_CACHE_DIR"] = str(FOLDER / "cache")
        shutil.rmtree(FOLDER / "cache", ignore_errors=True)
        self.versions = dict(self.cuda.versions, python=platform.python_version())
        if self.cuda.nvcc is None:
            raise Failed("no nvcc on the PATH, in /usr/local/cuda*, or among Python's wheels")
        for name in ("cudnn", "cublasLt"):
            if name in self.cuda.missing:
                raise Failed(f"{name} is missing: neither beside {self.cuda.nvcc}, nor in /usr, nor among Python's wheels")
        if missing and pack is None:
            raise Failed(f"missing here: {', '.join(missing)}; scripts/gpu_pack on a machine with a network packs them")
        source = "scripts/gpu_pack's" if pack else "this system's"
        nccl = self.cuda.versions.get("nccl", "absent")
        return f"nvcc {self.cuda.nvcc}, cuDNN {self.cuda.versions['cudnn']}, NCCL {nccl}; {len(HEADERS) - 2} libraries are {source}"

    def configure(self):
        variables = {"CMAKE_BUILD_TYPE": "Release", "LOCKSTEP_CUDA": "ON", "LOCKSTEP_WERROR": "OFF", **self.variables,
                     "LOCKSTEP_CUDA_ARCHITECTURES": architecture(self.gpus[0]["compute_capability"])}
        self.steps.checked(["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja",
                            *[f"-D{name}={value}" for name, value in variables.items()]], 90)
        return f"for compute capability {self.gpus[0]['compute_capability']}"

    def build(self):
        self.steps.checked(["cmake", "--build", BUILD, "-j", self.options.jobs, "--target", *TARGETS], 420)
        version = self.steps.checked([LOCKSTEP, "version", "--json"], 30)
        self.versions["lockstep"] = json.loads(version.text)
        self.help = self.steps.checked([LOCKSTEP, "train", "--help"], 30).text

    # ---- Tests

    def test(self, module):
        output = self.steps.run([BUILD / "tests" / module / TESTS[module]], 120)
        counts = test_counts(output.text)
        if output.status != 0:
            raise Failed(f"status {output.status}, {counts['failed']} tests failed, {counts['passed']} passed; {output.last_words()}")
        if counts["passed"] == 0:
            raise Failed(f"no test ran; {counts['skipped']} were skipped")
        return f"{counts['passed']} passed, {counts['skipped']} skipped", counts

    # ---- Trainings

    def train(self, network="cnn", devices="gpu:0", ranks=1, more=()):
        """Twenty steps; each training is run once and its result is reused."""
        for option in more:
            if option.startswith("--") and option not in self.help:
                raise NotRun(f"this version has no {option}")
        key = (network, devices, ranks, tuple(more))
        if key not in self.trainings:
            data, batch, _ = NETWORKS[network]
            launcher = ["mpirun", "-np", ranks, "--oversubscribe", "--bind-to", "none"] if ranks > 1 else []
            output = self.steps.checked(
                [*launcher, LOCKSTEP, "train", "--model", network, "--data", data, "--global-batch", batch, "--steps", TRAIN_STEPS,
                 "--epochs", "10", "--learning-rate", "0.01", "--optimizer", "sgd", "--log-every", "1", "--log-format", "json",
                 "--devices", devices, *more], 60)
            training = training_of(output.text)
            if len(training["losses"]) + training["skipped"] != TRAIN_STEPS:
                raise Failed(f"reported {len(training['losses'])} losses, not {TRAIN_STEPS}")
            self.trainings[key] = training
        return self.trainings[key]

    def same_losses(self, one, other, limit):
        difference = loss_difference(one["losses"], other["losses"])
        figures = {"largest_relative_difference": difference if math.isfinite(difference) else None, "limit": limit, "last_losses": [one["losses"][-1:], other["losses"][-1:]]}
        if difference > limit:
            error = Failed(f"losses differ by up to {difference:.2g}, more than {limit:g}")
            error.figures = figures
            raise error
        return f"losses differ by at most {difference:.1e} (limit {limit:g})", figures

    def like_the_cpu(self, network):
        return self.same_losses(self.train(network), self.train(network, "cpu:0"), NETWORKS[network][2])

    def like_one_gpu(self, network, devices, ranks=1, more=(), both=()):
        return self.same_losses(self.train(network, devices, ranks, [*more, *both]), self.train(network, more=both), NETWORKS[network][2])

    def in_precision(self, precision):
        training = self.train(more=["--precision", precision])
        if training["skipped"] > TRAIN_STEPS // 2:
            raise Failed(f"{training['skipped']} of {TRAIN_STEPS} steps were skipped")
        if training["skipped"]:
            return f"{training['skipped']} steps were skipped by dynamic loss scaling", {"skipped": training["skipped"]}
        return self.same_losses(training, self.train(), ROUNDED[precision])

    def same_bits(self, one, other):
        hashes = [training["hash"] for training in (one, other)]
        if not hashes[0] or hashes[0] != hashes[1]:
            raise Failed(f"parameter hashes differ: {hashes[0]} and {hashes[1]}")
        return f"parameter hash {hashes[0]} both times"

    def twice(self, more):
        first = self.train(more=more)
        self.trainings.pop(("cnn", "gpu:0", 1, tuple(more)))
        return self.same_bits(first, self.train(more=more))

    def all_gpus(self):
        if len(self.gpus) < 2:
            raise NotRun("there is only one GPU")
        return self.like_one_gpu("cnn", "gpu:all")

    def rank_per_gpu(self):
        if len(self.gpus) < 2:
            raise NotRun("there is only one GPU")
        return self.like_one_gpu("cnn", "auto", ranks=2)

    def refuses(self, arguments, needed, variables=None):
        """Checks that a training with `arguments`, in an environment with `variables`, ends with the status of device errors and names what is needed."""
        output = self.steps.run([LOCKSTEP, "train", *arguments], 100, environment=dict(self.steps.environment, **(variables or {})))
        if output.status != 5 or needed not in output.errors:
            raise Failed(f"expected status 5 and '{needed}', got status {output.status}: {output.last_words()}")
        return output.last_words()

    # ---- compute-sanitizer

    def sanitize(self, kind, command):
        command = [part for part in command if part != "--no-graph" or part in self.help]
        beside = self.cuda.nvcc.resolve().parent.parent / "compute-sanitizer"
        tool = shutil.which("compute-sanitizer", path=os.pathsep.join([self.steps.environment["PATH"], str(beside)]))
        if tool is None:
            raise NotRun("there is no compute-sanitizer")
        output = self.steps.run([tool, "--tool", kind, *SANITIZER_KINDS[kind], "--error-exitcode", "97", *command], 45)
        if "Device not supported" in output.text + output.errors:
            raise NotRun("compute-sanitizer does not support this device")
        if output.status != 0:
            summary = [line for line in output.text.splitlines() if "SUMMARY" in line]
            raise Failed(f"status {output.status}: {summary[-1].strip('= ') if summary else output.last_words()}")
        return "no finding"

    # ---- All of it

    def run_all(self):
        step = self.steps.step
        step("find CUDA", self.find)
        step("configure", self.configure, ["find CUDA"])
        step("build", self.build, ["configure"])
        built = ["build"]
        for module in TESTS:
            step(f"tests of {module}", lambda m=module: self.test(m), built)
        self.run_trainings(built)
        self.run_sanitizer("memcheck", built)
        gpu_speed.measure(self, built)
        if not self.options.quick:
            self.run_sanitizer("racecheck", built)

    def run_sanitizer(self, kind, built):
        for name, command in SANITIZED:
            self.steps.step(f"{kind}, {name}", lambda c=command: self.sanitize(kind, c), built)

    def run_trainings(self, built):
        step = self.steps.step
        one = "one replica"
        step(one, lambda: f"loss {self.train()['losses'][0]:.4f} to {self.train()['losses'][-1]:.4f}", built)
        step("GPU and CPU", lambda: self.like_the_cpu("cnn"), built)
        step("GPU and CPU, resnet18", lambda: self.like_the_cpu("resnet18"), built)
        step("two logical replicas", lambda: self.like_one_gpu("cnn", "gpu:0,gpu:0"), built)
        step("three logical replicas", lambda: self.like_one_gpu("cnn", "gpu:0,gpu:0,gpu:0"), built)
        step("synchronized batch normalization",
             lambda: self.like_one_gpu("resnet18", "gpu:0,gpu:0", more=["--bn", "sync"]), built)
        step("two ranks on one GPU, by way of shared memory",
             lambda: self.like_one_gpu("cnn", "gpu:0", ranks=2, more=["--share-gpus"]), built)
        step("all GPUs of one process", self.all_gpus, built)
        step("a rank for each GPU", self.rank_per_gpu, built)
        exact = ["--deterministic"]
        step("deterministic twice", lambda: self.twice(exact), built)
        step("graph on and off", lambda: self.same_bits(self.train(more=exact), self.train(more=[*exact, "--no-graph"])), built)
        for precision in ROUNDED:
            step(precision, lambda p=precision: self.in_precision(p), built)
        step("TF32", lambda: self.same_losses(self.train(more=["--tf32"]), self.train(), 2e-2), built)
        small = ["--model", "cnn", "--data", NETWORKS["cnn"][0], "--devices"]
        absent = f"gpu:{len(self.gpus)}"
        step("refuses a GPU that is not there", lambda: self.refuses([*small, absent], absent), built)
        step("refuses a GPU where none is shown", lambda: self.refuses([*small, "gpu:0"], 'CUDA_VISIBLE_DEVICES is ""', {"CUDA_VISIBLE_DEVICES": ""}),
             built)
        step("refuses a batch that does not fit", lambda: self.refuses(TOO_LARGE, "[memory] expected "), built)

    def for_docs(self, rows):
        """The results in the form of docs/gpu.md."""
        gpu = self.gpus[0]
        versions = {name: value.get("version") if isinstance(value, dict) else value for name, value in self.versions.items()}
        told = ", ".join(f"{name} {value}" for name, value in versions.items() if value != "unknown")
        head = f"{datetime.date.today().isoformat()}, {len(self.gpus)} x {gpu['name']} ({gpu['memory_mib']} MiB), driver {gpu['driver']}; {told}."
        cells = [[row["step"], row["result"], row["seconds"], row["note"]] for row in rows]
        return f"{head}\n\n{markdown(['step', 'result', 'seconds', ''], cells)}\n"

    def report(self):
        rows = self.steps.rows
        gpu = self.gpus[0]
        print("\n" + table(["step", "result", "seconds", "note"], [[row["step"], row["result"], row["seconds"], row["note"]] for row in rows]))
        result = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "gpus": self.gpus,
                  "limits": gpu_limits(gpu["name"]), "machine": {"system": platform.platform(), "processors": os.cpu_count()},
                  "versions": self.versions, "quick": self.options.quick, "steps": rows,
                  "not_run": {row["step"]: row["note"] for row in rows if row["result"] == "not run"}}
        self.options.out.parent.mkdir(parents=True, exist_ok=True)
        self.options.out.write_text(json.dumps(result, indent=1, default=str) + "\n")
        self.options.out.with_suffix(".md").write_text(self.for_docs(rows))
        count = {kind: sum(1 for row in rows if row["result"] == kind) for kind in ("passed", "failed", "not run")}
        print(f"\n{gpu['name']}, driver {gpu['driver']}: {count['passed']} steps passed, {count['failed']} failed, "
              f"{count['not run']} not run; all figures: {self.options.out}; for docs/gpu.md: {self.options.out.with_suffix('.md')}")
        return exit_status(rows)


def main():
    parser = argparse.ArgumentParser(prog="scripts/gpu_check")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--jobs", default=str(os.cpu_count()))
    check = Check(parser.parse_args())
    if not check.gpus:
        print("scripts/gpu_check: error: needs a GPU; nvidia-smi describes none", file=sys.stderr)
        return 5
    for gpu in check.gpus:
        print(f"{gpu['name']}, {gpu['memory_mib']} MiB, driver {gpu['driver']}, {gpu['uuid']}")
    for old in FOLDER.glob("*.log"):
        old.unlink()
    try:
        check.run_all()
    finally:
        status = check.report()
    return status


if __name__ == "__main__":
    sys.exit(main())

"""The short trainings of scripts/gpu_check: one GPU against the CPU, against several replicas,
against itself; and compute-sanitizer."""

import math
import os
import pathlib
import shutil
import tempfile

from gpu_steps import Failed, NotRun
from gpu_tools import loss_difference, training_of

# Twenty steps of these: (network, data, global batch, learning rate, largest relative difference of
# float32 losses that rounding makes). At its first weights, the gradient of resnet18 differs by
# 1e-3 between float32 and float64 (in PyTorch): a larger rate amplifies that.
NETWORKS = {
    "cnn": ("synthetic:28x28x1,10,1280", 64, 0.01, 1e-4),
    "resnet18": ("synthetic-images:32x32x3,10,640", 32, 0.001, 5e-3)
}
REHEARSED = {
    "cnn": ("synthetic:12x12x1,10,80", 4),
    "resnet18": ("synthetic-images:32x32x3,10,640", 32)
}
ROUNDED = {"bfloat16": 0.1, "float16": 0.05}  # tolerance of losses relative to float32
TRAIN_STEPS = 20

# Small enough for compute-sanitizer, which makes kernels tens of times slower: (name, program,
# arguments).
SANITIZED = [
    ("all-reduce", "allreduce_on_gpu_tests", ["--gtest_filter=GpuWork.*:OnAGpu.*"]),
    ("training", "lockstep", [
        "train", "--checkpoint-dir", "none", "--model", "cnn", "--data", "synthetic:28x28x1,10,48",
        "--global-batch", "16", "--steps", "3", "--devices", "gpu:0", "--no-graph"
    ]),
    ("training with graphs", "lockstep", [
        "train", "--checkpoint-dir", "none", "--model", "cnn", "--data", "synthetic:28x28x1,10,48",
        "--global-batch", "16", "--steps", "6", "--devices", "gpu:0"
    ]),
    ("two replicas", "lockstep", [
        "train", "--checkpoint-dir", "none", "--model", "mlp", "--data", "synthetic:8x8x1,4,48",
        "--global-batch", "15", "--steps", "3", "--devices", "gpu:0,gpu:0", "--no-graph"
    ]),
]
SANITIZER_KINDS = {"memcheck": ["--leak-check", "no"], "racecheck": []}
# A batch whose tensors each fit 32-bit indices, and together exceed a GPU's memory.
TOO_LARGE = [
    "--model", "resnet50", "--data", "synthetic:224x224x3,1000,2600", "--global-batch", "2600",
    "--steps", "1", "--deterministic", "--devices", "gpu:0"
]
# Ranks of one host that cannot share memory reduce over a ring: each in a PID namespace of its own
# or, without the right to make one, unable to make files. Their messages go over TCP.
NAMESPACES, NO_FILES = ["unshare", "--pid", "--fork",
                        "--kill-child"], ["sh", "-c", 'trap "" XFSZ; ulimit -f 0; exec "$@"', "sh"]
MPIRUN, OVER_TCP = ["mpirun", "--oversubscribe", "--bind-to",
                    "none"], ["--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo"]
# Several gradient buckets in a cnn; in resnet18 43, so that most of a step lies between two of
# them.
IN_PARTS = ["--deterministic", "--bucket-mib", "0.05"]
LOST = [
    "--model", "resnet18", "--data", "synthetic-images:32x32x3,10,6400", "--global-batch", "8",
    "--epochs", "1000", "--bucket-mib", "1", "--deterministic", "--share-gpus"
]
LOST_STEP, STALL_TIMEOUT = 100, 5  # by which ranks have reported for seconds where they are
# Started by sh with the files for standard output and exit status, or with the file to look into
# and the signal to send, and a command. The launcher ends the other ranks when one fails, which
# they may survive to report it.
SURVIVOR = 'trap : TERM; log=$1 status=$2; shift 2; "$@" >$log; echo $? >$status'
VICTIM = (f'log=$1 signal=$2; shift 2; "$@" & while ! grep -q "\\"step\\":{LOST_STEP}," $log; '
          "do sleep 0.05; done; date +%s >$log.end; kill -$signal $!; wait $!")


class Trainings:
    def __init__(self, check):
        self.check, self.steps = check, check.steps
        self.networks = REHEARSED if check.options.rehearse else NETWORKS
        self.trainings = {}

    def train(self, network="cnn", devices="gpu:0", ranks=1, more=(), prefix=()):
        """Twenty steps; each training is run once and its result is reused. `prefix` starts the
        program of each rank."""
        for option in more:
            if option.startswith("--") and option not in self.check.help:
                raise NotRun(f"this version has no {option}")
        key = (network, devices, ranks, tuple(more), tuple(prefix))
        if key not in self.trainings:
            (data, batch, *_), (*_, rate, _) = self.networks[network], NETWORKS[network]
            launcher = [*MPIRUN, *(OVER_TCP if prefix else []), "-np", ranks] if ranks > 1 else []
            output = self.steps.checked([
                *launcher, *prefix,
                self.check.programs.path("lockstep"), "train", "--checkpoint-dir", "none",
                "--model", network, "--data", data, "--global-batch", batch, "--steps", TRAIN_STEPS,
                "--epochs", "10", "--learning-rate", rate, "--optimizer", "sgd", "--log-every", "1",
                "--log-format", "json", "--devices", devices, *more
            ], 60)
            training = training_of(output.text)
            if len(training["losses"]) + training["skipped"] != TRAIN_STEPS:
                raise Failed(f"reported {len(training['losses'])} losses, not {TRAIN_STEPS}")
            self.trainings[key] = training
        return self.trainings[key]

    def same_losses(self, one, other, limit):
        difference = loss_difference(one["losses"], other["losses"])
        figures = {
            "largest_relative_difference": difference if math.isfinite(difference) else None,
            "limit": limit,
            "last_losses": [one["losses"][-1:], other["losses"][-1:]]
        }
        if difference > limit:
            error = Failed(f"losses differ by up to {difference:.2g}, more than {limit:g}")
            error.figures = figures
            raise error
        return f"losses differ by at most {difference:.1e} (limit {limit:g})", figures

    def like_the_cpu(self, network):
        return self.same_losses(self.train(network), self.train(network, "cpu:0"),
                                NETWORKS[network][3])

    def like_one_gpu(self, network, devices, ranks=1, more=(), both=()):
        return self.same_losses(self.train(network, devices, ranks, [*more, *both]),
                                self.train(network, more=both), NETWORKS[network][3])

    def in_precision(self, precision):
        training = self.train(more=["--precision", precision])
        if training["skipped"] > TRAIN_STEPS // 2:
            raise Failed(f"{training['skipped']} of {TRAIN_STEPS} steps were skipped")
        if training["skipped"]:
            return f"{training['skipped']} steps were skipped by dynamic loss scaling", {
                "skipped": training["skipped"]
            }
        return self.same_losses(training, self.train(), ROUNDED[precision])

    def same_bits(self, one, other):
        hashes = [training["hash"] for training in (one, other)]
        if not hashes[0] or hashes[0] != hashes[1]:
            raise Failed(f"parameter hashes differ: {hashes[0]} and {hashes[1]}")
        return f"parameter hash {hashes[0]} both times"

    def twice(self, more):
        first = self.train(more=more)
        self.trainings.pop(("cnn", "gpu:0", 1, tuple(more), ()))
        return self.same_bits(first, self.train(more=more))

    def on_several_gpus(self, devices, ranks=1):
        if len(self.check.gpus) < 2:
            raise NotRun("there is only one GPU")
        return self.like_one_gpu("cnn", devices, ranks)

    def refuses(self, arguments, needed, variables=None):
        """Checks that a training with `arguments`, in an environment with `variables`, fails with
        the status of device errors and reports what is required."""
        output = self.steps.run([
            self.check.programs.path("lockstep"), "train", "--checkpoint-dir", "none", *arguments
        ], 60, environment=dict(self.steps.environment, **(variables or {})))
        if output.status != 5 or needed not in output.errors:
            raise Failed(
                f"expected status 5 and '{needed}', got status {output.status}: "
                f"{output.last_words()}"
            )
        return output.last_words()

    def run_all(self, built):
        def step(name, action):
            self.steps.step(name, action, built)

        step("one replica",
             lambda: f"loss {self.train()['losses'][0]:.4f} to {self.train()['losses'][-1]:.4f}")
        step("GPU and CPU", lambda: self.like_the_cpu("cnn"))
        step("GPU and CPU, resnet18", lambda: self.like_the_cpu("resnet18"))
        exact = ["--deterministic"]
        step("deterministic twice", lambda: self.twice(exact))
        step(
            "graph on and off",
            lambda: self.same_bits(self.train(more=exact), self.train(more=[*exact, "--no-graph"])))
        for precision in ROUNDED:
            step(precision, lambda p=precision: self.in_precision(p))
        step("TF32", lambda: self.same_losses(self.train(more=["--tf32"]), self.train(), 2e-2))
        step("two logical replicas", lambda: self.like_one_gpu("cnn", "gpu:0,gpu:0"))
        step("three logical replicas", lambda: self.like_one_gpu("cnn", "gpu:0,gpu:0,gpu:0"))
        step("synchronized batch normalization",
             lambda: self.like_one_gpu("resnet18", "gpu:0,gpu:0", more=["--bn", "sync"]))
        step("two ranks on one GPU, by way of shared memory",
             lambda: self.like_one_gpu("cnn", "gpu:0", ranks=2, more=["--share-gpus"]))
        step("all GPUs of one process", lambda: self.on_several_gpus("gpu:all"))
        step("a rank for each GPU", lambda: self.on_several_gpus("auto", ranks=2))
        small = ["--model", "cnn", "--data", NETWORKS["cnn"][0], "--devices"]
        absent = f"gpu:{len(self.check.gpus)}"
        step("refuses a GPU that is not there", lambda: self.refuses([*small, absent], absent))
        step(
            "refuses a GPU where none is shown", lambda: self.refuses(
                [*small, "gpu:0"], 'CUDA_VISIBLE_DEVICES is ""', {"CUDA_VISIBLE_DEVICES": ""}))
        step("refuses a batch that does not fit",
             lambda: self.refuses(TOO_LARGE, "[memory] expected "))

    # ---- Several ranks and replicas on one GPU

    def in_parts(self, devices, ranks=1, more=(), prefix=()):
        """CUDA graphs that are split at every gradient bucket, against no graphs and against one
        replica."""
        training, plain = (self.train("cnn", devices, ranks, [*IN_PARTS, *more, *graph], prefix)
                           for graph in ([], ["--no-graph"]))
        losses, figures = self.same_losses(training, self.train(more=["--deterministic"]),
                                           NETWORKS["cnn"][3])
        route = training["start"].get("allreduce", "")
        return f"{route}; {losses}; {self.same_bits(training, plain)}", dict(figures, route=route)

    def has_namespaces(self):
        return shutil.which(NAMESPACES[0]) is not None and self.steps.run([*NAMESPACES, "true"],
                                                                          10).status == 0

    def over_a_ring(self):
        note, figures = self.in_parts("gpu:0", 2, ["--share-gpus"],
                                      NAMESPACES if self.has_namespaces() else NO_FILES)
        if "ring" not in figures["route"]:
            raise NotRun(f"the ranks share memory: {note}")
        return note, figures

    def lost(self, signal, over_a_ring=False):
        """A rank that gets `signal` in the middle of a step: the other one names it, and ends with
        status 4 in time."""
        prefix = NAMESPACES if over_a_ring and self.has_namespaces() else []
        with tempfile.TemporaryDirectory() as folder:
            log, status = pathlib.Path(folder, "log"), pathlib.Path(folder, "status")
            log.touch()
            program = [
                *prefix,
                self.check.programs.path("lockstep"), "train", "--checkpoint-dir", "none", *LOST,
                "--steps", 1000000, "--devices", "gpu:0", "--log-every", 1, "--log-format", "json",
                "--stall-timeout", STALL_TIMEOUT
            ]
            output = self.steps.run([
                *MPIRUN, *(OVER_TCP if prefix else []), "-np", 1, "sh", "-c", SURVIVOR, "sh", log,
                status, *program, ":", "-np", 1, "sh", "-c", VICTIM, "sh", log, signal, *program
            ], 60)
            if not status.exists():
                raise Failed(f"the other rank did not end by itself: {output.last_words()}")
            survived, ended = status.read_text().strip(), pathlib.Path(f"{log}.end")
            seconds = status.stat().st_mtime - ended.stat().st_mtime if ended.exists() else math.inf
            logs = [
                line for line in output.errors.splitlines() if line.startswith("lockstep: error: ")
            ]
        if survived != "4" or not logs or " rank 1, " not in logs[0] or seconds > 2 * STALL_TIMEOUT:
            raise Failed(
                f"expected status 4 within {2 * STALL_TIMEOUT} s and the name of rank 1, got "
                f"status {survived} after {seconds:.1f} s: "
                f"{logs[0] if logs else output.last_words()}")
        error = logs[0].removeprefix("lockstep: error: ").split("; the same command")[0]
        return f"status 4 after {seconds:.1f} s; {error}"

    def run_ranks(self, needs):
        def step(name, action):
            self.steps.step(name, action, needs)
        step("four logical replicas", lambda: self.like_one_gpu("cnn", ",".join(["gpu:0"] * 4)))
        step("graphs in parts, two logical replicas", lambda: self.in_parts("gpu:0,gpu:0"))
        step("graphs in parts, four logical replicas by way of the host",
             lambda: self.in_parts(",".join(["gpu:0"] * 4), more=["--allreduce", "staged"]))
        step("graphs in parts, two ranks", lambda: self.in_parts("gpu:0", 2, ["--share-gpus"]))
        step("two ranks over a ring", self.over_a_ring)
        step("a rank killed in a step", lambda: self.lost("KILL", over_a_ring=True))
        step("a rank stopped in a step", lambda: self.lost("STOP"))

    # ---- compute-sanitizer

    def sanitize(self, kind, program, arguments):
        arguments = [part for part in arguments if part != "--no-graph" or part in self.check.help]
        folders = [self.steps.environment["PATH"]]
        if self.check.cuda.toolkit:
            folders += [
                str(self.check.cuda.toolkit / "bin"),
                str(self.check.cuda.toolkit / "compute-sanitizer")
            ]
        tool = shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
        if tool is None:
            raise NotRun("there is no compute-sanitizer")
        output = self.steps.run([
            tool, "--tool", kind, *SANITIZER_KINDS[kind], "--error-exitcode", "97",
            self.check.programs.path(program), *arguments
        ], 60)
        if "Device not supported" in output.text + output.errors:
            raise NotRun("compute-sanitizer does not support this device")
        if output.status != 0:
            summary = [line for line in output.text.splitlines() if "SUMMARY" in line]
            raise Failed(
                f"status {output.status}: "
                f"{summary[-1].strip('= ') if summary else output.last_words()}"
            )
        return "no finding"

    def run_sanitizer(self, kind, built):
        for name, program, arguments in SANITIZED:
            self.steps.step(f"{kind}, {name}",
                            lambda p=program, a=arguments: self.sanitize(kind, p, a), built)

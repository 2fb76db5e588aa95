"""The short trainings of scripts/gpu_check: one GPU against the CPU, against several replicas, against itself; and compute-sanitizer."""

import math
import os
import shutil

from gpu_steps import Failed, NotRun
from gpu_tools import loss_difference, training_of

# Twenty steps of these: (network, data, global batch, learning rate, largest relative difference of float32 losses that rounding makes). At
# its first weights, the gradient of resnet18 differs by 1e-3 between float32 and float64 (in PyTorch): a larger rate amplifies that.
NETWORKS = {"cnn": ("synthetic:28x28x1:10:1280", 64, 0.01, 1e-4), "resnet18": ("synthetic-images:32x32x3:10:640", 32, 0.001, 5e-3)}
ROUNDED = {"bfloat16": 0.1, "float16": 0.05}  # of losses, against float32
TRAIN_STEPS = 20

# Small enough for compute-sanitizer, which makes kernels tens of times slower: (name, program, arguments).
SANITIZED = [
    ("all-reduce", "allreduce_on_gpu_tests", ["--gtest_filter=GpuWork.*:OnAGpu.*"]),
    ("training", "lockstep", ["train", "--checkpoint-dir", "none", "--model", "cnn", "--data", "synthetic:28x28x1:10:48", "--global-batch", "16", "--steps", "3",
                              "--devices", "gpu:0", "--no-graph"]),
    ("training with graphs", "lockstep", ["train", "--checkpoint-dir", "none", "--model", "cnn", "--data", "synthetic:28x28x1:10:48", "--global-batch", "16",
                                          "--steps", "6", "--devices", "gpu:0"]),
    ("two replicas", "lockstep", ["train", "--checkpoint-dir", "none", "--model", "mlp", "--data", "synthetic:8x8x1:4:48", "--global-batch", "15", "--steps", "3",
                                  "--devices", "gpu:0,gpu:0", "--no-graph"]),
]
SANITIZER_KINDS = {"memcheck": ["--leak-check", "no"], "racecheck": []}
# A batch whose tensors each fit 32-bit indices, and together exceed a GPU's memory.
TOO_LARGE = ["--model", "resnet50", "--data", "synthetic:224x224x3:1000:2600", "--global-batch", "2600", "--steps", "1", "--deterministic",
             "--devices", "gpu:0"]


class Trainings:
    def __init__(self, check):
        self.check, self.steps = check, check.steps
        self.trainings = {}

    def train(self, network="cnn", devices="gpu:0", ranks=1, more=()):
        """Twenty steps; each training is run once and its result is reused."""
        for option in more:
            if option.startswith("--") and option not in self.check.help:
                raise NotRun(f"this version has no {option}")
        key = (network, devices, ranks, tuple(more))
        if key not in self.trainings:
            data, batch, rate, _ = NETWORKS[network]
            launcher = ["mpirun", "-np", ranks, "--oversubscribe", "--bind-to", "none"] if ranks > 1 else []
            output = self.steps.checked(
                [*launcher, self.check.programs.path("lockstep"), "train", "--checkpoint-dir", "none", "--model", network, "--data", data, "--global-batch", batch,
                 "--steps", TRAIN_STEPS, "--epochs", "10", "--learning-rate", rate, "--optimizer", "sgd", "--log-every", "1",
                 "--log-format", "json", "--devices", devices, *more], 60)
            training = training_of(output.text)
            if len(training["losses"]) + training["skipped"] != TRAIN_STEPS:
                raise Failed(f"reported {len(training['losses'])} losses, not {TRAIN_STEPS}")
            self.trainings[key] = training
        return self.trainings[key]

    def same_losses(self, one, other, limit):
        difference = loss_difference(one["losses"], other["losses"])
        figures = {"largest_relative_difference": difference if math.isfinite(difference) else None, "limit": limit,
                   "last_losses": [one["losses"][-1:], other["losses"][-1:]]}
        if difference > limit:
            error = Failed(f"losses differ by up to {difference:.2g}, more than {limit:g}")
            error.figures = figures
            raise error
        return f"losses differ by at most {difference:.1e} (limit {limit:g})", figures

    def like_the_cpu(self, network):
        return self.same_losses(self.train(network), self.train(network, "cpu:0"), NETWORKS[network][3])

    def like_one_gpu(self, network, devices, ranks=1, more=(), both=()):
        return self.same_losses(self.train(network, devices, ranks, [*more, *both]), self.train(network, more=both), NETWORKS[network][3])

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

    def on_several_gpus(self, devices, ranks=1):
        if len(self.check.gpus) < 2:
            raise NotRun("there is only one GPU")
        return self.like_one_gpu("cnn", devices, ranks)

    def refuses(self, arguments, needed, variables=None):
        """Checks that a training with `arguments`, in an environment with `variables`, ends with the status of device errors and names what is needed."""
        output = self.steps.run([self.check.programs.path("lockstep"), "train", "--checkpoint-dir", "none", *arguments], 60,
                                environment=dict(self.steps.environment, **(variables or {})))
        if output.status != 5 or needed not in output.errors:
            raise Failed(f"expected status 5 and '{needed}', got status {output.status}: {output.last_words()}")
        return output.last_words()

    def run_all(self, built):
        def step(name, action):
            self.steps.step(name, action, built)
        step("one replica", lambda: f"loss {self.train()['losses'][0]:.4f} to {self.train()['losses'][-1]:.4f}")
        step("GPU and CPU", lambda: self.like_the_cpu("cnn"))
        step("GPU and CPU, resnet18", lambda: self.like_the_cpu("resnet18"))
        exact = ["--deterministic"]
        step("deterministic twice", lambda: self.twice(exact))
        step("graph on and off", lambda: self.same_bits(self.train(more=exact), self.train(more=[*exact, "--no-graph"])))
        for precision in ROUNDED:
            step(precision, lambda p=precision: self.in_precision(p))
        step("TF32", lambda: self.same_losses(self.train(more=["--tf32"]), self.train(), 2e-2))
        step("two logical replicas", lambda: self.like_one_gpu("cnn", "gpu:0,gpu:0"))
        step("three logical replicas", lambda: self.like_one_gpu("cnn", "gpu:0,gpu:0,gpu:0"))
        step("synchronized batch normalization", lambda: self.like_one_gpu("resnet18", "gpu:0,gpu:0", more=["--bn", "sync"]))
        step("two ranks on one GPU, by way of shared memory", lambda: self.like_one_gpu("cnn", "gpu:0", ranks=2, more=["--share-gpus"]))
        step("all GPUs of one process", lambda: self.on_several_gpus("gpu:all"))
        step("a rank for each GPU", lambda: self.on_several_gpus("auto", ranks=2))
        small = ["--model", "cnn", "--data", NETWORKS["cnn"][0], "--devices"]
        absent = f"gpu:{len(self.check.gpus)}"
        step("refuses a GPU that is not there", lambda: self.refuses([*small, absent], absent))
        step("refuses a GPU where none is shown", lambda: self.refuses([*small, "gpu:0"], 'CUDA_VISIBLE_DEVICES is ""', {"CUDA_VISIBLE_DEVICES": ""}))
        step("refuses a batch that does not fit", lambda: self.refuses(TOO_LARGE, "[memory] expected "))

    # ---- compute-sanitizer

    def sanitize(self, kind, program, arguments):
        arguments = [part for part in arguments if part != "--no-graph" or part in self.check.help]
        folders = [self.steps.environment["PATH"]]
        if self.check.cuda.toolkit:
            folders += [str(self.check.cuda.toolkit / "bin"), str(self.check.cuda.toolkit / "compute-sanitizer")]
        tool = shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
        if tool is None:
            raise NotRun("there is no compute-sanitizer")
        output = self.steps.run([tool, "--tool", kind, *SANITIZER_KINDS[kind], "--error-exitcode", "97",
                                 self.check.programs.path(program), *arguments], 60)
        if "Device not supported" in output.text + output.errors:
            raise NotRun("compute-sanitizer does not support this device")
        if output.status != 0:
            summary = [line for line in output.text.splitlines() if "SUMMARY" in line]
            raise Failed(f"status {output.status}: {summary[-1].strip('= ') if summary else output.last_words()}")
        return "no finding"

    def run_sanitizer(self, kind, built):
        for name, program, arguments in SANITIZED:
            self.steps.step(f"{kind}, {name}", lambda p=program, a=arguments: self.sanitize(kind, p, a), built)

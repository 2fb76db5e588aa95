"""The measurements of scripts/gpu_check: Lockstep and PyTorch on the same GPU; medians."""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile

import gpu_floor
from gpu_steps import Failed, NotRun
from gpu_tools import adam_floor, gpu_limits, median, ratio, resnet50_floor, steady, training_of, validations_of

RESNET_BATCH, CNN_BATCH, ADAM_PARAMETERS = 256, 64, 100_000_000
# The project's goal for ResNet-50 on one H200: an eighth of NVIDIA's 8 x H200 in MLPerf Training 4.0.
RESNET_GOAL = 7950
# Configurations of ResNet-50: (name, precision, batch, further options).
RESNETS = [("bfloat16", "bfloat16", 256, []), ("bfloat16 without graphs", "bfloat16", 256, ["--no-graph"]),
           ("bfloat16, batch 448", "bfloat16", 448, []), ("float16", "float16", 256, [])]
# Targets: at least this multiple of PyTorch's speed, at most this share of its memory, at least this share of the bandwidth.
RESNET_TARGETS = {"compile": 1.0, "eager": 1.25}
CNN_TARGETS = {"eager": 5.0, "graph": 1.5}
GPT_TARGETS = {"compile": 1.0, "eager": 1.25}
# GPT-2's smallest network (gpt:12x768), whose attention has heads of 64 elements.
GPT_LAYERS, GPT_WIDTH, GPT_POSITIONS, GPT_VOCABULARY, GPT_BATCH = 12, 768, 1024, 50257, 8
# Of results in 16 bits by two implementations: distance over norm.
ATTENTION_DIFFERENCE = 0.02
MEMORY_TARGET, BANDWIDTH_TARGET = 1.05, 0.9
NOT_BOUND_BY_INPUT = 0.95  # of the speed with images that need no reading
CIFAR_TARGET = 0.94
CIFAR_STEPS = 20 * 50_000 // 512
TORCH = [sys.executable, str(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_bench_torch.py"))]


def torch_version():
    """PyTorch's version if it can use the GPU, or None."""
    answer = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__ if torch.cuda.is_available() else '')"],
                            capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def write_text(path, vocabulary, characters):
    """Random characters, each of `vocabulary` at least once, beyond those of 16 bits, of which some are no text."""
    known = [chr(0x10000 + i) for i in range(vocabulary)]
    generator = random.Random(1)
    text = known + generator.choices(known, k=characters - vocabulary)
    generator.shuffle(text)
    path.write_text("".join(text), encoding="utf-8")


def judge(what, figures, comparisons):
    """What was measured, and its comparisons: (with what, reached, needed, whether more is better). Failed if one of them is missed;
    those without a figure are skipped."""
    told = [row for row in comparisons if row[1] is not None]
    notes = [f"{beside} {reached:.2f} (expected {'at least' if more else 'at most'} {needed:g})" for beside, reached, needed, more in told]
    if any(reached < needed if more else reached > needed for _, reached, needed, more in told):
        error = Failed("; ".join([f"missed: {what}", *notes]))
        error.figures = figures
        raise error
    return "; ".join([what, *(notes or ["nothing to compare it with"])]), figures


class Speed:
    def __init__(self, check):
        self.check, self.steps = check, check.steps
        self.quick = check.options.quick
        self.rounds = 1 if self.quick else 2
        self.limits = gpu_limits(check.gpus[0]["name"])
        self._torch = None

    def torch(self):
        """PyTorch's version; NotRun if it is absent. Asked once, when it is needed: it takes seconds."""
        if self._torch is None:
            self._torch = torch_version() or ""
            if self._torch:
                self.check.versions["torch"] = self._torch
        if not self._torch:
            raise NotRun("python3 has no torch that can use the GPU")
        return self._torch

    def train(self, arguments, limit, **more):
        return self.steps.checked([self.check.programs.path("lockstep"), "train", "--checkpoint-dir", "none", "--devices", "gpu:0", "--log-format", "json", *arguments],
                                  limit, **more)

    def ours(self, arguments, limit):
        """A training's rate in samples per second: the median of its reports except the first ones."""
        training = training_of(self.train(arguments, limit).text)
        rates = steady(training["rates"])
        if not rates:
            raise Failed("the training reported no step")
        waited = training["input_wait_seconds"] / training["seconds"] if training["seconds"] else None
        return {"rate": median(rates), "rates": rates, "input_wait_share": waited, "start": training["start"]}

    def theirs(self, arguments, limit, **more):
        output = self.steps.checked([*TORCH, *arguments], limit, environment=dict(os.environ), **more)
        return dict(json.loads(output.text.splitlines()[-1]), gpu_mib=output.gpu_mib)

    def compared(self, ours, ways):
        """Alternating rounds: {"lockstep": [...], way: [...]}, and a note on ways of PyTorch that failed, which do not invalidate our results."""
        runs, notes = {"lockstep": []}, {}
        for _ in range(self.rounds):
            runs["lockstep"].append(ours())
            for way, command, limit in ways:
                try:
                    self.torch()
                    runs.setdefault(way, []).append(self.theirs(command, limit))
                except (Failed, NotRun, ValueError) as reason:
                    notes[way] = str(reason)
        lacking = "".join(f"; PyTorch {way} did not run: {reason}" for way, reason in notes.items())
        return runs, lacking

    # ---- ResNet-50

    def resnet50_arguments(self, precision, steps, batch=RESNET_BATCH, data=None, statistics="never"):
        arguments = ["--model", "resnet50", "--data", data or f"synthetic-images:224x224x3:1000:{batch * 8}", "--global-batch", batch,
                     "--precision", precision, "--optimizer", "sgd", "--momentum", "0.9", "--learning-rate", "0.1", "--epochs", "100",
                     "--steps", steps, "--log-every", "10"]
        return [*arguments, "--fused-statistics", statistics] if "--fused-statistics" in self.check.help else arguments

    def resnet50(self, precision, batch, more=(), statistics="never"):
        """One training. What its algorithms cost to choose is not part of the rate, and is stored for the next one."""
        run = self.ours([*self.resnet50_arguments(precision, 60 if self.quick else 120, batch, statistics=statistics), *more], 240)
        rate, figures = run["rate"], {"samples_per_second": run["rate"], "goal": RESNET_GOAL, "run": run}
        told = f"{rate:.0f} images/s, {rate / RESNET_GOAL:.0%} of the goal of {RESNET_GOAL} (H200)"
        if self.limits:
            floor = resnet50_floor(self.limits, batch)
            figures |= {"floor": floor, "share_of_floor": floor["seconds"] * rate / batch}
            told += f", {figures['share_of_floor']:.0%} of the limit of memory and arithmetic"
        if run["input_wait_share"] is not None:
            told += f", {run['input_wait_share']:.0%} of the time spent waiting for input"
        return told, figures

    def profile(self, precision):
        """The time of each kernel beside its floor, in two files."""
        if "--profile" not in self.check.help:
            raise NotRun("not built: lockstep train --profile")
        file = self.steps.folder / f"profile_{precision}.jsonl"
        self.train([*self.resnet50_arguments(precision, 20), "--profile", file], 60)
        text, share = gpu_floor.report(self.check.gpus[0]["name"], RESNET_BATCH, file)
        self.steps.log(text + "\n")
        return f"the floors of all kernels are {share:.0%} of their time; {file.name}, and log.txt for the table", {"share_of_floors": share}

    def run_resnet50(self, needs):
        for name, precision, batch, more in RESNETS:
            self.steps.step(f"speed of resnet50 in {name}", lambda p=precision, b=batch, m=more: self.resnet50(p, b, m), needs)
        self.steps.step("speed of resnet50 in float16 with fused statistics",
                        lambda: self.resnet50("float16", RESNET_BATCH, statistics="measure"), needs)
        for precision in ("bfloat16", "float16"):
            self.steps.step(f"kernels of resnet50 in {precision}", lambda p=precision: self.profile(p), needs)

    def against_torch(self):
        arguments = self.resnet50_arguments("bfloat16", 60)
        ways = ["eager"] if self.quick else ["eager", "compile"]
        commands = [(way, ["resnet50", "--way", way, "--batch", str(RESNET_BATCH), "--steps", "20"], 90) for way in ways]
        runs, lacking = self.compared(lambda: self.ours(arguments, 60), commands)
        rate = median([run["rate"] for run in runs["lockstep"]])
        comparisons = [(f"times PyTorch {way}", ratio(rate, self.torch_rate(runs, way)), target, True)
                       for way, target in RESNET_TARGETS.items()]
        return judge(f"{rate:.0f} images/s, goal {RESNET_GOAL}{lacking}", {"samples_per_second": rate, "runs": runs}, comparisons)

    def memory(self):
        """Peaks in runs that are not timed."""
        mine = self.train(self.resnet50_arguments("bfloat16", 20), 60, watch_memory=True).gpu_mib
        self.torch()
        other = self.theirs(["resnet50", "--batch", str(RESNET_BATCH), "--steps", "5", "--rounds", "1"], 60, watch_memory=True)["gpu_mib"]
        return judge(f"{mine} MiB", {"lockstep": mine, "torch": other},
                     [("peak memory, times PyTorch's", ratio(mine, other), MEMORY_TARGET, False)])

    def run_torch(self, needs):
        self.steps.step("PyTorch", self.torch)
        self.steps.step("resnet50 and PyTorch in turns", self.against_torch, needs)
        self.steps.step("memory of resnet50", self.memory, needs)

    def jpeg(self):
        """ResNet-50 from TFRecord files of made-up JPEG images, decoded, cropped and flipped, compared with images that need no preparation."""
        if "--images" not in self.check.help:
            raise NotRun("this version has no --images")
        folder = pathlib.Path(self.steps.environment.get("TMPDIR", "/tmp")) / f"lockstep-jpeg-{os.getpid()}"
        self.steps.checked([self.check.programs.path("lockstep_bench_jpeg_records"), folder, "--files", 8, "--records", RESNET_BATCH * 16], 60)
        try:
            arguments = self.resnet50_arguments("bfloat16", 40, data=f"{folder}/train-*.tfrecord")
            run = self.ours([*arguments, "--images", "imagenet", "--classes", 1000], 60)
            free = self.ours(self.resnet50_arguments("bfloat16", 40), 60)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        share = ratio(run["rate"], free["rate"])
        figures = {"samples_per_second": run["rate"], "of_made_up_images": free["rate"], "processors": os.cpu_count(), "run": run}
        told = f"{run['rate']:.0f} images/s with {os.cpu_count()} processors, {share:.0%} of those from made-up images"
        if run["input_wait_share"] is not None:
            told += f", {run['input_wait_share']:.0%} of the time spent waiting for input"
        return f"{told}: {'bound by input' if share < NOT_BOUND_BY_INPUT else 'not bound by input'}", figures

    # ---- Others

    def convolutions(self):
        """Each pass of each convolution of ResNet-50 by both interfaces of cuDNN; a table and lines of JSON in the results' folder."""
        file = self.steps.folder / "bench_convolutions.jsonl"
        output = self.steps.checked([self.check.programs.path("lockstep_bench_convolutions"), "--seconds", 110, "--json", file], 150)
        (self.steps.folder / "bench_convolutions.txt").write_text(output.text)
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        passes = [row for row in rows if row["kind"] == "convolution"]
        faster = sum(1 for row in passes if row["graph_ms"] and (not row["legacy_ms"] or row["graph_ms"] < row["legacy_ms"]))
        left_out = sum(row.get("left_out", 0) for row in rows)
        note = f"cuDNN's graph API is faster in {faster} of {len(passes)} passes"
        return note + (f"; {left_out} rows were left out for lack of time" if left_out else ""), {"rows": rows}

    def attention(self):
        """Forward and backward by cuDNN and by our kernels, which must agree, and by PyTorch on the same arrays."""
        shape = ["--batch", str(GPT_BATCH), "--positions", str(GPT_POSITIONS), "--heads", str(GPT_WIDTH // 64)]
        output = self.steps.checked([self.check.programs.path("lockstep_bench_attention"), *shape], 90)
        rows = {row["implementation"]: row for row in map(json.loads, output.text.splitlines())}
        figures = {"lockstep": rows, "torch": {}}
        told = [f"{name} {row['forward_ms']:.3f} + {row['backward_ms']:.3f} ms ({row['forward_tflops']:.0f} and {row['backward_tflops']:.0f} TFLOP/s)"
                for name, row in rows.items()]
        for way in ("eager", "cudnn"):
            try:
                self.torch()
                run = self.theirs(["attention", "--way", way, *shape, "--steps", "50"], 60)
                figures["torch"][way] = run
                told.append(f"PyTorch {way} {1e3 * median(run['seconds_per_step']):.3f} ms together")
            except (Failed, NotRun, ValueError) as reason:
                told.append(f"PyTorch {way} did not run: {reason}")
        differences = [(f"difference of {name}s", rows["cudnn"][f"{name}_difference"], ATTENTION_DIFFERENCE, False)
                       for name in ("output", "gradient")]
        return judge("; ".join(told), figures, differences)

    def gpt(self):
        """Training on a made-up text with as many characters as GPT-2 has tokens."""
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "text.txt")
            write_text(text, GPT_VOCABULARY, 8 * GPT_BATCH * GPT_POSITIONS)
            arguments = ["--model", f"gpt:{GPT_LAYERS}x{GPT_WIDTH}", "--data", f"text:{text}:tokenizer=chars,length={GPT_POSITIONS}",
                         "--global-batch", GPT_BATCH, "--precision", "bfloat16", "--optimizer", "adamw", "--learning-rate", "3e-4",
                         "--epochs", "100", "--steps", 60, "--log-every", "10"]
            commands = [(way, ["gpt", "--way", way, "--batch", str(GPT_BATCH), "--positions", str(GPT_POSITIONS), "--layers", str(GPT_LAYERS),
                               "--width", str(GPT_WIDTH), "--vocabulary", str(GPT_VOCABULARY), "--steps", "10"], 90)
                        for way in (["eager"] if self.quick else ["eager", "compile"])]
            runs, lacking = self.compared(lambda: self.ours(arguments, 60), commands)
        rate = median([run["rate"] for run in runs["lockstep"]])
        comparisons = [(f"times PyTorch {way}", ratio(rate, self.torch_rate(runs, way)), target, True) for way, target in GPT_TARGETS.items()]
        tokens = rate * GPT_POSITIONS
        return judge(f"{tokens:.0f} tokens/s{lacking}", {"tokens_per_second": tokens, "runs": runs}, comparisons)

    def run_attention(self, needs):
        self.steps.step("speed of attention", self.attention, needs)
        self.steps.step("speed of gpt:12x768", self.gpt, needs)

    def cifar(self):
        """fast_cifar on the shards named by LOCKSTEP_BENCH_CIFAR10, or packed by scripts/gpu_pack --cifar10."""
        if named := os.environ.get("LOCKSTEP_BENCH_CIFAR10"):
            return self.train_on_cifar(named)
        packed = self.check.programs.prebuilt and self.check.programs.prebuilt / "cifar10.tar"
        if not packed or not packed.is_file():
            raise NotRun("its data is not here: set LOCKSTEP_BENCH_CIFAR10, or pack it with scripts/gpu_pack --prebuilt --cifar10 FOLDER")
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(packed) as archive:
                archive.extractall(folder)
            return self.train_on_cifar(folder)

    def train_on_cifar(self, folder):
        output = self.train(["--model", "fast_cifar", "--data", f"{folder}/train-*.tfrecord", "--validation-data", f"{folder}/test-*.tfrecord",
                             "--images", "cifar10", "--global-batch", 512, "--steps", CIFAR_STEPS, "--precision", "bfloat16",
                             "--optimizer", "sgd", "--momentum", "0.9", "--nesterov", "--weight-decay", "5e-4", "--learning-rate", "0.4",
                             "--lr-schedule", "linear", "--warmup-steps", CIFAR_STEPS // 5, "--label-smoothing", "0.1", "--log-every", "100"], 60)
        epochs = validations_of(output.text)
        if not epochs:
            raise Failed("the training reported no validation")
        best = max(epoch["validation_accuracy"] for epoch in epochs)
        spent = sum(epoch["seconds"] for epoch in epochs)
        return judge(f"{best:.2%} after {len(epochs)} epochs, {spent:.1f} s in the epochs", {"epochs": epochs},
                     [("accuracy", best, CIFAR_TARGET, True)])

    def cnn(self):
        arguments = ["--model", "cnn", "--data", "synthetic-images:28x28x1:10:60000", "--global-batch", CNN_BATCH, "--optimizer", "adam",
                     "--learning-rate", "1e-3", "--epochs", "100", "--steps", 6000, "--log-every", "500"]
        commands = [(way, ["cnn", "--way", way, "--batch", str(CNN_BATCH), "--steps", "500", "--warm-up", "50"], 60) for way in CNN_TARGETS]
        runs, lacking = self.compared(lambda: self.ours(arguments, 60), commands)
        rate = median([run["rate"] for run in runs["lockstep"]])
        figures = {"steps_per_second": rate / CNN_BATCH, "runs": runs}
        return judge(f"{rate / CNN_BATCH:.0f} steps/s{lacking}", figures,
                     [(f"times PyTorch {way}", ratio(rate, self.torch_rate(runs, way)), target, True) for way, target in CNN_TARGETS.items()])

    def adam(self):
        program = [self.check.programs.path("lockstep_bench_update"), "--device", "gpu:0", "--parameters", ADAM_PARAMETERS, "--updates", "20"]

        def ours():
            return json.loads(self.steps.checked(program, 60).text)
        runs, lacking = self.compared(ours, [("fused", ["adam", "--parameters", str(ADAM_PARAMETERS)], 60)])
        seconds = median([run["seconds_per_update"] for run in runs["lockstep"]])
        other = median([value for run in runs.get("fused", []) for value in run["seconds_per_step"]])
        figures = {"seconds_per_update": seconds, "torch_seconds": other, "runs": runs}
        if not self.limits:
            return f"{1e3 * seconds:.3f} ms; this script does not know the bandwidth of this GPU{lacking}", figures
        figures["share_of_bandwidth"] = adam_floor(self.limits, ADAM_PARAMETERS) / seconds
        if other:
            figures["torch_share_of_bandwidth"] = adam_floor(self.limits, ADAM_PARAMETERS) / other
        note = f"{1e3 * seconds:.3f} ms" + (f", PyTorch {1e3 * other:.3f} ms" if other else "")
        return judge(note + lacking, figures, [("share of the memory's bandwidth", figures["share_of_bandwidth"], BANDWIDTH_TARGET, True)])

    @staticmethod
    def torch_rate(runs, way):
        return median([rate for run in runs.get(way, []) for rate in run["rates"]])

"""The measurements of scripts/gpu_check: Lockstep and PyTorch on the same GPU; medians."""

import json
import os
import pathlib
import shutil

import gpu_floor
from gpu_runs import Runs, judge
from gpu_steps import Failed, NotRun
from gpu_tools import adam_floor, median, outside_the_graph, ratio, resnet50_floor, validations_of

# The project's goal for ResNet-50 on one H200: an eighth of NVIDIA's 8 x H200 in MLPerf Training
# 4.0.
RESNET_GOAL = 7950
# Configurations of ResNet-50: (name, precision, batch as a multiple of 256, further options).
RESNETS = [("bfloat16", "bfloat16", 1, []),
           ("bfloat16 without graphs", "bfloat16", 1, ["--no-graph"]),
           ("bfloat16, batch 448", "bfloat16", 1.75, []), ("float16", "float16", 1, [])]
# Targets: at least this multiple of PyTorch's speed, at most this share of its memory, at least
# this share of the bandwidth.
RESNET_TARGETS = {"compile": 1.0, "eager": 1.25}
CNN_TARGETS = {"eager": 5.0, "graph": 1.5}
GPT_TARGETS = {"compile": 1.0, "eager": 1.25}
# Maximum difference of 16-bit results of two implementations: distance over norm.
ATTENTION_DIFFERENCE = 0.02
MEMORY_TARGET, BANDWIDTH_TARGET = 1.05, 0.9
NOT_BOUND_BY_INPUT = 0.95  # minimum speed relative to images in memory
CIFAR_TARGET = 0.94


class Speed(Runs):
    # ---- ResNet-50

    def resnet50(self, precision, batch=None, more=(), statistics="never"):
        """One training. What its algorithms cost to choose is not part of the rate, and is stored
        for the next one."""
        batch = batch or self.sizes.resnet_batch
        run = self.ours([
            *self.resnet50_arguments(precision, 60 if self.quick else 120, batch,
                                     statistics=statistics), *more
        ], 240)
        rate, figures = run["rate"], {
            "samples_per_second": run["rate"],
            "goal": RESNET_GOAL,
            "run": run
        }
        texts = f"{rate:.0f} images/s, {rate / RESNET_GOAL:.0%} of the goal of {RESNET_GOAL} (H200)"
        if self.limits:
            floor = resnet50_floor(self.limits, batch)
            figures |= {"floor": floor, "share_of_floor": floor["seconds"] * rate / batch}
            texts += f", {figures['share_of_floor']:.0%} of the limit of memory and arithmetic"
        if run["input_wait_share"] is not None:
            texts += f", {run['input_wait_share']:.0%} of the time spent waiting for input"
        return texts, figures

    def profile_resnet50(self, precision):
        batch = self.sizes.resnet_batch
        return self.profile(precision, self.resnet50_arguments(precision, 20),
                            gpu_floor.resnet50_kernels(batch), batch)

    def run_resnet50(self, needs):
        for name, precision, times, more in RESNETS:
            batch = int(times * self.sizes.resnet_batch)
            self.steps.step(f"speed of resnet50 in {name}",
                            lambda p=precision, b=batch, m=more: self.resnet50(p, b, m), needs)
        self.steps.step("speed of resnet50 in float16 with fused statistics",
                        lambda: self.resnet50("float16", statistics="measure"), needs)
        for precision in ("bfloat16", "float16"):
            self.steps.step(f"kernels of resnet50 in {precision}",
                            lambda p=precision: self.profile_resnet50(p), needs)

    def against_torch(self):
        arguments = self.resnet50_arguments("bfloat16", 60)
        ways = ["eager"] if self.quick else ["eager", "compile"]
        commands = [
            (way,
             ["resnet50", "--way", way, "--batch",
              str(self.sizes.resnet_batch), "--steps", "20"], 90) for way in ways
        ]
        runs, lacking = self.compared(lambda: self.ours(arguments, 60), commands)
        rate = median([run["rate"] for run in runs["lockstep"]])
        comparisons = [(f"times PyTorch {way}", ratio(rate, self.torch_rate(runs,
                                                                            way)), target, True)
                       for way, target in RESNET_TARGETS.items()]
        return self.judge(f"{rate:.0f} images/s, goal {RESNET_GOAL}{lacking}", {
            "samples_per_second": rate,
            "runs": runs
        }, comparisons)

    def memory(self):
        """Peaks in runs that are not timed."""
        mine = self.train(self.resnet50_arguments("bfloat16", 20), 60, watch_memory=True).gpu_mib
        self.torch()
        other = self.theirs([
            "resnet50", "--batch",
            str(self.sizes.resnet_batch), "--steps", "5", "--rounds", "1"
        ], 60, watch_memory=True)["gpu_mib"]
        return self.judge(f"{mine} MiB", {
            "lockstep": mine,
            "torch": other
        }, [("peak memory, times PyTorch's", ratio(mine, other), MEMORY_TARGET, False)])

    def run_torch(self, needs):
        self.steps.step("PyTorch", self.torch)
        self.steps.step("resnet50 and PyTorch in turns", self.against_torch, needs)
        self.steps.step("memory of resnet50", self.memory, needs)

    def jpeg(self):
        """ResNet-50 from TFRecord files of made-up JPEG images, decoded, cropped and flipped,
        compared with images that need no preparation."""
        if "--images" not in self.check.help:
            raise NotRun("this version has no --images")
        folder = pathlib.Path(self.steps.environment.get("TMPDIR",
                                                         "/tmp")) / f"lockstep-jpeg-{os.getpid()}"
        self.steps.checked([
            self.check.programs.path("lockstep_bench_jpeg_records"), folder, "--files",
            self.sizes.jpeg_files, "--records", self.sizes.jpeg_records
        ], 60)
        try:
            arguments = self.resnet50_arguments("bfloat16", 40, data=f"{folder}/train-*.tfrecord")
            run = self.ours([*arguments, "--images", self.sizes.jpeg_images, "--classes", 1000], 60)
            free = self.ours(self.resnet50_arguments("bfloat16", 40), 60)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        share = ratio(run["rate"], free["rate"])
        figures = {
            "samples_per_second": run["rate"],
            "of_made_up_images": free["rate"],
            "processors": os.cpu_count(),
            "run": run
        }
        texts = (f"{run['rate']:.0f} images/s with {os.cpu_count()} processors, "
                f"{share:.0%} of those from made-up images")
        if run["input_wait_share"] is not None:
            texts += f", {run['input_wait_share']:.0%} of the time spent waiting for input"
        bound = "bound" if share < NOT_BOUND_BY_INPUT else "not bound"
        return f"{texts}: {bound} by input", figures

    # ---- Others

    def convolutions(self):
        """Each pass of each convolution of ResNet-50 by both interfaces of cuDNN; a table and lines
        of JSON in the results' folder."""
        file = self.steps.folder / "bench_convolutions.jsonl"
        output = self.steps.checked([
            self.check.programs.path("lockstep_bench_convolutions"), "--seconds", 110, "--json",
            file
        ], 150)
        (self.steps.folder / "bench_convolutions.txt").write_text(output.text)
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        passes = [row for row in rows if row["kind"] == "convolution"]
        faster = sum(1 for row in passes if row["graph_ms"] and (
            not row["legacy_ms"] or row["graph_ms"] < row["legacy_ms"]))
        left_out = sum(row.get("left_out", 0) for row in rows)
        note = f"cuDNN's graph API is faster in {faster} of {len(passes)} passes"
        return note + (f"; {left_out} rows were left out for lack of time" if left_out else ""), {
            "rows": rows
        }

    def attention(self):
        """Forward and backward by cuDNN and by our kernels, which must agree, and by PyTorch on the
        same arrays."""
        shape = [
            "--batch",
            str(self.sizes.gpt_batch), "--positions",
            str(self.sizes.positions), "--heads",
            str(self.sizes.gpt_width // 64)
        ]
        output = self.steps.checked([self.check.programs.path("lockstep_bench_attention"), *shape],
                                    90)
        rows = {row["implementation"]: row for row in map(json.loads, output.text.splitlines())}
        figures = {"lockstep": rows, "torch": {}}
        texts = [
            f"{name} {row['forward_ms']:.3f} + {row['backward_ms']:.3f} ms "
            f"({row['forward_tflops']:.0f} and {row['backward_tflops']:.0f} TFLOP/s)"
            for name, row in rows.items()
        ]
        for way in ("eager", "cudnn"):
            try:
                self.torch()
                run = self.theirs(["attention", "--way", way, *shape, "--steps", "50"], 60)
                figures["torch"][way] = run
                texts.append(
                    f"PyTorch {way} {1e3 * median(run['seconds_per_step']):.3f} ms together")
            except (Failed, NotRun, ValueError) as reason:
                texts.append(f"PyTorch {way} did not run: {reason}")
        differences = [(f"difference of {name}s", rows["cudnn"][f"{name}_difference"],
                        ATTENTION_DIFFERENCE, False) for name in ("output", "gradient")]
        return judge("; ".join(texts), figures, differences)

    def gpt(self):
        commands = [(way, self.gpt_of_torch(way), 90)
                    for way in (["eager"] if self.quick else ["eager", "compile"])]
        with self.gpt_arguments() as arguments:
            runs, lacking = self.compared(lambda: self.ours(arguments, 60), commands)
        rate = median([run["rate"] for run in runs["lockstep"]])
        comparisons = [(f"times PyTorch {way}", ratio(rate, self.torch_rate(runs,
                                                                            way)), target, True)
                       for way, target in GPT_TARGETS.items()]
        tokens = rate * self.sizes.positions
        return self.judge(f"{tokens:.0f} tokens/s{lacking}", {
            "tokens_per_second": tokens,
            "runs": runs
        }, comparisons)

    def profile_gpt(self):
        sizes = self.sizes
        kernels = gpu_floor.gpt_kernels(sizes.gpt_batch, sizes.gpt_layers, sizes.gpt_width,
                                        sizes.positions, sizes.vocabulary)
        with self.gpt_arguments() as arguments:
            return self.profile("gpt", arguments, kernels, sizes.gpt_batch)

    def run_attention(self, needs):
        self.steps.step("speed of attention", self.attention, needs)
        self.steps.step("speed of gpt:12x768", self.gpt, needs)
        self.steps.step("kernels of gpt:12x768", self.profile_gpt, needs)

    def train_on_cifar(self, folder):
        """The validated epochs, and the time.time() at which the process started."""
        steps = self.sizes.cifar_steps
        output = self.train([
            "--model", "fast_cifar", "--data", f"{folder}/train-*.tfrecord", "--validation-data",
            f"{folder}/test-*.tfrecord", "--images", "cifar10", "--global-batch",
            self.sizes.cifar_batch, "--steps", steps, "--precision", "bfloat16", "--optimizer",
            "sgd", "--momentum", "0.9", "--nesterov", "--weight-decay", "5e-4", "--learning-rate",
            "0.4", "--lr-schedule", "linear", "--warmup-steps", steps // 5, "--label-smoothing",
            "0.1", "--log-every", "100"
        ], 60)
        epochs = validations_of(output.text)
        if not epochs:
            raise Failed("the training reported no validation")
        return epochs, output.started

    def cifar(self):
        with self.cifar_folder() as folder:
            epochs, _ = self.train_on_cifar(folder)
        best = max(epoch["validation_accuracy"] for epoch in epochs)
        spent = sum(epoch["seconds"] for epoch in epochs)
        return self.judge(f"{best:.2%} after {len(epochs)} epochs, {spent:.1f} s in the epochs",
                          {"epochs": epochs}, [("accuracy", best, CIFAR_TARGET, True)])

    def cnn(self, ways=tuple(CNN_TARGETS)):
        batch, steps = self.sizes.cnn_batch, self.sizes.cnn_steps
        arguments = [
            "--model", "cnn", "--data", "synthetic-images:28x28x1,10,60000", "--global-batch",
            batch, "--optimizer", "adam", "--learning-rate", "1e-3", "--epochs", "100", "--steps",
            steps, "--log-every",
            max(1, steps // 12)
        ]
        commands = [
            (way, ["cnn", "--way", way, "--batch",
                   str(batch), "--steps", "500", "--warm-up", "50"], 60) for way in ways
        ]
        runs, lacking = self.compared(lambda: self.ours(arguments, 60), commands)
        rate = median([run["rate"] for run in runs["lockstep"]]) / batch
        outside = median([outside_the_graph(run["breakdown"]) for run in runs["lockstep"]])
        note = (f"{rate:.0f} steps/s, {1e6 / rate:.0f} us each, of which {1e6 * outside:.0f} us "
                f"between two graphs{lacking}")
        return self.judge(note, {
            "steps_per_second": rate,
            "seconds_between_graphs": outside,
            "runs": runs
        }, [(f"times PyTorch {way}", ratio(rate * batch, self.torch_rate(
            runs, way)), CNN_TARGETS[way], True) for way in ways])

    def adam(self):
        """An update of Adam, compared with PyTorch's and with a copy of the same number of bytes by
        the driver."""
        count = self.sizes.adam_parameters
        program = [
            self.check.programs.path("lockstep_bench_update"), "--device", "gpu:0", "--parameters",
            count, "--updates", "20"
        ]

        def ours():
            return json.loads(self.steps.checked(program, 60).text)
        runs, lacking = self.compared(ours, [("fused", ["adam", "--parameters", str(count)], 60)])
        seconds = {
            "lockstep": median([run["seconds_per_update"] for run in runs["lockstep"]]),
            "copy": median([
                run["bytes_per_update"] / run["copy_bytes_per_second"]
                for run in runs["lockstep"]
                if "copy_bytes_per_second" in run
            ]),
            "PyTorch": median(
                [value for run in runs.get("fused", []) for value in run["seconds_per_step"]])
        }
        seconds = {name: value for name, value in seconds.items() if value}
        note = ", ".join(f"{name} {1e3 * value:.3f} ms"
                         for name, value in seconds.items()) + lacking
        figures = {"seconds": seconds, "runs": runs}
        if not self.limits:
            return f"{note}; this script does not know the bandwidth of this GPU", figures
        figures["share_of_bandwidth"] = {
            name: adam_floor(self.limits, count) / value
            for name, value in seconds.items()
        }
        return self.judge(note, figures,
                          [("share of the memory's bandwidth",
                            figures["share_of_bandwidth"]["lockstep"], BANDWIDTH_TARGET, True)])

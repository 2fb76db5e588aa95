"""The measurements of scripts/gpu_check: Lockstep and PyTorch on the same GPU, alternating; medians."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from gpu_find import BUILD, LOCKSTEP
from gpu_steps import Failed, NotRun
from gpu_tools import adam_floor, gpu_limits, median, ratio, resnet50_floor, steady, training_of

RESNET_BATCH, CNN_BATCH, ADAM_PARAMETERS = 256, 64, 100_000_000
# Targets: at least this multiple of PyTorch's speed, at most this share of its memory, at least this share of the bandwidth.
RESNET_TARGETS = {"compile": 1.0, "eager": 1.25}
CNN_TARGETS = {"eager": 5.0, "graph": 1.5}
MEMORY_TARGET, BANDWIDTH_TARGET = 1.05, 0.9
NOT_BOUND_BY_INPUT = 0.95  # of the speed with images that need no reading
TORCH = [sys.executable, str(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_bench_torch.py"))]


def torch_version():
    """PyTorch's version if it can use the GPU, or None."""
    answer = subprocess.run([sys.executable, "-c", "import torch; print(torch.__version__ if torch.cuda.is_available() else '')"],
                            capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def missed(text, figures):
    error = Failed(text)
    error.figures = figures
    return error


def judge(what, figures, comparisons):
    """What was measured, and its comparisons: (with what, reached, needed, whether more is better). Failed if one of them is missed;
    those without a figure are skipped."""
    told = [row for row in comparisons if row[1] is not None]
    notes = [f"{beside} {reached:.2f} (expected {'at least' if more else 'at most'} {needed:g})" for beside, reached, needed, more in told]
    if any(reached < needed if more else reached > needed for _, reached, needed, more in told):
        raise missed("; ".join([f"missed: {what}", *notes]), figures)
    return "; ".join([what, *(notes or ["nothing to compare it with"])]), figures


def sums_in(cache, precision):
    """From a cache of convolutions: the names of those in `precision` for which fused sums of the output were tried, and of those for which
    they were faster."""
    tried = [name for name in cache if name.startswith("forward with sums of ") and f" in {precision} " in name]
    return tried, [name for name in tried if cache[name][0] >= 0]


class Speed:
    def __init__(self, check):
        self.check, self.steps = check, check.steps
        self.quick = check.options.quick
        self.rounds = 1 if self.quick else 2
        self.torch = torch_version()
        self.limits = gpu_limits(check.gpus[0]["name"])
        if self.torch:
            check.versions["torch"] = self.torch

    def ours(self, arguments, limit):
        """A training's rate in samples per second: the median of its reports except the first ones."""
        output = self.steps.checked([LOCKSTEP, "train", "--devices", "gpu:0", "--log-format", "json", *arguments], limit, watch_memory=True)
        training = training_of(output.text)
        rates = steady(training["rates"])
        if not rates:
            raise Failed("the training reported no step")
        waited = training["input_wait_seconds"] / training["seconds"] if training["seconds"] else None
        return {"rate": median(rates), "rates": rates, "gpu_mib": output.gpu_mib, "input_wait_share": waited, "start": training["start"]}

    def theirs(self, arguments, limit):
        output = self.steps.checked([*TORCH, *arguments], limit, environment=dict(os.environ), watch_memory=True)
        return dict(json.loads(output.text.splitlines()[-1]), gpu_mib=output.gpu_mib)

    def compared(self, ours, ways):
        """Alternating rounds: {"lockstep": [...], way: [...]}, and a note on ways of PyTorch that failed, which do not invalidate our results."""
        runs, notes = {"lockstep": []}, {}
        for _ in range(self.rounds):
            runs["lockstep"].append(ours())
            for way, command, limit in ways if self.torch else ():
                try:
                    runs.setdefault(way, []).append(self.theirs(command, limit))
                except (Failed, NotRun, ValueError) as reason:
                    notes[way] = str(reason)
        lacking = "".join(f"; PyTorch {way} did not run: {reason}" for way, reason in notes.items())
        return runs, lacking

    @staticmethod
    def resnet50_arguments(precision, steps, data=f"synthetic-images:224x224x3:1000:{RESNET_BATCH * 8}"):
        return ["--model", "resnet50", "--data", data, "--global-batch", RESNET_BATCH, "--precision", precision, "--optimizer", "sgd",
                "--momentum", "0.9", "--learning-rate", "0.1", "--epochs", "100", "--steps", steps, "--log-every", "10"]

    def resnet50(self):
        arguments = self.resnet50_arguments("bfloat16", 60 if self.quick else 120)
        ways = ["eager"] if self.quick else ["eager", "compile"]
        commands = [(way, ["resnet50", "--way", way, "--batch", str(RESNET_BATCH), "--steps", "20"], 120) for way in ways]
        runs, lacking = self.compared(lambda: self.ours(arguments, 120), commands)
        rate = median([run["rate"] for run in runs["lockstep"]])
        figures = {"samples_per_second": rate, "runs": runs}
        told = f"{rate:.0f} images/s"
        if self.limits:
            floor = resnet50_floor(self.limits, RESNET_BATCH)
            figures |= {"floor": floor, "share_of_floor": floor["seconds"] * rate / RESNET_BATCH}
            told += f", {figures['share_of_floor']:.0%} of the limit of memory and arithmetic"
        waited = median([run["input_wait_share"] for run in runs["lockstep"] if run["input_wait_share"] is not None])
        if waited is not None:
            told += f", {waited:.0%} of the time spent waiting for input"
        comparisons = [(f"times PyTorch {way}", ratio(rate, self.torch_rate(runs, way)), target, True)
                       for way, target in RESNET_TARGETS.items()]
        mine, other = self.peak(runs, "lockstep"), self.peak(runs, "eager")
        comparisons.append(("peak memory, times PyTorch's", ratio(mine, other), MEMORY_TARGET, False))
        figures["peak_mib"] = {"lockstep": mine, "torch": other}
        return judge(told + lacking, figures, comparisons)

    def jpeg(self):
        """ResNet-50 from TFRecord files of made-up JPEG images, decoded, cropped and flipped, compared with images that need no preparation."""
        if "--images" not in self.check.help:
            raise NotRun("this version has no --images")
        folder = self.steps.folder / "jpeg"
        self.steps.checked([BUILD / "apps/bench/lockstep_bench_jpeg_records", folder, "--files", 8, "--records", RESNET_BATCH * 16], 60)
        try:
            arguments = self.resnet50_arguments("bfloat16", 40, f"{folder}/train-*.tfrecord")
            run = self.ours([*arguments, "--images", "imagenet", "--classes", 1000], 120)
            free = self.ours(self.resnet50_arguments("bfloat16", 40), 120)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        share = ratio(run["rate"], free["rate"])
        figures = {"samples_per_second": run["rate"], "of_made_up_images": free["rate"], "processors": os.cpu_count(), "run": run}
        told = f"{run['rate']:.0f} images/s with {os.cpu_count()} processors, {share:.0%} of those from made-up images"
        if run["input_wait_share"] is not None:
            told += f", {run['input_wait_share']:.0%} of the time spent waiting for input"
        return f"{told}: {'bound by input' if share < NOT_BOUND_BY_INPUT else 'not bound by input'}", figures

    def fused_statistics(self):
        """ResNet-50 with fused statistics in the convolutions for which they were faster alone, and without any."""
        if self.quick:
            raise NotRun("skipped by --quick")
        file = pathlib.Path(self.steps.environment["LOCKSTEP_CACHE_DIR"]) / "convolutions.json"
        notes, figures = [], {}
        for precision in ("bfloat16", "float16"):
            def ours():
                return self.ours(self.resnet50_arguments(precision, 60), 120)["rate"]
            together = [ours()]  # chooses
            cache = json.loads(file.read_text())
            tried, chosen = sums_in(cache, precision)
            figures[precision] = {"tried": len(tried), "chosen": len(chosen)}
            note = f"{precision}: {len(chosen)} of {len(tried)} kinds of convolutions"
            if chosen:
                together.append(ours())
                file.write_text(json.dumps(cache | {name: [-1, 0, 0] for name in chosen}))
                try:
                    apart = [ours(), ours()]
                finally:
                    file.write_text(json.dumps(cache))
                figures[precision] |= {"samples_per_second": median(together), "apart_samples_per_second": median(apart)}
                note += f", {median(together):.0f} images/s, apart {median(apart):.0f}"
            notes.append(note)
        return "; ".join(notes), figures

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
        program = [BUILD / "apps/bench/lockstep_bench_update", "--device", "gpu:0", "--parameters", ADAM_PARAMETERS, "--updates", "20"]

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

    @staticmethod
    def peak(runs, side):
        return median([run["gpu_mib"] for run in runs.get(side, []) if run["gpu_mib"]])


def measure(check, built):
    """The steps whose names begin with "speed"."""
    speed = Speed(check)
    steps = check.steps
    steps.step("speed of adam, 100 million parameters", speed.adam, built)
    steps.step("speed of cnn", speed.cnn, built)
    steps.step("speed of resnet50", speed.resnet50, built)
    steps.step("speed of resnet50 from JPEG records", speed.jpeg, built)
    steps.step("speed of resnet50 without fused statistics", speed.fused_statistics, built)

    def left_out(reason):
        def action():
            raise NotRun(reason)
        return action
    steps.step("PyTorch", (lambda: speed.torch) if speed.torch else left_out("python3 has no torch that can use the GPU"))
    if check.options.quick:
        steps.step("torch.compile", left_out("skipped by --quick"))
    steps.step("CIFAR-10 to 94 %", left_out("its data is not in the repository"))

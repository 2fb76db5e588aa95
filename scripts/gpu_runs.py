"""What the measurements of scripts/gpu_check have in common: trainings of Lockstep, PyTorch's side,
and how they are compared."""

import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile

import gpu_floor
from gpu_steps import Failed, NotRun
from gpu_tools import REHEARSAL, Sizes, gpu_limits, median, steady, training_of
from gpu_trainings import MPIRUN

# torch.compile caches its results for later processes.
TORCH_ENVIRONMENT = dict(os.environ, TORCHINDUCTOR_FX_GRAPH_CACHE="1",
                         TORCHINDUCTOR_AUTOGRAD_CACHE="1")
TORCH = [
    sys.executable,
    str(os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_bench_torch.py"))
]


def torch_version():
    """PyTorch's version if it can use the GPU, or None."""
    answer = subprocess.run([
        sys.executable, "-c",
        "import torch; print(torch.__version__ if torch.cuda.is_available() else '')"
    ], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def write_text(path, vocabulary, characters):
    """Random characters, each of `vocabulary` at least once, some beyond 16 bits."""
    known = [chr(0x10000 + i) for i in range(vocabulary)]
    generator = random.Random(1)
    text = known + generator.choices(known, k=characters - vocabulary)
    generator.shuffle(text)
    path.write_text("".join(text), encoding="utf-8")


def judge(what, figures, comparisons):
    """What was measured, and its comparisons: (with what, reached, needed, whether more is better).
    Failed if one of them is missed; those without a figure are skipped."""
    told = [row for row in comparisons if row[1] is not None]
    notes = [
        f"{beside} {reached:.2f} (expected {'at least' if more else 'at most'} {needed:g})"
        for beside, reached, needed, more in told
    ]
    if any(reached < needed if more else reached > needed for _, reached, needed, more in told):
        error = Failed("; ".join([f"missed: {what}", *notes]))
        error.figures = figures
        raise error
    return "; ".join([what, *(notes or ["nothing to compare it with"])]), figures


class Runs:
    def __init__(self, check):
        self.check, self.steps = check, check.steps
        self.quick = check.options.quick
        self.rounds = 1 if self.quick else 2
        self.rehearses = check.options.rehearse
        self.sizes = REHEARSAL if self.rehearses else Sizes()
        self.limits = gpu_limits(check.gpus[0]["name"])
        self._torch = None

    def torch(self):
        """PyTorch's version; NotRun if it is absent. Queried once on demand, because it takes
        seconds."""
        if self._torch is None:
            self._torch = torch_version() or ""
            if self._torch:
                self.check.versions["torch"] = self._torch
        if not self._torch:
            raise NotRun("python3 has no torch that can use the GPU")
        return self._torch

    def judge(self, what, figures, comparisons):
        """judge(), but a rehearsal is not judged by its speed."""
        return judge(what, figures, [] if self.rehearses else comparisons)

    def train(self, arguments, limit, devices="gpu:0", ranks=1, **more):
        launcher = [*MPIRUN, "-np", ranks] if ranks > 1 else []
        reports = [] if "--log-every" in arguments else ["--log-every", self.sizes.log_every]
        return self.steps.checked([
            *launcher,
            self.check.programs.path("lockstep"), "train", "--checkpoint-dir", "none", "--devices",
            devices, "--log-format", "json", *reports, *arguments
        ], limit, **more)

    def ours(self, arguments, limit, **more):
        """A training's rate in samples per second: the median of its reports except the first
        ones."""
        training = training_of(self.train(arguments, limit, **more).text)
        rates = steady(training["rates"])
        if not rates:
            raise Failed("the training reported no step")
        waited = training["input_wait_seconds"] / training["seconds"] if training[
            "seconds"] else None
        return {
            "rate": median(rates),
            "rates": rates,
            "input_wait_share": waited,
            "start": training["start"],
            "breakdown": training["breakdown"]
        }

    def theirs(self, arguments, limit, **more):
        output = self.steps.checked([*TORCH, *arguments], limit, environment=TORCH_ENVIRONMENT,
                                    **more)
        return dict(json.loads(output.text.splitlines()[-1]), gpu_mib=output.gpu_mib,
                    started=output.started)

    def compared(self, ours, ways):
        """Alternating rounds: {"lockstep": [...], way: [...]}, and a note on ways of PyTorch that
        failed, which do not invalidate our results."""
        runs, notes = {"lockstep": []}, {}
        for _ in range(self.rounds):
            try:
                runs["lockstep"].append(ours())
            except NotRun:
                if not runs["lockstep"]:
                    raise
                break  # the time is over: what was measured counts
            for way, command, limit in ways:
                if way in notes:  # it will not be quicker this time
                    continue
                try:
                    self.torch()
                    runs.setdefault(way, []).append(self.theirs(command, limit))
                except (Failed, NotRun, ValueError) as reason:
                    notes[way] = str(reason)
        lacking = "".join(f"; PyTorch {way} did not run: {reason}" for way, reason in notes.items())
        return runs, lacking

    @staticmethod
    def torch_rate(runs, way):
        return median([rate for run in runs.get(way, []) for rate in run["rates"]])

    # ---- Arguments of trainings

    def resnet50_arguments(self, precision, steps, batch=None, data=None, statistics="never"):
        sizes = self.sizes
        batch, steps = batch or sizes.resnet_batch, min(steps, sizes.resnet_steps)
        arguments = [
            "--model", sizes.resnet, "--data", data
            or f"synthetic-images:{sizes.image}x{sizes.image}x3,1000,{batch * 8}", "--global-batch",
            batch, "--precision", precision, "--optimizer", "sgd", "--momentum", "0.9",
            "--learning-rate", "0.1", "--epochs", "100", "--steps", steps
        ]
        return [*arguments, "--fused-statistics", statistics
                ] if "--fused-statistics" in self.check.help else arguments

    @contextlib.contextmanager
    def gpt_arguments(self, replicas=1):
        """Arguments of a training on a generated text with GPT-2's number of tokens as characters;
        the text exists as long as this object."""
        sizes = self.sizes
        batch = replicas * sizes.gpt_batch
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder, "text.txt")
            write_text(text, sizes.vocabulary, max(8 * batch * sizes.positions,
                                                   2 * sizes.vocabulary))
            yield [
                "--model", f"gpt:{sizes.gpt_layers}x{sizes.gpt_width}", "--data",
                f"text:{text}:tokenizer=chars,length={sizes.positions}", "--global-batch", batch,
                "--precision", "bfloat16", "--optimizer", "adamw", "--learning-rate", "3e-4",
                "--epochs", "100", "--steps", sizes.gpt_steps
            ]

    def gpt_of_torch(self, way):
        """The arguments of PyTorch's side."""
        sizes = self.sizes
        return [
            "gpt", "--way", way, "--batch",
            str(sizes.gpt_batch), "--positions",
            str(sizes.positions), "--layers",
            str(sizes.gpt_layers), "--width",
            str(sizes.gpt_width), "--vocabulary",
            str(sizes.vocabulary), "--steps", "10"
        ]

    @contextlib.contextmanager
    def cifar_folder(self):
        """The folder of the shards of CIFAR-10: LOCKSTEP_BENCH_CIFAR10, or unpacked from
        scripts/gpu_pack --cifar10."""
        if named := os.environ.get("LOCKSTEP_BENCH_CIFAR10"):
            yield named
            return
        packed = self.check.programs.prebuilt and self.check.programs.prebuilt / "cifar10.tar"
        if not packed or not packed.is_file():
            raise NotRun(
                "its data is not here: set LOCKSTEP_BENCH_CIFAR10, or pack it with "
                "scripts/gpu_pack --prebuilt --cifar10 FOLDER"
            )
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(packed) as archive:
                archive.extractall(folder)
            yield folder

    # ---- Profiles

    def profile(self, name, arguments, kernels, batch):
        """The time of each kernel and its floor, in two files; `kernels` are those of gpu_floor."""
        if "--profile" not in self.check.help:
            raise NotRun("not built: lockstep train --profile")
        file = self.steps.folder / f"profile_{name}.jsonl"
        self.train([*arguments, "--profile", file], 60)
        pieces = {piece["name"]: piece["ms"] for piece in gpu_floor.read_profile(file)}
        if not self.limits:
            return f"this script does not know the data sheet of this GPU; {file.name}", {
                "milliseconds": pieces
            }
        text, share, gaps = gpu_floor.report(self.check.gpus[0]["name"], kernels, batch, file)
        self.steps.log(text + "\n")
        return (
            f"the floors of all kernels are {share:.0%} of their time; largest gaps: {gaps}; "
            f"{file.name}, and log.txt for the table",
            {
                "share_of_floors": share,
                "milliseconds": pieces
            })

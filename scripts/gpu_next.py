"""scripts/gpu_check --next: what is undecided on one GPU, in one call of nine minutes, the most
decisive first."""

import json

from gpu_runs import TORCH, TORCH_ENVIRONMENT
from gpu_speed import Speed
from gpu_steps import Failed, NotRun
from gpu_tools import ratio
from gpu_trainings import Trainings

# (step, time limit in seconds, what it decides). The last one also has the remaining time.
NEXT = [
    ("changed", 75,
     "whether the kernels that changed since the last run compute what the CPU computes"),
    ("gpt", 145,
     "tokens a second of gpt:12x768 against PyTorch, eager (aim 1.25) and compiled (aim 1.0), and "
     "where its time goes"
     ),
    ("stem", 100,
     "which way of computing the first convolution of ResNet-50 is the fastest, and what the "
     "network gains by it"
     ), ("cnn", 40, "steps a second of a small network against PyTorch's CUDA graph (aim 1.5)"),
    ("adam", 30,
     "the share of the memory's bandwidth that the update reaches (aim 0.9), beside a copy"),
    ("jpeg", 40, "whether 16 threads decode as fast as ResNet-50 trains"),
    ("accuracy", 50,
     "seconds from the start of a process to an accuracy, against PyTorch with the same recipe and "
     "files"
     ),
    ("ranks", 20,
     "whether several ranks and replicas on this GPU train as one does, over a ring and with "
     "graphs in parts, and what becomes of a rank that is lost"),
]
# The tests of what changed, by module, the most decisive first.
CHANGED = {
    # The update, cross-entropy, rows of logits with gaps, convolutions of few channels, and every
    # kind of layer once; not in float16, whose kernels are those of bfloat16.
    "model": "*UpdaterOn*:*GpuInput*:*ConvolutionOnGpu*:*Folded*:*Reference*:"
             "*GpuAgreement.TrainsAsTheCpuDoes*-*_float16*",
    "strategy": "*",
    "device": "*",
    "allreduce": "OnAGpu.*:NcclOnAGpu.*:GpuWork*",
}
# accuracy on CIFAR-10 as it was compressed to JPEG, which limits both sides to 0.889
REACHED = 0.88
TORCH_COMPILES = 120  # seconds from its start


class Next(Speed):
    def __init__(self, check):
        super().__init__(check)
        self.trainings, self.compilation = Trainings(check), None

    def actions(self, needs):
        """What each step runs, by its name."""
        return {
            "changed": lambda: self.run_changed(needs),
            "gpt": lambda: self.run_gpt(needs),
            "stem": lambda: self.run_stem(needs),
            "cnn": lambda: self.steps.step("cnn and PyTorch's graph in turns", lambda: self.cnn(
                ["graph"]), needs),
            "adam": lambda: self.steps.step("speed of adam, 100 million parameters", self.adam,
                                            needs),
            "jpeg": lambda: self.steps.step("speed of resnet50 from JPEG records", self.jpeg, needs
                                            ),
            "accuracy": lambda: self.steps.step("time to accuracy on CIFAR-10", self.
                                                time_to_accuracy, needs),
            "ranks": lambda:
            [run(needs) for run in (self.trainings.run_ranks, self.trainings.run_all)]
        }

    # torch.compile takes a minute or more, and keeps what it made in a folder: one process compiles
    # while the tests run, and those that are measured find it there.

    def run_changed(self, needs):
        if not self.quick:
            self.compilation = self.steps.start([
                *TORCH, *self.gpt_of_torch("compile"), "--rounds", "1"
            ], TORCH_ENVIRONMENT)
        for module, tests in CHANGED.items():
            self.steps.step(f"tests of {module}", lambda m=module, t=tests: self.check.test(m, t),
                            needs)

    def compiled(self):
        if self.compilation is None:
            raise NotRun("nothing was compiled: the step changed did not run, or --quick")
        self.torch()
        output = self.compilation.end(
            max(0, min(TORCH_COMPILES - self.compilation.seconds(), self.steps.remaining())))
        if output.status != 0:
            raise Failed(f"status {output.status}: {output.last_words()}")
        return f"{output.seconds:.0f} s in the background"

    def run_gpt(self, needs):
        self.steps.step("PyTorch compiles gpt", self.compiled)
        self.steps.step("kernels of gpt:12x768", self.profile_gpt, needs)
        self.steps.step("gpt:12x768 and PyTorch in turns", self.gpt, needs)

    # ---- The first convolution of ResNet-50

    def stem(self):
        """Lines of JSON: {"kind": "stem", "pass": "forward" or "weights", "way": …, "ms": …}, and
        of other kinds."""
        file = self.steps.folder / "stem.jsonl"
        more = ["--batch", self.sizes.resnet_batch] if self.rehearses else []
        self.steps.checked([
            self.check.programs.path("lockstep_bench_convolutions"), "--only", "stem", "--json",
            file, *more
        ], 40)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        rows = [row for row in lines if row.get("kind") == "stem"]
        if not rows:
            raise Failed("no way was measured")
        texts = []
        for part in dict.fromkeys(row["pass"] for row in rows):
            ways = sorted((row for row in rows if row["pass"] == part and row["ms"] is not None),
                          key=lambda row: row["ms"])
            texts.append(f"{part}: " + (", ".join(f"{row['way']} {row['ms']:.3f} ms"
                                                 for row in ways) or "none works"))
        return "; ".join(texts), {"rows": lines}

    def profile_stem(self):
        note, figures = self.profile_resnet50("bfloat16")
        spent = [
            f"{name} {ms:.3f} ms" for name, ms in figures["milliseconds"].items()
            if name.startswith("conv1 ")
        ]
        return "; ".join([*spent, note]), figures

    def run_stem(self, needs):
        self.steps.step("ways of the first convolution", self.stem, needs)
        self.steps.step("speed of resnet50 in bfloat16", lambda: self.resnet50("bfloat16"), needs)
        self.steps.step("kernels of resnet50 in bfloat16", self.profile_stem, needs)

    # ---- Time to accuracy

    def time_to_accuracy(self):
        accuracy = 0 if self.rehearses else REACHED
        runs, notes = {}, []
        with self.cifar_folder() as folder:
            runs["lockstep"] = self.train_on_cifar(folder)
            for way in ("eager", "compile"):
                try:
                    self.torch()
                    run = self.theirs([
                        "fast_cifar", "--way", way, "--data",
                        str(folder), "--batch",
                        str(self.sizes.cifar_batch), "--steps",
                        str(self.sizes.cifar_steps)
                    ], 60)
                    runs[way] = run["epochs"], run["started"]
                except (Failed, NotRun, ValueError) as reason:
                    notes.append(f"; PyTorch {way} did not run: {reason}")
        figures, texts = {}, []
        for way, (epochs, started) in runs.items():
            best = max(epoch["validation_accuracy"] for epoch in epochs)
            reached = next((epoch["time"] - started
                            for epoch in epochs
                            if epoch["validation_accuracy"] >= accuracy), None)
            figures[way] = {
                "seconds": reached,
                "of_all_epochs": epochs[-1]["time"] - started,
                "best": best,
                "epochs": epochs
            }
            texts.append(
                f"{way} {'never' if reached is None else f'{reached:.1f} s'} to {accuracy:.0%}, "
                f"{figures[way]['of_all_epochs']:.1f} s for {len(epochs)} epochs, at best "
                f"{best:.2%}"
            )
        mine, others = figures["lockstep"]["seconds"], [
            figures[way]["seconds"] for way in runs if way != "lockstep" and figures[way]["seconds"]
        ]
        return self.judge("; ".join(texts) + "".join(notes), figures,
                          [("times PyTorch's speed",
                            ratio(min(others), mine) if others and mine else None, 1.0, True)])

"""scripts/gpu_check --several: measurements that require several GPUs, in five minutes."""

from gpu_runs import Runs
from gpu_steps import NotRun
from gpu_tools import ratio
from gpu_trainings import Trainings

# (step, time limit in seconds, what it decides).
SEVERAL = [
    ("equality", 65,
     "whether replicas on all GPUs train as one does, in one process and in one for each GPU, by "
     "NCCL and through the host"
     ),
    ("routes", 45, "whether NCCL and the way through host memory keep their promises between GPUs"),
    ("link", 20, "bytes a second between neighbouring GPUs, all of them at once"),
    ("resnet50", 70,
     "images a second of all GPUs against one, by NCCL and through the host, beside the floor of "
     "the link"
     ), ("gpt", 70, "tokens a second of gpt:12x768, likewise"),
]
GRADIENT_BYTES = 4  # per parameter: gradients are summed in float32
SCALING_TARGET = 0.9  # speed per GPU relative to a single GPU


class Several(Runs):
    def __init__(self, check):
        super().__init__(check)
        self.trainings = Trainings(check)
        self.gpus = len(check.gpus)
        self.bytes_per_second = None

    def actions(self, needs):
        """What each step of SEVERAL runs, by its name."""
        def group(name, action):
            return lambda: self.steps.step(name, lambda: self.on_several(action), needs)
        return {"equality": lambda: self.run_equality(needs),
                "routes": group("tests of allreduce", lambda: self.check.test("allreduce")),
                "link": group("links between the GPUs", self.link),
                "resnet50": group("scaling of resnet50", self.scale_resnet50),
                "gpt": group("scaling of gpt:12x768", self.scale_gpt)}

    def on_several(self, action):
        if self.gpus < 2:
            raise NotRun("there is only one GPU")
        return action()

    def run_equality(self, needs):
        trainings = self.trainings

        def step(name, action):
            self.steps.step(name, lambda: self.on_several(action), needs)
        for network in ["cnn"] if self.rehearses else ["cnn", "resnet18"]:
            more = ["--bn", "sync"] if network == "resnet18" else []
            step(f"all GPUs of one process, {network}",
                 lambda n=network, m=more: trainings.like_one_gpu(n, "gpu:all", more=m))
        step("a process for each GPU", lambda: trainings.like_one_gpu("cnn", "auto", self.gpus))
        step("through host memory",
             lambda: trainings.like_one_gpu("cnn", "gpu:all", more=["--allreduce", "staged"]))
        step("a process for each GPU, through host memory",
             lambda: trainings.like_one_gpu("cnn", "auto", self.gpus, ["--allreduce", "staged"]))
        exact = ["--deterministic"]
        step(
            "graph on and off, all GPUs", lambda: trainings.same_bits(
                trainings.train(devices="gpu:all", more=exact),
                trainings.train(devices="gpu:all", more=[*exact, "--no-graph"])))

    def link(self):
        self.torch()
        run = self.theirs(["link"], 20)
        self.bytes_per_second = run["bytes_per_second"]
        return (f"{self.bytes_per_second / 1e9:.0f} GB/s in each direction of the slowest pair, "
                "by PyTorch's copies"), run

    def scale_resnet50(self):
        def arguments(replicas):
            return self.resnet50_arguments("bfloat16", 80, replicas * self.sizes.resnet_batch)
        return self.scaling(arguments(1), arguments(self.gpus), "images", self.sizes.resnet_batch)

    def scale_gpt(self):
        with self.gpt_arguments() as one, self.gpt_arguments(self.gpus) as all_gpus:
            return self.scaling(one, all_gpus, "sequences", self.sizes.gpt_batch)

    def scaling(self, one, all_gpus, unit, batch):
        """The rate of all GPUs with the samples per GPU of a single one, relative to that one, for
        every route and kind of process."""
        alone = self.ours(one, 30)
        texts, shares = [f"one GPU {alone['rate']:.0f} {unit}/s"], {}
        figures = {"one": alone, "gpus": self.gpus, "runs": {}, "share_of_one": shares}
        for name, ranks, route in (("one process, NCCL", 1,
                                    "nccl"), ("a process for each GPU, NCCL", self.gpus, "nccl"),
                                   ("one process, through the host", 1, "staged")):
            run = self.ours([*all_gpus, "--allreduce", route], 30,
                            devices="auto" if ranks > 1 else "gpu:all", ranks=ranks)
            figures["runs"][name] = run
            shares[name] = ratio(run["rate"], self.gpus * alone["rate"])
            texts.append(
                f"{name} {run['rate']:.0f} {unit}/s, {shares[name]:.0%} of {self.gpus} times one")
        texts.append(self.floor_of_link(alone, batch, figures))
        return self.judge("; ".join(texts), figures, [
            ("share with NCCL", max(list(shares.values())[:2]), SCALING_TARGET, True)
        ])

    def floor_of_link(self, alone, batch, figures):
        """The bytes of an all-reduce over the link of a GPU, and their time relative to a step of
        one GPU."""
        size = 2 * (self.gpus - 1) / self.gpus * GRADIENT_BYTES * alone["start"]["parameters"]
        if self.bytes_per_second is None:
            return f"{size / 1e6:.0f} MB over each link in a step, whose speed is not known"
        floor, step = size / self.bytes_per_second, batch / alone["rate"]
        figures |= {"bytes_over_a_link": size, "floor_seconds": floor}
        return (f"{size / 1e6:.0f} MB over each link in a step take {1e3 * floor:.2f} ms of its "
                f"{1e3 * step:.1f} ms or more, and may overlap with it")

"""Tests the computations of scripts/gpu_check and the execution of its steps, without a GPU."""

import contextlib
import ctypes
import io
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import gpu_check  # noqa: E402
import gpu_find  # noqa: E402
import gpu_floor  # noqa: E402
import gpu_next  # noqa: E402
import gpu_runs  # noqa: E402
import gpu_several  # noqa: E402
import gpu_speed  # noqa: E402
import gpu_tools  # noqa: E402
import gpu_trainings  # noqa: E402
from gpu_steps import Failed, GpuMemory, NotRun, NvmlMemory, Output, Steps  # noqa: E402

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


class Floors(unittest.TestCase):
    def test_match_the_most_specific_gpu_name(self):
        self.assertEqual(gpu_tools.gpu_limits("NVIDIA H200")["memory_bytes_per_second"], 4.8e12)
        self.assertEqual(
            gpu_tools.gpu_limits("NVIDIA GH200 480GB")["memory_bytes_per_second"], 4.0e12)
        self.assertEqual(
            gpu_tools.gpu_limits("NVIDIA H100 PCIe")["memory_bytes_per_second"], 2.0e12)
        self.assertEqual(
            gpu_tools.gpu_limits("NVIDIA H100 80GB HBM3")["memory_bytes_per_second"], 3.35e12)
        self.assertEqual(
            gpu_tools.gpu_limits("NVIDIA A100-SXM4-80GB")["memory_bytes_per_second"], 2.039e12)
        self.assertEqual(gpu_tools.gpu_limits("NVIDIA L4")["bfloat16_flops_per_second"], 121e12)
        self.assertEqual(gpu_tools.gpu_limits("NVIDIA L40S")["bfloat16_flops_per_second"], 362e12)

    def test_are_unknown_for_other_gpus(self):
        self.assertIsNone(gpu_tools.gpu_limits("NVIDIA GeForce 9800 GT"))
        self.assertIsNone(gpu_tools.gpu_limits("NVIDIA L400"))

    def test_of_adam_is_32_bytes_per_parameter(self):
        self.assertAlmostEqual(
            gpu_tools.adam_floor({"memory_bytes_per_second": 3.2e12}, 100_000_000), 1e-3)

    def test_of_resnet50_is_the_larger_one(self):
        floor = gpu_tools.resnet50_floor(
            {
                "memory_bytes_per_second": 1e12,
                "bfloat16_flops_per_second": 1e15
            }, 256)
        self.assertAlmostEqual(floor["arithmetic_seconds"], 3 * 8.2e9 * 256 / 1e15)
        self.assertAlmostEqual(floor["memory_seconds"], 111e6 * 256 / 1e12)
        self.assertEqual(floor["seconds"], floor["memory_seconds"])


class Numbers(unittest.TestCase):
    def test_medians(self):
        self.assertEqual(gpu_tools.median([3, 1, 2]), 2)
        self.assertEqual(gpu_tools.median([4, 1, 2, 3]), 2.5)
        self.assertIsNone(gpu_tools.median([]))

    def test_ratios_need_both_sides(self):
        self.assertEqual(gpu_tools.ratio(3, 2), 1.5)
        self.assertIsNone(gpu_tools.ratio(None, 2))
        self.assertIsNone(gpu_tools.ratio(3, None))

    def test_the_first_rates_are_ignored(self):
        self.assertEqual(gpu_tools.steady([1, 2, 30, 40]), [30, 40])
        self.assertEqual(gpu_tools.steady([1, 2]), [1, 2])

    def test_losses_differ_by_the_worst_pair(self):
        self.assertAlmostEqual(gpu_tools.loss_difference([2.0, 1.0], [2.0, 0.9]), 0.1)
        self.assertEqual(gpu_tools.loss_difference([1.0], [1.0, 1.0]), math.inf)
        self.assertEqual(gpu_tools.loss_difference([], []), math.inf)
        self.assertEqual(gpu_tools.loss_difference([math.nan], [math.nan]), math.inf)

    def test_a_capability_is_an_architecture(self):
        self.assertEqual(gpu_tools.architecture("9.0"), "90")
        self.assertEqual(gpu_tools.architecture(" 12.0\n"), "120")


class Outputs(unittest.TestCase):
    def test_of_a_training(self):
        training = gpu_tools.training_of(
            'a warning of mpirun\n{"event":"start","world_size":2}\n'
            '{"event":"step","step":1,"loss":2.5,"samples_per_second":10,'
            '"input_wait_seconds":0.5}\n'
            '{"event":"step","step":2,"skipped":true,"samples_per_second":20,'
            '"input_wait_seconds":0.25,'
            '"breakdown":{"input":1,"compute":2,"update":4,"other":8}}\n'
            '{"event":"end","seconds":3.0,"parameter_hash":"00ff"}\n')
        self.assertEqual(
            training, {
                "losses": [2.5],
                "skipped": 1,
                "rates": [10, 20],
                "input_wait_seconds": 0.75,
                "hash": "00ff",
                "breakdown": {
                    "input": 1,
                    "compute": 2,
                    "update": 4,
                    "other": 8
                },
                "seconds": 3.0,
                "start": {
                    "event": "start",
                    "world_size": 2
                }
            })
        self.assertEqual(gpu_tools.outside_the_graph(training["breakdown"]), 9)

    def test_of_an_interrupted_training(self):
        self.assertIsNone(gpu_tools.training_of("{")["hash"])

    def test_of_tests(self):
        text = ("[==========] 5 tests ran.\n[  PASSED  ] 3 tests.\n"
                "[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] A.B\n[  FAILED  ] 1 test, listed")
        self.assertEqual(gpu_tools.test_counts(text), {"passed": 3, "skipped": 1, "failed": 1})
        self.assertEqual(gpu_tools.test_counts(""), {"passed": 0, "skipped": 0, "failed": 0})

    def test_of_nvidia_smi(self):
        self.assertEqual(
            gpu_tools.parse_gpus("NVIDIA H200, GPU-1, 580.1, 143771, 9.0\nno device\n"), [{
                "name": "NVIDIA H200",
                "uuid": "GPU-1",
                "driver": "580.1",
                "memory_mib": 143771,
                "compute_capability": "9.0"
            }])


class Tables(unittest.TestCase):
    def test_have_columns_of_minimum_width(self):
        self.assertEqual(gpu_tools.table(["step", "note"], [["a long one", 1], ["b", ""]]),
                         "step        note\na long one  1\nb")

    def test_of_markdown(self):
        self.assertEqual(gpu_tools.markdown(["a", "b"], [["x|y", 1]]),
                         "| a | b |\n| --- | --- |\n| x\\|y | 1 |")


class Judgements(unittest.TestCase):
    def test_report_reached_goals(self):
        note, _ = gpu_runs.judge("10 steps/s", {}, [("times PyTorch", 1.5, 1.5, True),
                                                    ("unknown", None, 1, True),
                                                    ("memory", 1.0, 1.05, False)])
        self.assertEqual(
            note,
            "10 steps/s; times PyTorch 1.50 (expected at least 1.5); memory 1.00 (expected at most "
            "1.05)"
        )

    def test_fail_missed_goals_and_keep_figures(self):
        for reached, more in [(1.4, True), (1.6, False)]:
            with self.assertRaisesRegex(Failed, "missed: 10 steps/s; it 1.[46]0") as caught:
                gpu_runs.judge("10 steps/s", {"key": 1}, [("it", reached, 1.5, more)])
            self.assertEqual(caught.exception.figures, {"key": 1})

    def test_report_missing_references(self):
        self.assertEqual(
            gpu_runs.judge("10 steps/s", {}, [])[0], "10 steps/s; nothing to compare it with")


class Kernels(unittest.TestCase):
    def test_of_resnet50_match_its_layers(self):
        rows = gpu_floor.resnet50_kernels(256)
        names = [name for name, _, _ in rows]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(sum("conv" in name or "downsample.0" in name for name in names),
                         3 * 53 - 1)
        # 4.1 G multiplications and additions of an image forward, three passes, without the data
        # gradient of the first convolution.
        self.assertAlmostEqual(sum(flop for _, _, flop in rows) / 256 / (3 * 8.2e9), 1, delta=0.02)

    def test_count_bytes_read_and_written(self):
        rows = {name: (size, flop) for name, size, flop in gpu_floor.resnet50_kernels(1)}
        image, weights = 2 * 64 * 56 * 56, 2 * 64 * 64
        self.assertEqual(rows["layer1.1.conv2 forward"],
                         (2 * image + 9 * weights, 2 * 9 * 64 * 64 * 56 * 56))
        self.assertEqual(rows["layer1.0.conv1 data gradient"][0], 3 * image + weights,
                         "adds to the gradient that is there")
        self.assertEqual(rows["layer1.1.bn1 statistics"], (image, 0))
        self.assertEqual(rows["layer1.1.bn1 backward"][0], 3 * image + image // 16,
                         "a bit for each element")
        # A 1x1 convolution with stride 2 reads a quarter of its pixels.
        self.assertEqual(rows["layer2.0.downsample.0 forward"][0],
                         2 * (256 * 28 * 28 + 256 * 512 + 512 * 28 * 28))

    def test_have_measured_times(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write('{"name": "layer1.1.bn1 statistics", "ms": 0.5, "bytes": 1, "flop": 0}\n'
                       '{"name": "something else", "ms": 2, "bytes": 4.8e9, "flop": 0}\n'
                       '{"name": "step", "ms": 9, "bytes": 4.8e9, "flop": 0}\n')
            file.flush()
            text, share, gaps = gpu_floor.report("NVIDIA H200", gpu_floor.resnet50_kernels(256),
                                                 256, file.name)
        floor = 1e3 * 2 * 64 * 56 * 56 * 256 / 4.8e12
        self.assertAlmostEqual(share, (floor + 1) / 2.5)
        self.assertRegex(text,
                         rf"layer1.1.bn1 statistics +102.8 +0.0 +memory +{floor:.4f} +0.5000 +4%")
        self.assertRegex(text, r"something else +4800.0 +0.0 +memory +1.0000 +2.0000 +50%")
        self.assertRegex(text, r"layer1.1.bn1 forward .* not in the profile")
        self.assertEqual(
            gaps,
            "something else 2.00 ms (floor 1.00), layer1.N.bn1 statistics 0.50 ms (floor "
            f"{floor:.2f})"
        )

    def test_are_unknown_for_an_unknown_gpu(self):
        self.assertRaisesRegex(ValueError, "got GeForce 256", gpu_floor.report, "GeForce 256", [],
                               256)
        self.assertEqual(
            gpu_floor.report("H200", gpu_floor.kernels("resnet50", 256), 256)[1:], (None, None))
        self.assertRaisesRegex(ValueError, "expected resnet50 or gpt:LAYERSxWIDTH, got vgg",
                               gpu_floor.kernels, "vgg", 1)

    def test_of_gpt_match_its_layers(self):
        rows = gpu_floor.kernels("gpt:12x768", 8)
        names = [name for name, _, _ in rows]
        self.assertEqual(len(names), len(set(names)))
        tokens, parameters = 8 * 1024, 124_439_808
        # Six operations per token and parameter of the matrix products, and attention; without the
        # position table, biases and normalization.
        products = 12 * 12 * 768 ** 2 + 50257 * 768
        self.assertEqual(sum(flop for name, _, flop in rows if not name.startswith("attention")),
                         6 * tokens * products)
        sizes = {name: (size, flop) for name, size, flop in rows}
        self.assertEqual(sizes["attention_11 forward"],
                         (4 * 2 * tokens * 768, 2 * 2 * 8 * 12 * 64 * 1024 * 1024 // 2))
        self.assertEqual(sizes["lm_head backward"][1], 3 * 2 * tokens * 50257 * 768,
                         "all three products, and the loss between them")
        self.assertEqual(sizes["update"][0], 34 * parameters)

    def test_of_one_kind_are_summed(self):
        gaps = gpu_floor.largest_gaps([("add forward", 0, 1.0), ("add_1 forward", 0, 1.5),
                                       ("h.0.ln_1 forward", 1, 2.0), ("h.1.ln_1 forward", 1, 2.0),
                                       ("h.0.ln_2 forward", 1, 1.5), ("loss", 5, 5)])
        self.assertEqual(
            gaps,
            "add forward 2.50 ms (floor 0.00), h.N.ln forward 5.50 ms (floor 3.00), loss 5.00 ms "
            "(floor 5.00)"
        )


def speed_of(help_text="", prebuilt=None, kind=gpu_speed.Speed):
    speed = kind.__new__(kind)
    speed.quick, speed.rounds, speed._torch, speed.rehearses = False, 1, "2.9", False
    speed.sizes = gpu_tools.Sizes(
    )
    speed.limits = gpu_tools.gpu_limits("NVIDIA H200")
    programs = types.SimpleNamespace(path=lambda name: pathlib.Path("/programs") / name,
                                     prebuilt=prebuilt)
    speed.check = types.SimpleNamespace(help=help_text, programs=programs, gpus=[{
        "name": "NVIDIA H200"
    }], versions={})
    return speed


class ResNet50(unittest.TestCase):
    def test_is_compared_with_the_goal(self):
        speed = speed_of("--fused-statistics")
        commands = []

        def ours(arguments, _):
            commands.append(list(map(str, arguments)))
            return {"rate": 3975.0, "input_wait_share": 0.25}
        speed.ours = ours
        note, figures = speed.resnet50("bfloat16", 448, ["--no-graph"])
        self.assertTrue(note.startswith("3975 images/s, 50% of the goal of 7950 (H200), "), note)
        self.assertEqual(figures["goal"], 7950)
        self.assertIn("--no-graph", commands[0])
        self.assertEqual(commands[0][commands[0].index("--fused-statistics") + 1], "never")
        self.assertEqual(commands[0][commands[0].index("--global-batch") + 1], "448")
        speed.resnet50("float16", 256, statistics="measure")
        self.assertEqual(commands[1][commands[1].index("--fused-statistics") + 1], "measure")
        speed.check.help = ""
        speed.resnet50("float16", 256)
        self.assertNotIn("--fused-statistics", commands[2])

    def test_is_profiled_if_built(self):
        self.assertRaisesRegex(NotRun, "not built: lockstep train --profile",
                               speed_of().profile_resnet50, "bfloat16")
        with tempfile.TemporaryDirectory() as folder:
            speed = speed_of("--profile FILE")
            logged = []
            speed.steps = types.SimpleNamespace(folder=pathlib.Path(folder), log=logged.append)

            def train(arguments, _):
                pathlib.Path(arguments[arguments.index("--profile") + 1]).write_text(
                    '{"name": "update", "ms": 1, "bytes": 1, "flop": 0}\n')
            speed.train = train
            note, figures = speed.profile_resnet50("float16")
        self.assertIn("profile_float16.jsonl", note)
        self.assertEqual(figures["milliseconds"], {"update": 1})
        self.assertIn("update", logged[0])

    def test_memory_is_measured_in_untimed_runs(self):
        speed = speed_of()
        speed.train = lambda arguments, limit, watch_memory: types.SimpleNamespace(gpu_mib=100)
        speed.theirs = lambda arguments, limit, watch_memory: {"gpu_mib": 100}
        self.assertEqual(speed.memory()[0],
                         "100 MiB; peak memory, times PyTorch's 1.00 (expected at most 1.05)")


class Convolutions(unittest.TestCase):
    def test_are_counted_by_the_faster_interface(self):
        rows = [{
            "kind": "start"
        }, {
            "kind": "convolution",
            "legacy_ms": 2,
            "graph_ms": 1
        }, {
            "kind": "convolution",
            "legacy_ms": None,
            "graph_ms": 1
        }, {
            "kind": "convolution",
            "legacy_ms": 1,
            "graph_ms": 2
        }, {
            "kind": "convolution",
            "legacy_ms": 1,
            "graph_ms": None
        }, {
            "kind": "end",
            "left_out": 3
        }]
        with tempfile.TemporaryDirectory() as folder:
            def checked(command, limit):
                self.assertLess(command[command.index("--seconds") + 1], limit)
                command[command.index("--json") +
                        1].write_text("".join(json.dumps(row) + "\n" for row in rows))
                return types.SimpleNamespace(text="a table\n")
            speed = speed_of()
            speed.steps = types.SimpleNamespace(folder=pathlib.Path(folder), checked=checked)
            note, figures = speed.convolutions()
            self.assertEqual(
                pathlib.Path(folder, "bench_convolutions.txt").read_text(), "a table\n")
        self.assertEqual(
            note,
            "cuDNN's graph API is faster in 2 of 4 passes; 3 rows were left out for lack of time")
        self.assertEqual(figures["rows"], rows)


class Attention(unittest.TestCase):
    def attention(self, difference):
        def row(name, **more):
            return json.dumps({
                "implementation": name,
                "forward_ms": 1.0,
                "backward_ms": 2.0,
                "forward_tflops": 10.0,
                "backward_tflops": 9.0,
                **more
            })

        text = "\n".join(
            [row("own"),
             row("cudnn", output_difference=0.001, gradient_difference=difference)])
        speed = speed_of()
        speed.steps = types.SimpleNamespace(
            checked=lambda command, limit: types.SimpleNamespace(text=text + "\n"))
        speed.theirs = lambda arguments, limit: {"seconds_per_step": [0.002, 0.004, 0.003]}
        return speed.attention()

    def test_of_both_implementations_is_compared_with_pytorch(self):
        note, figures = self.attention(0.002)
        self.assertIn(
            "cudnn 1.000 + 2.000 ms (10 and 9 TFLOP/s); PyTorch eager 3.000 ms together; PyTorch "
            "cudnn 3.000 ms together",
            note)
        self.assertEqual(set(figures["lockstep"]), {"own", "cudnn"})

    def test_fails_if_they_disagree(self):
        with self.assertRaisesRegex(Failed, "difference of gradients 0.50"):
            self.attention(0.5)

    def test_trains_on_each_token(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "text.txt")
            gpu_runs.write_text(file, 300, 1000)
            text = file.read_text(encoding="utf-8")
        self.assertEqual((len(text), len(set(text))), (1000, 300))


class Cifar(unittest.TestCase):
    def test_is_not_run_without_its_data(self):
        self.assertRaisesRegex(NotRun, "its data is not here", speed_of().cifar)

    def test_may_be_packed(self):
        with tempfile.TemporaryDirectory() as folder:
            shard = pathlib.Path(folder, "train-0.tfrecord")
            shard.write_text("records")
            with tarfile.open(f"{folder}/cifar10.tar", "w") as archive:
                archive.add(shard, shard.name)
            speed = speed_of(prebuilt=pathlib.Path(folder))
            with speed.cifar_folder() as unpacked:
                self.assertEqual(pathlib.Path(unpacked, "train-0.tfrecord").read_text(), "records")

    def test_is_judged_by_its_best_epoch(self):
        speed = speed_of()
        for best, result in [(0.9401, None), (0.9399, Failed)]:
            epochs = "".join(
                json.dumps({
                    "event": "epoch",
                    "validation_accuracy": value,
                    "seconds": 1.5
                }) + "\n" for value in (0.5, best))
            speed.train = lambda arguments, limit, text=epochs: types.SimpleNamespace(
                text=text, started=0)
            os.environ["LOCKSTEP_BENCH_CIFAR10"] = "/data"
            try:
                if result:
                    self.assertRaisesRegex(result, "missed: 93.99% after 2 epochs, 3.0 s",
                                           speed.cifar)
                else:
                    self.assertIn("94.01% after 2 epochs, 3.0 s in the epochs", speed.cifar()[0])
            finally:
                del os.environ["LOCKSTEP_BENCH_CIFAR10"]


class Turns(unittest.TestCase):
    def test_end_at_the_limit_and_keep_results(self):
        speed = speed_of()
        speed.rounds = 3
        answers = iter([1, 2])

        def ours():
            if (answer := next(answers, None)) is None:
                raise NotRun("the time was over")
            return answer

        def theirs(command, limit):
            if command == ["compile"]:
                raise NotRun("too slow")
            return command
        speed.theirs = theirs
        runs, lacking = speed.compared(ours, [("eager", ["eager"], 60),
                                              ("compile", ["compile"], 60)])
        self.assertEqual(runs["lockstep"], [1, 2])
        self.assertEqual(runs["eager"], [["eager"], ["eager"]])
        self.assertEqual(lacking, "; PyTorch compile did not run: too slow")
        self.assertRaisesRegex(NotRun, "the time was over", speed.compared, ours, [])


class Next(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.next = speed_of(kind=gpu_next.Next)
        self.next.compilation = None

    def test_sorts_implementations_of_the_first_convolution_by_speed(self):
        def checked(command, limit):
            self.assertEqual(command[1:3], ["--only", "stem"])
            rows = [{
                "kind": "start"
            }, *({
                "kind": "stem",
                "pass": part,
                "way": way,
                "ms": ms
            } for part, way, ms in [("forward", "cuDNN", 2.1), ("forward", "space-to-depth",
                                                                0.5), ("weights", "own", None)])]
            command[command.index("--json") +
                    1].write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.next.steps = types.SimpleNamespace(folder=self.folder, checked=checked)
        note, figures = self.next.stem()
        self.assertEqual(note,
                         "forward: space-to-depth 0.500 ms, cuDNN 2.100 ms; weights: none works")
        self.assertEqual(len(figures["rows"]), 4)

    def time_to_accuracy(self, mine, theirs):
        self.next.cifar_folder = lambda: contextlib.nullcontext(self.folder)
        self.next.train_on_cifar = lambda folder: ([{
            "validation_accuracy": a,
            "time": 100 + t
        } for a, t in mine], 100)
        self.next.theirs = lambda arguments, limit: {
            "started": 200,
            "epochs": [{
                "validation_accuracy": a,
                "time": 200 + t
            } for a, t in theirs]
        }
        return self.next.time_to_accuracy()

    def test_compares_the_time_from_the_start_of_the_process(self):
        note, figures = self.time_to_accuracy([(0.5, 2), (0.885, 3), (0.88, 4)], [(0.5, 8),
                                                                                  (0.89, 12)])
        self.assertIn(
            "lockstep 3.0 s to 88%, 4.0 s for 3 epochs, at best 88.50%; eager 12.0 s to 88%", note)
        self.assertIn("times PyTorch's speed 4.00 (expected at least 1)", note)
        self.assertEqual(figures["compile"]["seconds"], 12)

    def test_does_not_compare_unreached_accuracies(self):
        note, _ = self.time_to_accuracy([(0.5, 2)], [(0.89, 12)])
        self.assertIn("lockstep never to 88%", note)
        self.assertIn("nothing to compare it with", note)

    def test_waits_for_background_compilation(self):
        self.next.steps = Steps(self.folder, dict(os.environ), 60)
        self.assertRaisesRegex(NotRun, "nothing was compiled", self.next.compiled)
        self.next.compilation = self.next.steps.start(["sh", "-c", "echo no memory >&2; exit 3"])
        self.assertRaisesRegex(Failed, "status 3: no memory", self.next.compiled)
        self.next.compilation = self.next.steps.start(["true"])
        self.assertEqual(self.next.compiled(), "0 s in the background")
        self.next.steps.deadline = 0
        self.next.compilation = self.next.steps.start(["sleep", "1000"])
        self.assertRaisesRegex(NotRun, "it had not ended", self.next.compiled)


class Several(unittest.TestCase):
    def scaled(self, all_gpus, gpus=4, bandwidth=100e9):
        several = speed_of(kind=gpu_several.Several)
        several.gpus, several.bytes_per_second = gpus, bandwidth
        self.seen = []

        def ours(arguments, limit, devices="gpu:0", ranks=1):
            self.seen.append((devices, ranks, arguments[-1]))
            return {
                "rate": 100 if devices == "gpu:0" else all_gpus,
                "start": {
                    "parameters": 25_000_000
                }
            }
        several.ours = ours
        return several.scaling(["one"], ["all"], "images", 10)

    def test_is_compared_with_linear_scaling_and_the_link(self):
        note, figures = self.scaled(380)
        self.assertEqual(self.seen, [("gpu:0", 1, "one"), ("gpu:all", 1, "nccl"),
                                     ("auto", 4, "nccl"), ("gpu:all", 1, "staged")])
        self.assertIn("one process, NCCL 380 images/s, 95% of 4 times one", note)
        self.assertIn("150 MB over each link in a step take 1.50 ms of its 100.0 ms or more", note)
        self.assertEqual(figures["share_of_one"]["one process, through the host"], 0.95)
        self.assertRaisesRegex(Failed, "share with NCCL 0.75 .expected at least 0.9", self.scaled,
                               300)
        self.assertIn("whose speed is not known", self.scaled(380, bandwidth=None)[0])

    def test_requires_several_gpus(self):
        several = speed_of(kind=gpu_several.Several)
        several.gpus = 1
        self.assertRaisesRegex(NotRun, "there is only one GPU", several.on_several, list)


class JpegRecords(unittest.TestCase):
    def speed(self, folder, rates):
        speed = speed_of("--images TEXT")
        speed.commands = []
        speed.steps = types.SimpleNamespace(
            environment={"TMPDIR": folder},
            checked=lambda command, limit: speed.commands.append(command))

        def ours(arguments, _):
            speed.commands.append(arguments)
            return {
                "rate": rates["jpeg" if "--images" in arguments else "made up"],
                "input_wait_share": 0.5
            }
        speed.ours = ours
        return speed

    def test_are_written_and_compared_with_synthetic_images(self):
        for rate, verdict in [
            (96,
             "96% of those from made-up images, 50% of the time spent waiting for input: not bound "
             "by input"
             ),
            (40,
             "40% of those from made-up images, 50% of the time spent waiting for input: bound by "
             "input"
             )
        ]:
            with tempfile.TemporaryDirectory() as folder:
                speed = self.speed(folder, {"jpeg": rate, "made up": 100})
                note, figures = speed.jpeg()
            self.assertTrue(note.endswith(verdict), note)
            self.assertEqual(figures["samples_per_second"], rate)
            made, jpeg, free = speed.commands
            self.assertEqual(made[1].parent, pathlib.Path(folder))
            self.assertIn(f"{made[1]}/train-*.tfrecord", jpeg)
            self.assertIn("synthetic-images:224x224x3,1000,2048", free)

    def test_are_skipped_for_versions_without_preprocessing(self):
        self.assertRaises(NotRun, speed_of("--data TEXT").jpeg)


class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.steps = Steps(self.folder, dict(os.environ), 60)

    def step(self, name, action, needs=()):
        with contextlib.redirect_stdout(io.StringIO()):
            self.steps.step(name, action, needs)
        return self.steps.rows[-1]

    def test_a_failure_does_not_stop_the_rest(self):
        row = self.step("bad", lambda: self.steps.checked(["sh", "-c", "echo why >&2; exit 3"], 10))
        self.assertEqual((row["result"], row["note"]), ("failed", "status 3: why"))
        self.assertEqual(
            self.step("good", lambda: ("fine", {
                "figure": 1
            }))["figures"], {"figure": 1})
        self.assertEqual(gpu_tools.exit_status(self.steps.rows), 1)
        self.assertIn("==== bad\n$ sh -c", (self.folder / "log.txt").read_text())

    def test_a_step_is_skipped_if_a_dependency_failed(self):
        self.step("build", lambda: self.steps.checked(["false"], 10))
        row = self.step("test", lambda: "never", ["build"])
        self.assertEqual((row["result"], row["note"]),
                         ("not run", "it needs the step 'build', which did not pass"))

    def test_a_timeout_ends_a_command_and_its_children(self):
        row = self.step(
            "slow", lambda: self.steps.checked(["sh", "-c", "echo here; sleep 1000 & wait"], 1.1))
        self.assertEqual((row["result"], row["note"]),
                         ("not run", "it had not ended after 1 s, its limit; last: here"))

    def test_background_processes_end_with_the_steps(self):
        running = self.steps.start(["sleep", "1000"])
        self.assertEqual(
            self.step("beside", lambda: self.steps.checked(["echo", "here"], 10).text)["note"],
            "here\n")
        self.steps.stop()
        self.assertEqual(running.end(0).status, -9)

    def test_no_step_starts_after_the_time_limit(self):
        self.steps.deadline = 0
        self.assertEqual(self.step("late", lambda: "done")["note"], "the time was over")

    def test_a_group_has_a_separate_time_limit(self):
        end = self.steps.end
        self.steps.begin("short", 0)
        self.assertEqual(self.step("late", lambda: "done")["note"], "the time was over")
        self.steps.begin("long", 1e6)
        self.assertEqual(self.steps.deadline, end)
        self.assertEqual(self.step("early", lambda: "done")["group"], "long")

    def test_results_are_saved_after_each_step(self):
        saved = []
        self.steps.save = lambda: saved.append(len(self.steps.rows))
        self.step("one", lambda: "done")
        self.step("two", lambda: {}["key"])
        self.assertEqual(saved, [1, 2])

    def test_the_log_keeps_the_end_of_a_long_output(self):
        self.step(
            "long", lambda: self.steps.checked(
                [sys.executable, "-c", "print('x' * 200000, 'the end')"], 30).text[:1])
        log = (self.folder / "log.txt").read_text()
        self.assertLess(len(log), 70000)
        self.assertIn("the end", log)

    def test_an_exception_in_a_step_is_a_result(self):
        self.assertEqual(self.step("odd", lambda: {}["key"])["note"], "KeyError: 'key'")

    def test_skipped_steps_do_not_count(self):
        def absent():
            raise NotRun("it is absent")
        self.step("absent", absent)
        self.assertEqual(gpu_tools.exit_status(self.steps.rows), 1)
        self.step("here", lambda: "fine")
        self.assertEqual(gpu_tools.exit_status(self.steps.rows), 0)


class Memory(unittest.TestCase):
    def test_is_the_maximum_reported_by_nvml(self):
        values = [3 << 20, 9 << 20, 5 << 20]
        seen = []

        def read(device, memory):
            seen.append(values[min(len(seen), len(values) - 1)])
            ctypes.cast(memory, ctypes.POINTER(NvmlMemory)).contents.used = seen[-1]
            return 0

        library = types.SimpleNamespace(nvmlInit_v2=lambda: 0,
                                        nvmlDeviceGetHandleByIndex_v2=lambda index, device: 0,
                                        nvmlDeviceGetMemoryInfo=read, nvmlShutdown=lambda: 0)
        memory = GpuMemory(library, 0.001)
        while len(seen) < 4:
            pass
        self.assertEqual(memory.end(), 9)

    def test_is_unknown_if_nvml_fails(self):
        self.assertIsNone(GpuMemory(types.SimpleNamespace(nvmlInit_v2=lambda: 1)).end())


class Groups(unittest.TestCase):
    def test_last_less_than_half_an_hour(self):
        self.assertLessEqual(max(gpu_check.GROUPS.values()), 480)
        self.assertLessEqual(sum(gpu_check.GROUPS.values()), 28 * 60)

    def test_of_one_call_have_a_time_reserve(self):
        for plan, seconds in [("next", 530), ("several", 300)]:
            self.assertLessEqual(gpu_check.FACTS_SECONDS + sum(gpu_check.PLANS[plan].values()),
                                 seconds)
            self.assertLessEqual(seconds, 60 * gpu_check.MINUTES[plan])

    def test_match_the_script(self):
        text = (SCRIPTS / "gpu_check").read_text(encoding="utf-8")
        known = [names.split() for names in re.findall(r"\bsteps='(.+)'", text)]
        self.assertEqual(known, [list(groups) for groups in gpu_check.PLANS.values()])
        listed = [(name, int(seconds))
                for name, seconds in re.findall(r"^#   (\w+) +(\d+)   ", text, re.MULTILINE)]
        self.assertEqual(listed,
                         [row for groups in gpu_check.PLANS.values() for row in groups.items()])

    def test_of_next_match_its_steps(self):
        self.assertEqual(set(speed_of(kind=gpu_next.Next).actions([])),
                         set(gpu_check.PLANS["next"]))
        self.assertEqual(set(speed_of(kind=gpu_several.Several).actions([])),
                         set(gpu_check.PLANS["several"]))


class WholeRun(unittest.TestCase):
    """All groups with fake programs, in a folder with the layout of scripts/gpu_pack --prebuilt."""

    def run_check(self, only, *plan):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        prebuilt = self.folder / "prebuilt"
        (prebuilt / "bin").mkdir(parents=True)
        (prebuilt / "glibc").write_text("2.17\n")
        cache = self.folder / "earlier.json"
        cache.write_text('{"known": [1, 0, 0]}')
        shutil.copy(SCRIPTS / "gpu_run", prebuilt / "run")
        program = prebuilt / "bin" / "lockstep"
        program.write_text("#!/bin/sh\ncase $1 in version) echo '{\"version\": \"1.2\"}' ;; esac\n")
        tests = prebuilt / "bin" / "device_on_gpu_tests"
        tests.write_text("#!/bin/sh\necho '[  PASSED  ] 7 tests.'\n")
        smi = self.folder / "nvidia-smi"
        smi.write_text(
            "#!/bin/sh\ncase $1 in -L) echo GPU 0 ;; --query*) echo 'NVIDIA H200, GPU-1, 580.1, "
            "143771, 9.0' ;; esac\n"
        )
        for file in (program, tests, smi):
            file.chmod(0o755)
        environment = dict(os.environ, PATH=f"{self.folder}:{os.environ['PATH']}")
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        # Packed as for transport; scripts/gpu_check unpacks it.
        shutil.make_archive(str(prebuilt), "xztar", self.folder, prebuilt.name)
        shutil.rmtree(prebuilt)
        answer = subprocess.run([
            SCRIPTS / "gpu_check", *plan, "--prebuilt", prebuilt, "--out", self.folder / "out",
            "--only", only, "--cache", cache
        ], capture_output=True, text=True, check=False, env=environment)
        return answer, json.loads((self.folder / "out" / "results.json").read_text())

    def test_of_prebuilt_programs_requires_no_compiler(self):
        answer, results = self.run_check("tests,conv")
        rows = {row["step"]: (row["result"], row["note"]) for row in results["steps"]}
        self.assertEqual(rows["find CUDA"], ("passed", "built elsewhere, with glibc 2.17"))
        self.assertEqual(rows["start of the program"], ("passed", "1.2"))
        self.assertEqual(rows["tests of device"], ("passed", "7 passed, 0 skipped"))
        self.assertEqual(rows["tests of model"], ("not run", "not built: model_on_gpu_tests"))
        self.assertEqual(rows["speed of convolutions"],
                         ("not run", "not built: lockstep_bench_convolutions"))
        self.assertNotIn("configure", rows)
        self.assertNotIn("speed of cnn", rows)
        self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
        self.assertEqual(results["versions"]["lockstep"], {"version": "1.2"})
        self.assertEqual({file.name
                          for file in (self.folder / "out").iterdir()},
                         {"results.json", "results.md", "log.txt", "convolutions.json"})
        self.assertIn("known", (self.folder / "out" / "convolutions.json").read_text())


    def test_of_a_list_begins_with_its_steps(self):
        answer, results = self.run_check("changed,cnn", "--next")
        rows = {row["step"]: (row["group"], row["result"], row["note"]) for row in results["steps"]}
        self.assertEqual(rows["tests of device"], ("changed", "passed", "7 passed, 0 skipped"))
        self.assertEqual(rows["cnn and PyTorch's graph in turns"][:2], ("cnn", "failed"))
        self.assertEqual((results["plan"], results["only"]), ("next", ["changed", "cnn"]))
        self.assertEqual(answer.returncode, 1, answer.stdout + answer.stderr)

    def test_of_a_list_has_no_steps_of_another(self):
        answer = subprocess.run([SCRIPTS / "gpu_check", "--only", "cnn,conv", "--next"],
                                capture_output=True, text=True, check=False)
        self.assertEqual(answer.returncode, 2)
        self.assertIn(
            "--only: expected some of changed,gpt,stem,cnn,adam,jpeg,accuracy,ranks, got 'conv'",
            answer.stderr)


class PrebuiltRun(unittest.TestCase):
    def test_reports_missing_requirements(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(SCRIPTS / "gpu_run", f"{folder}/run")
            pathlib.Path(folder, "glibc").write_text("9.99\n")
            answer = subprocess.run([f"{folder}/run", "true"], capture_output=True, text=True,
                                    check=False)
            self.assertEqual(answer.returncode, 1)
            self.assertRegex(answer.stderr,
                             r"expected the C library glibc 9.99 or newer, got glibc \d")
            pathlib.Path(folder, "glibc").write_text("2.0\n")
            answer = subprocess.run([
                f"{folder}/run", "sh", "-c", "echo $OPAL_PREFIX $LD_LIBRARY_PATH"
            ], capture_output=True, text=True, check=False, env=dict(os.environ,
                                                                     LD_LIBRARY_PATH="/mine"))
            self.assertTrue(answer.stdout.startswith(f"{folder} {folder}/lib:"),
                            answer.stdout + answer.stderr)
            self.assertIn(":/mine", answer.stdout)


class Pack(unittest.TestCase):
    def test_is_complete(self):
        if not shutil.which("apt-cache"):
            self.skipTest("there is no apt")
        answer = subprocess.run([SCRIPTS / "gpu_pack", "--list"], capture_output=True, text=True,
                                check=False)
        packages = {line.split()[0]: int(line.split()[2]) for line in answer.stdout.splitlines()}
        if "libopenmpi-dev" not in packages:
            self.skipTest("apt has no package lists: apt-get update")
        self.assertLessEqual(len(packages), 100, sorted(packages))
        self.assertLessEqual(sum(packages.values()), 40e6, packages)
        for needed in ("libdnnl-dev", "libspdlog-dev", "openmpi-bin", "libgtest-dev", "libpng-dev"):
            self.assertIn(needed, packages)


class Tests(unittest.TestCase):
    ROOT = pathlib.Path(__file__).resolve().parents[2]

    def test_all_gpu_programs_are_run(self):
        found = {
            file.parent.name: name
            for file in self.ROOT.glob("tests/*/CMakeLists.txt")
            for name in re.findall(r"lockstep_gpu_test\((\w+)", file.read_text(encoding="utf-8"))
        }
        self.assertEqual(gpu_find.TESTS, found)
        pack = (SCRIPTS / "gpu_pack").read_text(encoding="utf-8")
        targets = re.search(r"^readonly targets=\((.+?)\)$", pack,
                            re.MULTILINE | re.DOTALL).group(1).split()
        self.assertEqual(sorted(targets), sorted(gpu_check.TARGETS))

    def test_fail_if_a_program_runs_none(self):
        check = gpu_check.Check.__new__(gpu_check.Check)
        for passed, errors in [(0, "no test ran; 2 were skipped"), (1, None)]:
            text = f"[  PASSED  ] {passed} tests.\n[  SKIPPED ] 2 tests, listed below:\n"
            check.steps = types.SimpleNamespace(
                environment={},
                run=lambda command, limit, environment, text=text: Output(0, text, "", 1, None))
            check.programs = types.SimpleNamespace(path=lambda name: name)
            if errors:
                self.assertRaisesRegex(Failed, errors, check.test, "device")
            else:
                self.assertEqual(check.test("device")[0], "1 passed, 2 skipped")

    def test_of_the_model_are_divided_among_processes(self):
        check = gpu_check.Check.__new__(gpu_check.Check)
        seen = []

        def run(command, limit, environment):
            seen.append((environment["GTEST_SHARD_INDEX"], environment["GTEST_TOTAL_SHARDS"]))
            return Output(int(environment["GTEST_SHARD_INDEX"] == failing),
                          "[  PASSED  ] 3 tests.\n[  FAILED  ] 1 test, listed below:\n", "", 1,
                          None)
        check.steps = types.SimpleNamespace(environment={}, run=run)
        check.programs = types.SimpleNamespace(path=lambda name: name)
        shards = min(gpu_check.SHARDS["model"], os.cpu_count())
        failing = None
        self.assertEqual(check.test("model")[1]["passed"], 3 * shards)
        self.assertEqual(sorted(seen), [(str(i), str(shards)) for i in range(shards)])
        failing = str(shards - 1)
        self.assertRaisesRegex(Failed, f"status 1, {shards} tests failed", check.test, "model")

    def test_a_rejection_has_its_status_and_reason(self):
        trainings = gpu_trainings.Trainings.__new__(gpu_trainings.Trainings)
        trainings.check = types.SimpleNamespace(programs=types.SimpleNamespace(
            path=lambda name: name))
        seen = []

        def run(command, limit, environment):
            seen.append(environment)
            return Output(5, "", "[devices] expected gpu:0; none", 1, None)
        trainings.steps = types.SimpleNamespace(run=run, environment={"PATH": "/bin"})
        self.assertEqual(trainings.refuses([], "expected gpu:0", {"CUDA_VISIBLE_DEVICES": ""}),
                         "[devices] expected gpu:0; none")
        self.assertEqual(seen, [{"PATH": "/bin", "CUDA_VISIBLE_DEVICES": ""}])
        self.assertRaisesRegex(Failed, "expected status 5 and 'memory'", trainings.refuses, [],
                               "memory")


class Finding(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_library_may_lack_its_unversioned_name(self):
        (self.folder / "libcudnn.so.9").touch()
        (self.folder / "libcudnn_ops.so.9").touch()
        self.assertEqual(gpu_find.library_in([self.folder / "absent", self.folder], "cudnn"),
                         self.folder / "libcudnn.so.9")
        (self.folder / "libcudnn.so").touch()
        self.assertEqual(gpu_find.library_in([self.folder], "cudnn"), self.folder / "libcudnn.so")
        self.assertIsNone(gpu_find.library_in([self.folder], "nccl"))

    def test_the_toolkit_is_located_by_nvcc(self):
        nvcc = self.folder / "bin" / "nvcc"
        nvcc.parent.mkdir()
        nvcc.write_text(
            f"#!/bin/sh\necho '#$ _SPACE_=' >&2; echo '#$ TOP={self.folder}/toolkit/bin/..' >&2\n")
        nvcc.chmod(0o755)
        (self.folder / "toolkit" / "bin").mkdir(parents=True)
        self.assertEqual(gpu_find.toolkit_of(nvcc), self.folder.resolve() / "toolkit")
        nvcc.write_text("#!/bin/sh\n")
        self.assertEqual(gpu_find.toolkit_of(nvcc), self.folder.resolve())

    def test_versions_are_read_from_headers(self):
        header = self.folder / "nccl.h"
        header.write_text("#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n")
        self.assertEqual(gpu_find.version_of(header, ["NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"]),
                         "2.28.9")

    def test_a_pack_takes_precedence_and_requires_no_ssh(self):
        environment = {"LD_LIBRARY_PATH": "/mine"}
        variables = gpu_find.with_pack(environment, pathlib.Path("/pack"))
        self.assertTrue(environment["LD_LIBRARY_PATH"].startswith("/pack/usr/lib/"))
        self.assertTrue(environment["LD_LIBRARY_PATH"].endswith(":/mine"))
        self.assertEqual(environment["OPAL_PREFIX"], "/pack/usr")
        self.assertEqual(environment["OMPI_MCA_plm_rsh_agent"], "false")
        self.assertEqual(variables["CMAKE_PREFIX_PATH"], pathlib.Path("/pack/usr"))


if __name__ == "__main__":
    unittest.main()

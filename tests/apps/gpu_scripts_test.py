"""What scripts/gpu_check computes and how it runs its steps, without a GPU. Run by ctest where Python is."""

import contextlib
import io
import json
import math
import os
import pathlib
import re
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))

import gpu_check  # noqa: E402
import gpu_find  # noqa: E402
import gpu_speed  # noqa: E402
import gpu_tools  # noqa: E402
from gpu_steps import Failed, NotRun, Output, Steps  # noqa: E402


class Floors(unittest.TestCase):
    def test_knows_gpus_by_the_most_special_name(self):
        self.assertEqual(gpu_tools.gpu_limits("NVIDIA H200")["memory_bytes_per_second"], 4.8e12)
        self.assertEqual(gpu_tools.gpu_limits("NVIDIA GH200 480GB")["memory_bytes_per_second"], 4.0e12)
        self.assertEqual(gpu_tools.gpu_limits("NVIDIA H100 PCIe")["memory_bytes_per_second"], 2.0e12)
        self.assertEqual(gpu_tools.gpu_limits("NVIDIA H100 80GB HBM3")["memory_bytes_per_second"], 3.35e12)
        self.assertEqual(gpu_tools.gpu_limits("NVIDIA A100-SXM4-80GB")["memory_bytes_per_second"], 2.039e12)
        self.assertEqual(gpu_tools.gpu_limits("NVIDIA L4")["bfloat16_flops_per_second"], 121e12)
        self.assertEqual(gpu_tools.gpu_limits("NVIDIA L40S")["bfloat16_flops_per_second"], 362e12)

    def test_does_not_guess(self):
        self.assertIsNone(gpu_tools.gpu_limits("NVIDIA GeForce 9800 GT"))
        self.assertIsNone(gpu_tools.gpu_limits("NVIDIA L400"))

    def test_of_adam_is_32_bytes_a_parameter(self):
        self.assertAlmostEqual(gpu_tools.adam_floor({"memory_bytes_per_second": 3.2e12}, 100_000_000), 1e-3)

    def test_of_resnet50_is_the_larger_one(self):
        floor = gpu_tools.resnet50_floor({"memory_bytes_per_second": 1e12, "bfloat16_flops_per_second": 1e15}, 256)
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

    def test_the_first_rates_do_not_count(self):
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
            '{"event":"step","step":1,"loss":2.5,"samples_per_second":10,"input_wait_seconds":0.5}\n'
            '{"event":"step","step":2,"skipped":true,"samples_per_second":20,"input_wait_seconds":0.25}\n'
            '{"event":"end","seconds":3.0,"parameter_hash":"00ff"}\n')
        self.assertEqual(training, {"losses": [2.5], "skipped": 1, "rates": [10, 20], "input_wait_seconds": 0.75, "hash": "00ff",
                                    "seconds": 3.0, "start": {"event": "start", "world_size": 2}})

    def test_of_a_training_that_broke_off(self):
        self.assertIsNone(gpu_tools.training_of("{")["hash"])

    def test_of_tests(self):
        text = "[==========] 5 tests ran.\n[  PASSED  ] 3 tests.\n[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] A.B\n[  FAILED  ] 1 test, listed"
        self.assertEqual(gpu_tools.test_counts(text), {"passed": 3, "skipped": 1, "failed": 1})
        self.assertEqual(gpu_tools.test_counts(""), {"passed": 0, "skipped": 0, "failed": 0})

    def test_of_nvidia_smi(self):
        self.assertEqual(gpu_tools.parse_gpus("NVIDIA H200, GPU-1, 580.1, 143771, 9.0\nno device\n"),
                         [{"name": "NVIDIA H200", "uuid": "GPU-1", "driver": "580.1", "memory_mib": 143771, "compute_capability": "9.0"}])


class Tables(unittest.TestCase):
    def test_have_columns_as_wide_as_they_need_to_be(self):
        self.assertEqual(gpu_tools.table(["step", "note"], [["a long one", 1], ["b", ""]]), "step        note\na long one  1\nb")

    def test_of_markdown(self):
        self.assertEqual(gpu_tools.markdown(["a", "b"], [["x|y", 1]]), "| a | b |\n| --- | --- |\n| x\\|y | 1 |")


class Judgements(unittest.TestCase):
    def test_tell_what_was_reached(self):
        note, _ = gpu_speed.judge("10 steps/s", {}, [("times PyTorch", 1.5, 1.5, True), ("unknown", None, 1, True), ("memory", 1.0, 1.05, False)])
        self.assertEqual(note, "10 steps/s; times PyTorch 1.50 (expected at least 1.5); memory 1.00 (expected at most 1.05)")

    def test_fail_what_was_missed_and_keep_its_figures(self):
        for reached, more in [(1.4, True), (1.6, False)]:
            with self.assertRaisesRegex(Failed, "missed: 10 steps/s; it 1.[46]0") as caught:
                gpu_speed.judge("10 steps/s", {"key": 1}, [("it", reached, 1.5, more)])
            self.assertEqual(caught.exception.figures, {"key": 1})

    def test_say_where_nothing_is_to_compare_with(self):
        self.assertEqual(gpu_speed.judge("10 steps/s", {}, [])[0], "10 steps/s; nothing to compare it with")


class FusedStatistics(unittest.TestCase):
    CACHE = {"forward of a convolution in float16 by cuDNN 9": [1, 0, 0],
             "forward with sums of a convolution in float16 by cuDNN 9": [2, 0, 64],
             "forward with sums of another in float16 by cuDNN 9": [-1, 0, 0],
             "forward with sums of a convolution in bfloat16 by cuDNN 9": [-1, 0, 0]}

    def speed(self, folder, rates):
        speed = gpu_speed.Speed.__new__(gpu_speed.Speed)
        speed.quick = False
        speed.steps = types.SimpleNamespace(environment={"LOCKSTEP_CACHE_DIR": folder})
        file = pathlib.Path(folder) / "convolutions.json"
        file.write_text(json.dumps(self.CACHE))

        def ours(arguments, _):
            precision = arguments[arguments.index("--precision") + 1]
            rates.append((precision, len(gpu_speed.sums_in(json.loads(file.read_text()), precision)[1])))
            return {"rate": 100 + rates[-1][1]}
        speed.ours = ours
        return speed

    def test_are_measured_with_and_without(self):
        rates = []
        with tempfile.TemporaryDirectory() as folder:
            note, figures = self.speed(folder, rates).fused_statistics()
            self.assertEqual(json.loads((pathlib.Path(folder) / "convolutions.json").read_text()), self.CACHE)
        self.assertEqual(rates, [("bfloat16", 0), ("float16", 1), ("float16", 1), ("float16", 0), ("float16", 0)])
        self.assertEqual(note, "bfloat16: 0 of 1 kinds of convolutions; float16: 1 of 2 kinds of convolutions, 101 images/s, apart 100")
        self.assertEqual(figures["float16"], {"tried": 2, "chosen": 1, "samples_per_second": 101, "apart_samples_per_second": 100})

    def test_are_left_out_where_it_has_to_be_quick(self):
        speed = gpu_speed.Speed.__new__(gpu_speed.Speed)
        speed.quick = True
        self.assertRaises(NotRun, speed.fused_statistics)


class JpegRecords(unittest.TestCase):
    def speed(self, folder, rates):
        speed = gpu_speed.Speed.__new__(gpu_speed.Speed)
        speed.check = types.SimpleNamespace(help="--images TEXT")
        speed.commands = []
        speed.steps = types.SimpleNamespace(folder=pathlib.Path(folder), checked=lambda command, limit: speed.commands.append(command))

        def ours(arguments, _):
            speed.commands.append(arguments)
            return {"rate": rates["jpeg" if "--images" in arguments else "made up"], "input_wait_share": 0.5}
        speed.ours = ours
        return speed

    def test_are_made_and_held_against_images_that_need_no_reading(self):
        for rate, verdict in [(96, "96% of those from made-up images, 50% of the time spent waiting for input: not bound by input"),
                              (40, "40% of those from made-up images, 50% of the time spent waiting for input: bound by input")]:
            with tempfile.TemporaryDirectory() as folder:
                speed = self.speed(folder, {"jpeg": rate, "made up": 100})
                note, figures = speed.jpeg()
            self.assertTrue(note.endswith(verdict), note)
            self.assertEqual(figures["samples_per_second"], rate)
            made, jpeg, free = speed.commands
            self.assertEqual(made[1], pathlib.Path(folder) / "jpeg")
            self.assertIn(f"{folder}/jpeg/train-*.tfrecord", jpeg)
            self.assertIn("synthetic-images:224x224x3:1000:2048", free)

    def test_are_left_out_of_versions_that_prepare_none(self):
        speed = gpu_speed.Speed.__new__(gpu_speed.Speed)
        speed.check = types.SimpleNamespace(help="--data TEXT")
        self.assertRaises(NotRun, speed.jpeg)


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
        self.assertEqual(self.step("good", lambda: ("fine", {"figure": 1}))["figures"], {"figure": 1})
        self.assertEqual(gpu_tools.exit_status(self.steps.rows), 1)
        self.assertIn("why", (self.folder / "bad.log").read_text())

    def test_a_step_is_not_run_where_what_it_needs_failed(self):
        self.step("build", lambda: self.steps.checked(["false"], 10))
        row = self.step("test", lambda: "never", ["build"])
        self.assertEqual((row["result"], row["note"]), ("not run", "it needs the step 'build', which did not pass"))

    def test_what_takes_too_long_is_ended_with_all_that_it_started(self):
        row = self.step("slow", lambda: self.steps.checked(["sh", "-c", "sleep 1000 & wait"], 1.1))
        self.assertEqual(row["result"], "failed")
        self.assertIn("signal 9: ended after 1 s, its limit", row["note"])

    def test_nothing_begins_after_the_end(self):
        self.steps.deadline = 0
        self.assertEqual(self.step("late", lambda: "done")["note"], "the time for all steps was over")

    def test_a_mistake_of_a_step_is_a_result(self):
        self.assertEqual(self.step("odd", lambda: {}["key"])["note"], "KeyError: 'key'")

    def test_what_could_not_run_does_not_count(self):
        def absent():
            raise NotRun("it is absent")
        self.step("absent", absent)
        self.assertEqual(gpu_tools.exit_status(self.steps.rows), 1)
        self.step("here", lambda: "fine")
        self.assertEqual(gpu_tools.exit_status(self.steps.rows), 0)


class Tests(unittest.TestCase):
    ROOT = pathlib.Path(__file__).resolve().parents[2]

    def test_all_programs_that_need_a_gpu_are_run(self):
        found = {file.parent.name: name for file in self.ROOT.glob("tests/*/CMakeLists.txt")
                 for name in re.findall(r"lockstep_gpu_test\((\w+)", file.read_text(encoding="utf-8"))}
        self.assertEqual(gpu_check.TESTS, found)

    def test_of_a_program_that_runs_none_fail(self):
        check = gpu_check.Check.__new__(gpu_check.Check)
        for passed, errors in [(0, "no test ran; 2 were skipped"), (1, None)]:
            text = f"[  PASSED  ] {passed} tests.\n[  SKIPPED ] 2 tests, listed below:\n"
            check.steps = types.SimpleNamespace(run=lambda command, limit, text=text: Output(0, text, "", 1, None))
            if errors:
                self.assertRaisesRegex(Failed, errors, check.test, "device")
            else:
                self.assertEqual(check.test("device")[0], "1 passed, 2 skipped")

    def test_a_refusal_has_its_status_and_says_what_it_needed(self):
        check = gpu_check.Check.__new__(gpu_check.Check)
        seen = []

        def run(command, limit, environment):
            seen.append(environment)
            return Output(5, "", "[devices] expected gpu:0; none", 1, None)
        check.steps = types.SimpleNamespace(run=run, environment={"PATH": "/bin"})
        self.assertEqual(check.refuses([], "expected gpu:0", {"CUDA_VISIBLE_DEVICES": ""}), "[devices] expected gpu:0; none")
        self.assertEqual(seen, [{"PATH": "/bin", "CUDA_VISIBLE_DEVICES": ""}])
        self.assertRaisesRegex(Failed, "expected status 5 and 'memory'", check.refuses, [], "memory")


class Finding(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_library_may_lack_its_plain_name(self):
        (self.folder / "libcudnn.so.9").touch()
        (self.folder / "libcudnn_ops.so.9").touch()
        self.assertEqual(gpu_find.library_in([self.folder / "absent", self.folder], "cudnn"), self.folder / "libcudnn.so.9")
        (self.folder / "libcudnn.so").touch()
        self.assertEqual(gpu_find.library_in([self.folder], "cudnn"), self.folder / "libcudnn.so")
        self.assertIsNone(gpu_find.library_in([self.folder], "nccl"))

    def test_versions_are_read_from_headers(self):
        header = self.folder / "nccl.h"
        header.write_text("#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n")
        self.assertEqual(gpu_find.version_of(header, ["NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"]), "2.28.9")

    def test_a_pack_comes_before_the_system_and_needs_no_ssh(self):
        environment = {"LD_LIBRARY_PATH": "/mine"}
        variables = gpu_find.with_pack(environment, pathlib.Path("/pack"))
        self.assertTrue(environment["LD_LIBRARY_PATH"].startswith("/pack/usr/lib/"))
        self.assertTrue(environment["LD_LIBRARY_PATH"].endswith(":/mine"))
        self.assertEqual(environment["OPAL_PREFIX"], "/pack/usr")
        self.assertEqual(environment["OMPI_MCA_plm_rsh_agent"], "false")
        self.assertEqual(variables["CMAKE_PREFIX_PATH"], pathlib.Path("/pack/usr"))


if __name__ == "__main__":
    unittest.main()

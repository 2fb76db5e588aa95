#!/usr/bin/env python3
"""torch_test.py BUILD FOLDER [MPIRUN …]: programs of PyTorch with a wheel of this build.

torch is that of LOCKSTEP_TORCH_PYTHON, or of build/torch-venv, which scripts/test --long makes.
"""
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/python"
BUILD, FOLDER = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
MPIRUN = sys.argv[3:]
PYTHON = os.environ.get("LOCKSTEP_TORCH_PYTHON", str(ROOT / "build/torch-venv/bin/python"))
SITE = FOLDER / "site"
SKIPPED = 77  # for ctest
# Programs that accelerate brings. One more, test_distributed_data_loop.py, needs GPUs: without them
# it calls different functions on different ranks.
OF_ACCELERATE = "test_ops", "test_sync", "test_script"
LAUNCH = [str(BUILD / "apps/lockstep/lockstep"), "launch", "-np"]
# They expect the product of float16 and 3 in float32, but a sum of float16 is rounded to float16.
OF_THREE_HALVES = ("test_horovod_allreduce_prescale", "test_horovod_reducescatter_prescale",
                   "test_horovod_grouped_reducescatter_prescale")
# They expect the words of Gloo's error, and its name in a log.
OTHER_THAN_GLOO = {"test_barrier_timeout_full_group", "test_ddp_logging_data_cpu"}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return unused.getsockname()[1]


def run(command, environment=None, seconds=120, folder=None):
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SITE), "OMP_NUM_THREADS": "1",
             **(environment or {})})
    return result.returncode, result.stdout + result.stderr


def torchrun(ranks, program, *arguments, options=()):
    return [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *options,
            "--master-port", str(free_port()), str(HERE / program), *arguments]


class Torch(unittest.TestCase):
    def assert_passes(self, command, environment=None, folder=None):
        status, output = run(command, environment, folder=folder)
        self.assertEqual(status, 0, output)
        return output

    def test_collectives_compute_what_gloo_computes(self):
        for ranks in (2, 3):
            output = self.assert_passes(torchrun(ranks, "torch_collectives.py"))
            self.assertEqual(len(re.findall(r"1[0-9]{2} right", output)), ranks, output)

    def test_carries_what_pytorch_builds_on_it(self):
        for ranks in (2, 4):
            output = self.assert_passes(torchrun(ranks, "torch_users.py"))
            self.assertEqual(output.count("all work"), ranks, output)

    def test_the_others_go_on_without_a_rank_that_is_lost(self):
        with tempfile.TemporaryDirectory() as place:
            ranks = [self.start("torch_reconfigure.py", RANK=str(rank), PLACE=place)
                     for rank in range(3)]
            outputs = [process.communicate(timeout=60) for process in ranks]
            self.assertEqual([process.returncode for process in ranks], [0, -signal.SIGKILL, 0],
                             outputs)

    def start(self, program, **environment):
        return subprocess.Popen(
            [PYTHON, str(HERE / program)], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SITE), "OMP_NUM_THREADS": "1", **environment})

    def test_stands_calls_in_great_number_and_processes_beside(self):
        status, output = run(torchrun(2, "torch_stress.py"), seconds=600)
        self.assertEqual(status, 0, output)
        self.assertEqual(output.count("at rest"), 2, output)

    def test_neither_hangs_nor_uses_memory_that_is_gone(self):
        self.assertIn("all refused or right", self.assert_passes(
            [PYTHON, str(HERE / "torch_misuse.py")]))

    def test_starts_again_after_a_rank_was_killed(self):
        with tempfile.TemporaryDirectory() as place:
            output = self.assert_passes(torchrun(2, "torch_elastic.py", options=[
                "--max-restarts", "1"]), {"PLACE": place})
            self.assertEqual(output.count("attempt 1: steps 5 to 9"), 2, output)

    def test_passes_the_tests_of_accelerate(self):
        found = subprocess.run(
            [PYTHON, "-c", "import accelerate.test_utils as a; print(*a.__path__)"],
            capture_output=True, text=True)
        if found.returncode != 0:
            self.skipTest(f"{PYTHON} has no accelerate")
        for program in OF_ACCELERATE:
            with self.subTest(program):
                self.assert_passes(
                    torchrun(2, "conformance.py",
                             f"{found.stdout.strip()}/scripts/{program}.py"),
                    {"ACCELERATE_USE_CPU": "1"})

    def test_trains_in_libraries_as_over_gloo(self):
        for library in ("accelerate", "lightning"):
            if subprocess.run([PYTHON, "-c", "import " + library],
                              capture_output=True).returncode != 0:
                print(f"{PYTHON} has no {library}")
                continue
            results = {backend: re.findall("[0-9a-f]{16}", self.assert_passes(torchrun(
                2, "torch_trainers.py", library, backend))) for backend in ("gloo", "lockstep")}
            self.assertEqual(len(results["lockstep"]), 2, results)
            self.assertEqual(results["lockstep"], results["gloo"])

    def test_passes_the_tests_of_pytorch(self):
        """Those of the installed version; and those files of its repository that are in the folder
        LOCKSTEP_PYTORCH_TESTS.
        """
        files = [(HERE, "distributed_cases", OTHER_THAN_GLOO)]
        folder = os.environ.get("LOCKSTEP_PYTORCH_TESTS")
        if folder:
            files += [(folder, file.stem, set())
                      for file in sorted(pathlib.Path(folder).glob("test_c10d_*.py"))]
        else:
            print("LOCKSTEP_PYTORCH_TESTS is not set: the files of the repository are not run")
        for folder, module, allowed in files:
            with self.subTest(module):
                _, output = run([PYTHON, str(HERE / "conformance.py"), str(folder), module],
                                seconds=900)
                failed = set(re.findall(r"^(?:ERROR|FAIL): (\w+)", output, re.MULTILINE))
                ran = re.search(r"Ran ([0-9]+) tests.*\n\n.*skipped=([0-9]+)", output)
                self.assertIsNotNone(ran, output[-2000:])
                print(f"{module}: {int(ran[1]) - int(ran[2]) - len(failed)} passed, "
                      f"{ran[2]} not for CPUs or this backend, failed: {sorted(failed)}")
                self.assertEqual(failed, allowed, output[-4000:])

    def test_training_equals_gloo(self):
        # Some processes with Gloo abort at their end, after they have printed their results.
        results = {backend: set(re.findall(
            "DDP [0-9a-f]{16}, FSDP [0-9a-f]{16}", run(torchrun(2, "torch_training.py",
                                                                backend))[1]))
            for backend in ("gloo", "lockstep")}
        self.assertEqual(len(results["gloo"]), 1, results)
        self.assertEqual(results["gloo"], results["lockstep"])

    def test_starts_under_launchers_that_set_other_variables(self):
        if MPIRUN:
            output = self.assert_passes(
                [*MPIRUN, PYTHON, str(HERE / "torch_training.py")],
                {"MASTER_PORT": str(free_port())})
            self.assertEqual(output.count(" of 2: DDP"), 2, output)
        output = self.assert_passes([PYTHON, str(HERE / "torch_training.py")])
        self.assertIn("rank 0 of 1: DDP", output)

    def test_passes_the_tests_of_horovod(self):
        """Those in the folder LOCKSTEP_HOROVOD, which has its repository."""
        folder = os.environ.get("LOCKSTEP_HOROVOD")
        if not folder:
            self.skipTest("LOCKSTEP_HOROVOD is not set")
        tests = pathlib.Path(folder, "test/parallel")
        starts = [(ranks, [*LAUNCH, str(ranks), "--"]) for ranks in (2, 3, 4)]
        if MPIRUN:
            starts += [(ranks, [*MPIRUN[:-1], str(ranks)]) for ranks in (2, 3, 4)]
        for name in ("torch", "common", "timeline", "process_sets_static",
                     "process_sets_multi_comm"):
            for ranks, start in starts:
                skipped = ["-k", f"not {' and not '.join(OF_THREE_HALVES)}"] if ranks == 3 else []
                status, output = run([*start, PYTHON, "-m", "pytest", "-q", "--color=no", "-p",
                                      "no:cacheprovider", *skipped, f"{tests}/test_{name}.py"],
                                     {"PYTHONPATH": f"{SITE}:{HERE / 'horovod_names'}"}, 300)
                counts = set(re.findall(r"(\d+ (?:passed|skipped).*) in", output))
                print(f"test_{name}.py, {ranks} ranks, {start[0].split('/')[-1]}: {counts}")
                self.assertEqual(status, 0, output[-4000:])
                self.assertNotRegex(output, r"\d (failed|error)")

    def test_runs_examples_of_horovod(self):
        folder = os.environ.get("LOCKSTEP_HOROVOD")
        if not folder:
            self.skipTest("LOCKSTEP_HOROVOD is not set")
        with tempfile.TemporaryDirectory() as place:
            subprocess.run([PYTHON, str(HERE / "images.py"), place], check=True)
            for name, options, found in (
                    ("pytorch_mnist", f"--epochs 4 --batch-size 16 --data-dir {place}",
                     r"Accuracy: (9\d|100)\."),
                    ("pytorch_synthetic_benchmark", "--model resnet18 --batch-size 2 "
                     "--num-warmup-batches 1 --num-batches-per-iter 1 --num-iters 2",
                     r"Total img/sec on 2 CPU\(s\)"),
                    ("pytorch_imagenet_resnet50", f"--train-dir {place}/train --val-dir "
                     f"{place}/val --epochs 1 --batch-size 2 --val-batch-size 2",
                     "Validate Epoch +#1: 100%")):
                with self.subTest(name):
                    text = pathlib.Path(folder, f"examples/pytorch/{name}.py").read_text()
                    text = text.replace("import horovod.torch", "import lockstep.torch")
                    text = text.replace("import horovod\n", "import lockstep as horovod\n")
                    program = pathlib.Path(place, f"{name}.py")
                    program.write_text(text)
                    self.assertRegex(self.assert_passes(
                        [*LAUNCH, "2", "--", PYTHON, str(program), "--no-cuda", *options.split()],
                        {"HOME": place}, place), found)

    def test_trains_by_the_names_of_horovod(self):
        starts = [(ranks, [*LAUNCH, str(ranks), "--"]) for ranks in (2, 3, 4)]
        if MPIRUN:
            starts.append((2, MPIRUN))
        for program in ("horovod_training.py", "horovod_calls.py", "keras_training.py"):
            if "keras" in program and run([PYTHON, "-c", "import keras"],
                                          {"KERAS_BACKEND": "torch"})[0] != 0:
                print(f"{PYTHON} has no keras")
                continue
            for ranks, start in starts:
                with self.subTest(program, start=start), tempfile.TemporaryDirectory() as place:
                    output = self.assert_passes([*start, PYTHON, str(HERE / program)],
                                                {"TIMELINE": os.path.join(place, "timeline")})
                    self.assertEqual(output.count("all right"), ranks, output)
        output = self.assert_passes(torchrun(2, "horovod_training.py"))
        self.assertEqual(output.count("all right"), 2, output)
        docs = (ROOT / "docs/python.md").read_text()
        example = re.search(r"<!-- file: horovod.py -->\n```python\n(.*?)```", docs, re.DOTALL)
        with tempfile.TemporaryDirectory() as place:
            program = pathlib.Path(place, "horovod.py")
            program.write_text(example[1])
            self.assertIn("2 ranks: loss 0.0",
                          self.assert_passes([*LAUNCH, "2", "--", PYTHON, str(program)]))
        for ending, found in (("exception", "ValueError: in a hook of rank 1"),
                              ("leaves", r"got shutdown\(\) of rank 1")):
            status, output = run([*LAUNCH, "3", "--", PYTHON, str(HERE / "horovod_calls.py"),
                                  ending])
            self.assertNotEqual(status, 0)
            self.assertRegex(output, found)
        output = self.assert_passes(
            [*LAUNCH, "3", "--", PYTHON, str(HERE / "horovod_calls.py"), "late"],
            {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_AUTOTUNE": "1"})
        self.assertRegex(output, r"rank 0: \[allreduce.gradient.\d\] expected all ranks to call it "
                                 r"within [123] s, got none from (some of ranks 1, 2|rank 1)")
        self.assertIn("are ignored: HOROVOD_AUTOTUNE", output)

    def test_the_others_name_a_rank_that_is_lost(self):
        for ending, found in (("killed", "rank 1"), ("stopped", "rank 1, .*stopped"),
                              ("exception", "ValueError: of rank 1"), ("leaves", "rank 1"),
                              ("interrupted", "(?s)(KeyboardInterrupt.*rank 1|rank 1.*Keyboard)")):
            with self.subTest(ending), tempfile.TemporaryDirectory() as place:
                # Not under torchrun, which ends the others at once.
                port = str(free_port())
                ranks = [self.start("torch_endings.py", RANK=str(rank), WORLD_SIZE="2",
                                    MASTER_ADDR="127.0.0.1", MASTER_PORT=port, PLACE=place,
                                    ENDING=ending, LOCKSTEP_STALL_TIMEOUT="5")
                         for rank in range(2)]
                _, text = ranks[0].communicate(timeout=60)
                if ending == "stopped":
                    ranks[1].send_signal(signal.SIGKILL)
                text += ranks[1].communicate(timeout=60)[1]
                self.assertNotEqual(ranks[0].returncode, 0, text)
                self.assertRegex(text, found)


if __name__ == "__main__":
    if not os.path.exists(PYTHON) or subprocess.run([PYTHON, "-c", "import torch"],
                                                    capture_output=True).returncode != 0:
        print(f"{PYTHON} has no torch")
        sys.exit(SKIPPED)
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run([ROOT / "scripts/wheel", "--tree", BUILD, "--out", FOLDER], check=True)
    wheel, = FOLDER.glob("*.whl")
    subprocess.run([PYTHON, "-m", "pip", "install", "--quiet", "--upgrade", "--target", SITE,
                    wheel], check=True)
    unittest.main(argv=sys.argv[:1])

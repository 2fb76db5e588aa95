#!/usr/bin/env python3
"""collectives_test.py PACKAGE LOCKSTEP [MPIRUN …]: programs in Python, started in several ways.

numpy is that of build/onnx-venv, or of this Python.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from python_with import HOW, python_with  # noqa: E402

PACKAGE, LOCKSTEP = sys.argv[1:3]
MPIRUN = sys.argv[3:]  # with the option for the number of ranks, which is 2
PYTHON = python_with(["numpy"])
SKIPPED = 77  # for ctest


def run(program, ranks=2, *, launcher=None, environment=None, seconds=60):
    """Runs a program of this folder; returns its status and what it printed, both streams."""
    launcher = launcher or [LOCKSTEP, "launch", "--np", str(ranks), "--"]
    result = subprocess.run(
        [*launcher, PYTHON, str(HERE / program)], capture_output=True, text=True, timeout=seconds,
        env={**os.environ, "PYTHONPATH": PACKAGE, **(environment or {})})
    return result.returncode, result.stdout + result.stderr


class Collectives(unittest.TestCase):
    def assert_passes(self, program, *arguments, **keywords):
        status, output = run(program, *arguments, **keywords)
        self.assertEqual(status, 0, output)
        return output

    def test_have_the_right_values_on_1_to_4_ranks(self):
        for ranks in range(1, 5):
            output = self.assert_passes("values.py", ranks)
            self.assertEqual(output.count(f"of {ranks}: right"), ranks, output)

    def test_without_a_launcher_the_job_has_one_rank(self):
        self.assertIn("0 of 1: right", self.assert_passes("values.py", launcher=["env"]))

    def test_run_under_mpirun(self):
        if not MPIRUN:
            self.skipTest("no mpirun")
        output = self.assert_passes("values.py", launcher=MPIRUN)
        self.assertEqual(output.count("of 2: right"), 2, output)

    def test_refuse_what_they_cannot_reduce(self):
        self.assert_passes("bad_input.py")

    def test_of_jobs_that_the_program_describes(self):
        for ranks in (2, 3):
            with tempfile.TemporaryDirectory() as place:
                output = self.assert_passes("described.py", ranks, environment={"PLACE": place})
                self.assertEqual(output.count("goes on"), ranks - 1, output)

    def test_end_together(self):
        for end, status, line in (
                ("differ", 1, r"expected the same call on all members"),
                ("exception", 1, "ValueError: of rank 1"),
                ("exit", 4, "rank 1"),
                ("killed", 137, "rank 1"),
                ("stopped", 4, "rank 1"),
                ("interrupt", 130, "KeyboardInterrupt")):
            with self.subTest(end):
                found, output = run("endings.py", environment={
                    "LOCKSTEP_STALL_TIMEOUT": "5" if end == "stopped" else "50", "ENDING": end})
                self.assertEqual(found, status, output)
                self.assertRegex(output, line)


if __name__ == "__main__":
    if PYTHON is None:
        print(f"no Python with numpy: {HOW}")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])

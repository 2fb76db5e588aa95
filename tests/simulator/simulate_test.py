#!/usr/bin/env python3
"""simulate_test.py PROGRAM: schedules without a defect keep all promises, each mutant breaks one,
and a number determines everything."""
import pathlib
import subprocess
import sys
import unittest

import tomllib

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = sys.argv.pop(1)
MUTANTS = tomllib.loads((HERE / "mutants.toml").read_text())["mutant"]


def simulate(*arguments):
    result = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    return result.returncode, result.stdout


class Simulator(unittest.TestCase):
    def test_no_schedule_breaks_a_promise(self):
        status, output = simulate("--schedules", 3000)
        self.assertEqual(status, 0, output)
        self.assertRegex(output, "^3000 schedules, ")

    def test_a_number_determines_a_schedule(self):
        digests = {seed: simulate("--seed", seed) for seed in (3, 4, 5)}
        for seed, (status, output) in digests.items():
            self.assertEqual(status, 0)
            self.assertRegex(output, "^digest [0-9a-f]{16}\n$")
            self.assertEqual(simulate("--seed", seed)[1], output)
        self.assertNotEqual(digests[3], digests[4])

    def test_each_mutant_is_found(self):
        self.assertGreaterEqual(len(MUTANTS), 12)
        for number, mutant in enumerate(MUTANTS, 1):
            with self.subTest(mutant["wrong"]):
                status, output = simulate("--mutant", number, "--schedules", 20000)
                self.assertEqual(status, 1, output)
                self.assertRegex(output, "^seed [0-9]+: ")

    def test_command_lines(self):
        self.assertEqual(simulate("--seeds", 1)[0], 2)
        self.assertEqual(simulate("--seed")[0], 2)


if __name__ == "__main__":
    unittest.main()

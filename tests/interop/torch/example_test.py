"""The example of LibTorch before and after: at most five lines differ, and the losses do not.

    example_test.py SOURCE_DIR BEFORE AFTER MPIEXEC
"""

import difflib
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCES, BEFORE, AFTER, MPIEXEC = sys.argv[1:5]
# 103 images in batches of 64 leave one of 39.
DATA = ["synthetic:28x28x1:10:103", "synthetic:28x28x1:10:50", "25"]


def code(name):
    lines = (pathlib.Path(SOURCES) / "apps" / "examples" / name).read_text().splitlines()
    return [line for line in lines if not line.startswith("//")]


def loss(*command):
    with tempfile.TemporaryDirectory() as folder:
        output = subprocess.run([*command, *DATA], cwd=folder, check=True, capture_output=True, text=True).stdout
        assert (pathlib.Path(folder) / "torch_mnist.pt").exists(), "the network was not saved"
    [value] = re.findall(r"^loss ([0-9.e+-]+), accuracy", output, re.MULTILINE)
    return float(value)


class TorchMnist(unittest.TestCase):
    def test_five_lines_differ(self):
        lines = list(difflib.ndiff(code("torch_mnist_before.cpp"), code("torch_mnist.cpp")))
        new = [line for line in lines if line.startswith("+ ")]
        removed = [line for line in lines if line.startswith("- ")]
        self.assertLessEqual(len(new), 5, new)
        self.assertLessEqual(len(removed), len(new), removed)

    def test_loss_is_that_of_one_process(self):
        alone = loss(BEFORE)
        self.assertLess(alone, math.log(10) - 0.01, "nothing was learned, so equal losses would mean little")
        for ranks in ["1", "2", "3"]:
            with self.subTest(ranks=ranks):
                ours = loss(MPIEXEC, "-np", ranks, AFTER)
                self.assertLess(abs(ours - alone), 1e-5 * alone)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

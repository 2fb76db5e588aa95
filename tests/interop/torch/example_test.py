"""The example of LibTorch before and after: at most six lines differ, and the losses do not.

    example_test.py SOURCE_DIR BEFORE AFTER TRAINER MPIEXEC

The example of a Trainer: as many ranks, the same loss, and it continues from its checkpoint.
"""

import difflib
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCES, BEFORE, AFTER, TRAINER, MPIEXEC = sys.argv[1:6]
# 103 images in batches of 64 leave one of 39.
DATA = ["synthetic:28x28x1,10,103", "synthetic:28x28x1,10,50", "25"]


def code(name):
    lines = (pathlib.Path(SOURCES) / "apps" / "examples" / name).read_text().splitlines()
    return [line for line in lines if not line.startswith("//")]


def loss(*command):
    with tempfile.TemporaryDirectory() as folder:
        output = subprocess.run([*command, *DATA], cwd=folder, check=True, capture_output=True,
                                text=True).stdout
        assert (pathlib.Path(folder) / "torch_mnist.pt").exists(), "the network was not saved"
    [value] = re.findall(r"^loss ([0-9.e+-]+), accuracy", output, re.MULTILINE)
    return float(value)


class TorchMnist(unittest.TestCase):
    def test_six_lines_differ(self):
        lines = list(difflib.ndiff(code("torch_mnist_before.cpp"), code("torch_mnist.cpp")))
        new = [line for line in lines if line.startswith("+ ")]
        removed = [line for line in lines if line.startswith("- ")]
        self.assertLessEqual(len(new), 6, new)
        self.assertLessEqual(len(removed), len(new), removed)

    def test_loss_is_that_of_one_process(self):
        alone = loss(BEFORE)
        self.assertLess(alone,
                        math.log(10) - 0.01,
                        "nothing was learned, so equal losses would mean little")
        for ranks in ["1", "2", "3"]:
            with self.subTest(ranks=ranks):
                ours = loss(MPIEXEC, "-np", ranks, AFTER)
                self.assertLess(abs(ours - alone), 1e-5 * alone)


class TorchTrainer(unittest.TestCase):
    def losses(self, ranks, *epochs):
        with tempfile.TemporaryDirectory() as folder:
            for count in epochs:
                command = [MPIEXEC, "-np", ranks, TRAINER, *DATA[:2], count]
                output = subprocess.run(command, cwd=folder, check=True, capture_output=True,
                                        text=True).stdout
                yield re.findall(r"^loss ([0-9.e+-]+), accuracy", output, re.MULTILINE)

    def test_loss_does_not_depend_on_ranks_or_interruption(self):
        [[alone]] = self.losses("1", "25")
        self.assertLess(float(alone), math.log(10),
                        "nothing was learned, so equal losses would mean little")
        [[together]] = self.losses("3", "25")
        self.assertLess(abs(float(together) - float(alone)), 1e-5 * float(alone))
        [[_], [resumed]] = self.losses("1", "9", "25")
        self.assertEqual(resumed, alone)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

"""The table of scripts/mutate fits the sources: each defect's old text occurs once in its file, and
its test exists.

    mutate_test.py [SOURCE_DIR]
"""
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve()
ROOT = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else HERE.parents[2]


class Mutate(unittest.TestCase):
    def test_has_a_table_that_fits_the_sources(self):
        done = subprocess.run([sys.executable, ROOT / "scripts/mutate", "--check"],
                              stderr=subprocess.PIPE, text=True, check=False)
        self.assertEqual("", done.stderr)
        self.assertEqual(0, done.returncode)


if __name__ == "__main__":
    unittest.main()

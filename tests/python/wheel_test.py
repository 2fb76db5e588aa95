#!/usr/bin/env python3
"""wheel_test.py BUILD FOLDER: a wheel of this build, installed into a new environment in FOLDER."""
import json
import os
import pathlib
import subprocess
import sys
import unittest
import zipfile

BUILD, FOLDER = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77  # for ctest


def run(*command, **keywords):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          **keywords)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.wheel, = FOLDER.glob("*.whl")
        made = run(sys.executable, "-m", "venv", "--clear", FOLDER / "venv")
        assert made.returncode == 0, made.stderr
        cls.bin = FOLDER / "venv/bin"
        installed = run(cls.bin / "pip", "install", "--quiet", cls.wheel, "numpy")
        assert installed.returncode == 0, installed.stderr

    def test_has_the_licences_of_all_that_is_in_it(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
            licences = [name for name in names if "/licenses/" in name]
            libraries = [name for name in names if ".libs/" in name]
            self.assertGreater(len(licences), len(libraries))
            self.assertIn("lockstep/py.typed", names)
            sbom, = (name for name in names if name.endswith(".cdx.json"))
            self.assertGreaterEqual(len(json.loads(wheel.read(sbom))["components"]),
                                    len(libraries))

    def test_has_the_program(self):
        version = run(self.bin / "lockstep", "version", env={})
        self.assertEqual(version.returncode, 0, version.stderr)
        self.assertRegex(version.stdout, "^lockstep [0-9]")
        wrong = run(self.bin / "lockstep", "trian", env={})
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("train", wrong.stderr)

    def test_imports_neither_numpy_nor_torch(self):
        code = "import sys, lockstep; print(sorted({'numpy', 'torch'} & set(sys.modules)))"
        self.assertEqual(run(self.bin / "python", "-c", code).stdout, "[]\n")

    def test_works_as_the_package_of_the_build_does(self):
        python = self.bin / "python"
        where = run(python, "-c", "import lockstep; print(lockstep.__path__[0])").stdout.strip()
        tested = run(sys.executable, ROOT / "tests/python/collectives_test.py",
                     pathlib.Path(where).parent, self.bin / "lockstep",
                     env={**os.environ, "LOCKSTEP_ONNX_PYTHON": str(python)})
        self.assertEqual(tested.returncode, 0, tested.stderr)


if __name__ == "__main__":
    made = run(ROOT / "scripts/wheel", "--tree", BUILD, "--out", FOLDER)
    if made.returncode != 0:
        print(made.stdout, made.stderr)
        sys.exit(SKIPPED if "the Python index is needed" in made.stderr else 1)
    unittest.main(argv=sys.argv[:1])

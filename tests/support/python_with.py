"""A Python that has packages which tests compare with, or run documents with; nothing is
installed."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOW = "scripts/test makes build/onnx-venv, which has it; LOCKSTEP_ONNX_PYTHON names another Python"


def python_with(packages):
    """The path of the first Python that has the modules of these names, or None."""
    has_them = ("import importlib.util, sys\n"
                "sys.exit(not all(importlib.util.find_spec(package) for package in sys.argv[1:]))")
    for python in (os.environ.get("LOCKSTEP_ONNX_PYTHON"), ROOT / "build/onnx-venv/bin/python",
                   sys.executable):
        if python and os.path.exists(python) and subprocess.run([python, "-c", has_them, *packages
                                                                 ]).returncode == 0:
            return str(python)
    return None

"""conformance.py FOLDER MODULE [TEST…], or conformance.py PROGRAM: runs a file of PyTorch's own
tests, or a program of another project, unmodified, where "gloo" is this backend. Cases for GPUs are
skipped.

PyTorch starts the ranks of its tests as processes that import this file again.
"""
import importlib
import runpy
import sys
import unittest

import torch.distributed as dist
from lockstep.torch import group

group.register()
dist.Backend._ensure_backend_registered("gloo")
dist.Backend._plugins["GLOO"] = dist.Backend._plugins["LOCKSTEP"]
dist.Backend.backend_type_map["gloo"] = dist.Backend.backend_type_map["lockstep"]
sys.path.insert(0, sys.argv[1])

if __name__ == "__main__":
    if len(sys.argv) > 2:
        unittest.main(module=importlib.import_module(sys.argv[2]), argv=sys.argv[2:])
    else:
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")

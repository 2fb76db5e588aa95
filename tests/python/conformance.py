"""conformance.py FOLDER MODULE [TEST…]: runs a file of PyTorch's own tests, in FOLDER, unmodified,
where "gloo" is this backend. Their cases for GPUs are skipped.

PyTorch starts the ranks as processes that import this file again.
"""
import importlib
import sys
import unittest

import torch.distributed as dist
from lockstep.torch import group

FOLDER, MODULE = sys.argv[1:3]
group.register()
dist.Backend._ensure_backend_registered("gloo")
dist.Backend._plugins["GLOO"] = dist.Backend._plugins["LOCKSTEP"]
dist.Backend.backend_type_map["gloo"] = dist.Backend.backend_type_map["lockstep"]
sys.path.insert(0, FOLDER)

if __name__ == "__main__":
    unittest.main(module=importlib.import_module(MODULE), argv=sys.argv[2:])

"""The tests of torch.testing._internal.distributed.distributed_test, with three forked ranks."""
import os
import tempfile

import torch

os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
for folder in ("barrier", "test_dir", "init_dir"):
    os.makedirs(os.path.join(os.environ["TEMP_DIR"], folder), exist_ok=True)

from torch.testing._internal.distributed import distributed_test  # noqa: E402
from torch.testing._internal.distributed.distributed_test import (  # noqa: E402
    DistributedTest,
    TestDistBackend,
)

# The backends whose events a profiler of torch shows.
distributed_test.PROFILING_SUPPORTED_BACKENDS.clear()
distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.clear()


class Cases(TestDistBackend, DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

"""A rank of torchrun that trains until rank 1 ends as ENDING says. It writes its process number to
the folder PLACE."""
import os
import pathlib
import signal
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
ending = os.environ["ENDING"]
dist.init_process_group("lockstep")
pathlib.Path(os.environ["PLACE"], str(dist.get_rank())).write_text(str(os.getpid()))
model = DistributedDataParallel(torch.nn.Linear(8, 8))
for step in range(10_000):
    if dist.get_rank() == 1 and step == 5:
        if ending == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if ending == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if ending == "exception":
            raise ValueError("of rank 1")
        if ending == "interrupted":
            os.kill(os.getpid(), signal.SIGINT)
        if ending == "leaves":
            break
    model(torch.randn(4, 8)).sum().backward()
    time.sleep(0.01)

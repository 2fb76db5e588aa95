"""A rank of torchrun --max-restarts 1: rank 1 is killed in the first attempt; the second goes on
from the step that rank 0 has saved in the folder PLACE.
"""
import os
import pathlib
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("lockstep")
rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
saved = pathlib.Path(os.environ["PLACE"], "step")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
first = int(saved.read_text()) if attempt else 0
for step in range(first, 10):
    if (rank, step, attempt) == (1, 5, 0):
        os.kill(os.getpid(), signal.SIGKILL)
    model(torch.randn(4, 8)).sum().backward()
    if rank == 0:
        saved.write_text(str(step + 1))
dist.barrier()
dist.destroy_process_group()
print(f"rank {rank}, attempt {attempt}: steps {first} to 9", flush=True)

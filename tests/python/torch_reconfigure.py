"""Rank RANK of three, which meet in the folder PLACE. Rank 1 is killed; the others form a group
without it, and train on.
"""
import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
rank = int(os.environ["RANK"])
store = dist.FileStore(os.path.join(os.environ["PLACE"], "store"), 3)
dist.init_process_group("lockstep", store=store, rank=rank, world_size=3, enable_reconfigure=True)


def form_group(number, ranks):
    store.set(f"{number}/{rank}", dist._get_reconfigure_handle())
    handles = [store.get(f"{number}/{other}").decode() for other in ranks]
    dist._reconfigure(number, handles).wait()
    assert (dist.get_rank(), dist.get_world_size()) == (ranks.index(rank), len(ranks))


def train(steps):
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    for step in range(steps):
        if rank == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.full((4, 8), rank + 1.0)).sum().backward()
    return model.module.bias.grad[0].item() / steps


try:
    dist.all_reduce(torch.ones(1))
    raise AssertionError("there is no group yet")
except RuntimeError as error:
    assert "expected reconfigure() before the first call" in str(error), error
form_group(1, [0, 1, 2])
try:
    train(10)
    raise AssertionError("rank 1 was not missed")
except RuntimeError as error:
    assert "rank 1" in str(error), error
form_group(2, [0, 2])
assert train(2) == 4.0
total = torch.tensor([float(rank)])
dist.all_reduce(total)
assert total.item() == 2.0
dist.destroy_process_group()
print(f"rank {rank}: trained on", flush=True)

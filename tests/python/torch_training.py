"""A rank of torchrun, or of a launcher that does not set its variables: trains with the backend
that is named, under DDP and then under FSDP2, and prints a digest of the parameters."""
import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
if "RANK" in os.environ:
    dist.init_process_group(sys.argv[1])
else:
    import lockstep.torch
    lockstep.torch.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.BatchNorm1d(128),
                               torch.nn.Linear(128, 10))


def train(model, parameters):
    optimizer = torch.optim.AdamW(parameters, 1e-2)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(20):
        images = torch.randn(16, 64, generator=generator)
        labels = torch.randint(0, 10, (16,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()


def digest(tensors):
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(tensor.detach().contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


model = DistributedDataParallel(network(), bucket_cap_mb=0.01)
train(model, model.parameters())
wrapped = digest(model.parameters())

model = network()
mesh = init_device_mesh("cpu", (size,))
for layer in (model[0], model[3]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
train(model, model.parameters())
sharded = digest(parameter.full_tensor() for parameter in model.parameters())
dist.destroy_process_group()
print(f"rank {rank} of {size}: DDP {wrapped}, FSDP {sharded}", flush=True)

"""Steps of PyTorch's DistributedDataParallel over Gloo, under mpirun; what scripts/bench --only
torch compares with.

    mpirun -np 2 python3 bench_torch_steps.py MODEL BATCH STEPS ROUNDS STORE VIEWS

MODEL is mlp or cnn, as tests/bench/torch_steps.cpp has them; BATCH is of each rank; STORE is a file
that is not there yet, through which the ranks meet; VIEWS is 0 or 1: whether gradients are views of
buckets. Prints a JSON object: milliseconds of a step in each block.
"""
import json
import os
import sys
import time

import torch
from torch import distributed, nn

model, batch, steps, rounds, store, views = sys.argv[1], *map(
    int, sys.argv[2:5]), sys.argv[5], sys.argv[6] == "1"
torch.set_num_threads(1)
distributed.init_process_group("gloo", init_method=f"file://{store}",
                               rank=int(os.environ["OMPI_COMM_WORLD_RANK"]),
                               world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]))
torch.manual_seed(1)
if model == "mlp":
    network = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                            nn.Linear(1024, 10))
    inputs = torch.rand(batch, 784)
else:
    network = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
                            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9216, 200), nn.ReLU(),
                            nn.Linear(200, 10))
    inputs = torch.rand(batch, 1, 28, 28)
targets = torch.randint(10, (batch,))
parallel = nn.parallel.DistributedDataParallel(network, gradient_as_bucket_view=views)
optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
loss = nn.CrossEntropyLoss()

blocks = []
for block in range(-1, rounds):  # the first only warms up
    distributed.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss(parallel(inputs), targets).backward()
        optimizer.step()
    milliseconds = torch.tensor([(time.perf_counter() - begin) * 1e3 / steps])
    distributed.all_reduce(milliseconds, op=distributed.ReduceOp.MAX)
    if block >= 0:
        blocks.append(milliseconds.item())
if distributed.get_rank() == 0:
    print(json.dumps({"version": torch.__version__, "blocks": blocks}), flush=True)

"""A backend of torch.distributed, which scripts/bench --only transport and python measure.

    mpirun -np N python3 bench_backend.py BACKEND STORE [--models] [--pin] BYTES…

BACKEND   gloo or lockstep; optimizer: the collectives and DistributedOptimizer of lockstep.torch,
          by the names of Horovod, in place of torch.distributed and DDP
STORE     where the ranks meet: a file that is not there yet, or tcp://HOST:PORT
--models  also a step of some models under DDP, and without communication; for `optimizer`, also
          sums of 64 tensors as one call, which together have as many bytes
--pin     each rank on a core of its own

Rank 0 prints a JSON object for each size, the median microseconds of a sum of float32, in place,
and for each model, the median milliseconds of a step.
"""
import json
import os
import statistics
import sys
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

SECONDS = 0.5  # each size is measured for so long
STEPS = 30
GROUPED = (1 << 20, 4 << 20)
options = {word for word in sys.argv[3:] if word.startswith("--")}
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
if "--pin" in options:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
torch.set_num_threads(1)
backend, store = sys.argv[1:3]
if backend == "optimizer":
    import lockstep.torch as horovod
    horovod.init()
else:
    if backend == "lockstep":
        from lockstep.torch.group import register
        register()
    distributed.init_process_group(
        backend, init_method=store if "://" in store else f"file://{store}", rank=rank,
        world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]))


def report(**values):
    if rank == 0:
        print(json.dumps({"route": backend} | values), flush=True)


def times_of(call, count):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


def measure_size(size, tensors=1):
    values = [torch.zeros(size // 4 // tensors) for _ in range(tensors)]

    def add():
        if tensors > 1:
            horovod.grouped_allreduce_(values, op=horovod.Sum, name="values")
        elif backend == "optimizer":
            horovod.allreduce_(values[0], op=horovod.Sum, name="values")
        else:
            distributed.all_reduce(values[0])

    times_of(add, 3)
    count = torch.tensor([int(SECONDS / times_of(add, 1)[0]) + 3])
    if backend == "optimizer":
        horovod.broadcast_(count, 0)
    else:
        distributed.broadcast(count, 0)
    report(bytes=size, tensors=tensors,
           microseconds=statistics.median(times_of(add, min(int(count), 500))) * 1e6)


class Transformer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True)
        self.embed = torch.nn.Embedding(1000, 128)
        self.body = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(128, 1000)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens))).mean(1)


def models():
    """Name, model, inputs."""
    nn = torch.nn
    yield "mlp", nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                               nn.Linear(512, 10)), torch.randn(64, 784)
    yield "cnn", nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                               nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                               nn.Linear(1600, 10)), torch.randn(32, 1, 28, 28)
    yield "transformer", Transformer(), torch.randint(0, 1000, (8, 32))


def measure_models():
    for name, model, inputs in models():
        wrapped = model if backend == "optimizer" else DistributedDataParallel(model)
        for network, route in ((model, "none"), (wrapped, backend)):
            optimizer = torch.optim.SGD(network.parameters(), 0.01)
            if route == "optimizer":
                optimizer = horovod.DistributedOptimizer(optimizer, network.named_parameters())

            def step(network=network, optimizer=optimizer, inputs=inputs):
                optimizer.zero_grad()
                network(inputs).logsumexp(1).mean().backward()
                optimizer.step()

            times_of(step, 5)
            (horovod if backend == "optimizer" else distributed).barrier()
            report(model=name, milliseconds=statistics.median(times_of(step, STEPS)) * 1e3,
                   route=route)


for size in (int(word) for word in sys.argv[3:] if not word.startswith("--")):
    measure_size(size)
if "--models" in options:
    measure_models()
    if backend == "optimizer":
        for size in GROUPED:
            measure_size(size, 64)
if backend != "optimizer":
    distributed.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # one in ten processes with Gloo aborts at its end

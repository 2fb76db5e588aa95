"""Gloo's all-reduce, which scripts/bench --only transport compares with.

    mpirun -np N python3 bench_gloo.py STORE BYTES…

STORE is a file that is not there yet, through which the ranks meet. Rank 0 prints a JSON object for
each size: the median microseconds of a sum of float32, in place.
"""
import json
import os
import statistics
import sys
import time

import torch
from torch import distributed

SECONDS = 0.5  # each size is measured for so long
torch.set_num_threads(1)
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank,
                               world_size=int(os.environ["OMPI_COMM_WORLD_SIZE"]))
for size in map(int, sys.argv[2:]):
    values = torch.zeros(size // 4)
    times = []
    for _ in range(3):
        distributed.all_reduce(values)
    start = time.perf_counter()
    distributed.all_reduce(values)
    count = torch.tensor([int(SECONDS / (time.perf_counter() - start)) + 3])
    distributed.broadcast(count, 0)
    for _ in range(min(int(count), 500)):
        start = time.perf_counter()
        distributed.all_reduce(values)
        times.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"route": "gloo", "bytes": size,
                          "microseconds": statistics.median(times) * 1e6}), flush=True)

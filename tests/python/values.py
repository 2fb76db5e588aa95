"""A rank: all collectives, with values that are known."""
import os
import sys

import lockstep
import numpy

lockstep.init()
rank, size = lockstep.rank(), lockstep.size()
everyone = range(size)


def expect(found, wanted):
    found, wanted = numpy.asarray(found), numpy.asarray(wanted)
    if found.dtype != wanted.dtype or not numpy.array_equal(found, wanted):
        raise AssertionError(f"rank {rank}: expected {wanted!r}, got {found!r}")


expect(0 <= lockstep.local_rank() < lockstep.local_size() <= size, True)
expect(lockstep.any(rank == size - 1), True)
expect(lockstep.any(False), False)
lockstep.barrier()

for name in ("float32", "float64", "float16", "int32", "int64", "uint8"):
    for shape in ((), (0,), (1,), (3, 5), (70_001,)):
        mine = (numpy.arange(numpy.prod(shape, dtype=int)) % 7 + rank).reshape(shape).astype(name)
        of_all = [mine - mine.dtype.type(rank) + mine.dtype.type(each) for each in everyone]
        kept = mine.copy()
        expect(lockstep.allreduce(mine), numpy.sum(of_all, 0, dtype=name))
        expect(lockstep.allreduce(mine, op="max"), numpy.max(of_all, 0))
        expect(lockstep.allreduce(mine, op="min"), numpy.min(of_all, 0))
        expect(lockstep.allreduce(mine, op="product"), numpy.prod(of_all, 0, dtype=name))
        expect(mine, kept)
        expect(lockstep.broadcast(mine, size - 1), of_all[-1])
        into = numpy.empty_like(mine)
        expect(lockstep.allreduce(mine, out=into) is into, True)
        expect(into, numpy.sum(of_all, 0, dtype=name))

expect(lockstep.allreduce(numpy.float32([rank, 2]), op="average"),
       numpy.float32([(size - 1) / 2, 2]))
expect(lockstep.allreduce(numpy.float64([1.0]), prescale_factor=0.5, postscale_factor=3),
       numpy.float64([1.5 * size]))
# Not contiguous, and of the other byte order.
grid = numpy.arange(12.0).reshape(3, 4)
expect(lockstep.allreduce(grid.T), grid.T * size)
expect(lockstep.allreduce(grid.astype(">f8")), grid * size)
expect(lockstep.allreduce([1, 2]), numpy.array([1, 2]) * size)

# Unequal rows; none on rank 0.
mine = numpy.full((rank, 2), rank, "int16")
expect(lockstep.allgather(mine),
       numpy.concatenate([numpy.full((each, 2), each, "int16") for each in everyone]))
rows, counts = lockstep.alltoall(numpy.repeat(numpy.arange(size), 2) * 10 + rank)
expect(rows, numpy.repeat(numpy.arange(size), 2) + rank * 10)
expect(counts, numpy.full(size, 2))
splits = [0] * (size - 1) + [3]
rows, counts = lockstep.alltoall(numpy.full((3, 4), rank, bool), splits)
expect(counts, numpy.full(size, 3 if rank == size - 1 else 0))
expect(len(rows), 3 * size if rank == size - 1 else 0)

requests = [lockstep.allreduce_async(numpy.full(1000, each, "float32")) for each in range(20)]
requests.append(lockstep.broadcast_async(numpy.array([rank]), size - 1))
for each, request in enumerate(requests[:-1]):
    expect(request.wait(), numpy.full(1000, each * size, "float32"))
expect(requests[-1].wait(), numpy.array([size - 1]))
expect(requests[-1].test(), True)
lockstep.allreduce_async(numpy.ones(3))  # dropped: completes

child = os.fork()
if child == 0:
    sys.exit(0)  # it is no rank, and does not leave the job
os.waitpid(child, 0)
expect(lockstep.allreduce(numpy.ones(3)), numpy.full(3, float(size)))

lockstep.shutdown()
print(f"rank {rank} of {size}: right", flush=True)

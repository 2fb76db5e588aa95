"""A rank under torchrun: the backend computes what Gloo computes, and refuses what it cannot."""
import re
import time

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
gloo, ours = dist.group.WORLD, dist.new_group(backend="lockstep")
checked = 0


def same(name, *results):
    global checked
    checked += 1
    for found, wanted in zip(*results):
        if found.layout == torch.sparse_coo:
            found, wanted = found.to_dense(), wanted.to_dense()
        if found.dtype != wanted.dtype or not torch.equal(found, wanted):
            raise AssertionError(f"rank {rank}, {name}: expected {wanted}, got {found}")


def values(kind, *shape, seed=0):
    generator = torch.Generator().manual_seed(100 * rank + seed)
    numbers = torch.randint(0, 5, shape, generator=generator)  # sums are exact in all types
    return torch.complex(numbers.float(), -numbers.float()).to(kind) if kind.is_complex \
        else numbers.to(kind)


def both(name, call, *tensors):
    """call(group, *copies) changes its tensors alike in both groups."""
    results = []
    for group in (ours, gloo):
        copies = [tensor.clone() for tensor in tensors]
        call(group, *copies)
        results.append(copies)
    same(name, *results)


INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)
FRACTIONS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
for kind in (*INTEGERS, *FRACTIONS):
    for op in (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX):
        both(f"{kind} {op}", lambda group, one, op=op: dist.all_reduce(one, op, group),
             values(kind, 3, 50))
    both(f"reduce {kind}", lambda group, one: dist.reduce(one, 0, group=group)
         if rank == 0 else dist.reduce(one.clone(), 0, group=group), values(kind, 7))
    both(f"broadcast {kind}", lambda group, one: dist.broadcast(one, size - 1, group),
         values(kind, 70_000))
for kind in INTEGERS:
    for op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR):
        both(f"{kind} {op}", lambda group, one, op=op: dist.all_reduce(one, op, group),
             values(kind, 9))
for kind in (torch.complex64, torch.complex128):
    both(f"{kind}", lambda group, one: dist.all_reduce(one, group=group), values(kind, 9))

# Not of Gloo: int16, bool, averages, factors.
one = torch.full((3,), rank + 1, dtype=torch.int16)
dist.all_reduce(one, group=ours)
same("int16", [one], [torch.full((3,), size * (size + 1) // 2, dtype=torch.int16)])
flags = torch.tensor([rank == 0, True, False])
dist.all_reduce(flags, group=ours)
same("any", [flags], [torch.tensor([True, True, False])])
flags = torch.tensor([rank == 0, True, False])
dist.all_reduce(flags, ReduceOp.PRODUCT, ours)
same("all", [flags], [torch.tensor([size == 1, True, False])])
one = torch.full((3,), float(rank))
dist.all_reduce(one, ReduceOp.AVG, ours)
same("average", [one], [torch.full((3,), (size - 1) / 2)])
one = torch.ones(3)
dist.all_reduce(one, dist._make_nccl_premul_sum(0.5), ours)
same("factor", [one], [torch.full((3,), size / 2)])

for shape in ((5,), (4, 16), (1024,)):
    tensor = values(torch.float32, *shape)
    both("transposed", lambda group, one: dist.all_reduce(one.t(), group=group), tensor)
    lists = [[torch.empty(shape) for _ in range(size)] for _ in range(2)]
    for outputs, group in zip(lists, (ours, gloo)):
        dist.all_gather(outputs, tensor, group)
    same("all_gather", *lists)
    joined = [torch.empty(size * shape[0], *shape[1:]) for _ in range(2)]
    for output, group in zip(joined, (ours, gloo)):
        dist.all_gather_into_tensor(output, tensor, group)
    same("all_gather_into_tensor", joined[:1], joined[1:])
    lists = [[torch.zeros(shape) for _ in range(size)] if rank == 1 else None for _ in range(2)]
    for outputs, group in zip(lists, (ours, gloo)):
        dist.gather(tensor, outputs, 1, group=group)
    if rank == 1:
        same("gather", *lists)
    parts = [values(torch.float32, *shape, seed=part) for part in range(size)]
    outputs = [torch.zeros(shape) for _ in range(2)]
    for output, group in zip(outputs, (ours, gloo)):
        dist.scatter(output, parts if rank == 1 else None, 1, group=group)
    same("scatter", outputs[:1], outputs[1:])
    whole = torch.cat(parts)
    sums = whole.clone()
    dist.all_reduce(sums, group=gloo)
    wanted = sums.chunk(size)[rank]
    output = torch.empty(shape)
    dist.reduce_scatter_tensor(output, whole, group=ours)
    same("reduce_scatter_tensor", [output], [wanted])
    output = torch.empty(shape)
    dist.reduce_scatter(output, [part.clone() for part in parts], group=ours)
    same("reduce_scatter", [output], [wanted])
    output = torch.empty_like(whole)
    dist.all_to_all_single(output, whole, group=ours)
    wanted = torch.empty_like(whole)
    dist.all_to_all_single(wanted, whole, group=gloo)
    same("all_to_all_single", [output], [wanted])
    outputs = [torch.empty(shape) for _ in range(size)]
    dist.all_to_all(outputs, parts, group=ours)
    same("all_to_all", outputs, list(wanted.chunk(size)))
splits = [1] * (size - 1) + [4]
mine = values(torch.int64, sum(splits), 2)
count = splits[rank]
results = []
for group in (ours, gloo):
    output = torch.empty(count * size, 2, dtype=torch.int64)
    dist.all_to_all_single(output, mine, [count] * size, splits, group)
    results.append([output])
same("unequal all_to_all_single", *results)

many = [values(torch.float32, 3), values(torch.float32, 2, 2)]
sums = [one.clone() for one in many]
for one in sums:
    dist.all_reduce(one, group=gloo)
dist.all_reduce_coalesced(many, group=ours)
same("all_reduce_coalesced", many, sums)
many = [values(torch.float32, 500, seed=i) for i in range(20)]
sums = [one.clone() for one in many]
works = [dist.all_reduce(one, group=ours, async_op=True) for one in many]
for one in sums:
    dist.all_reduce(one, group=gloo)
for work, one in zip(works, many):
    assert work.get_future().wait()[0].shape == one.shape and work.get_future().done()
same("asynchronous", many, sums)


def in_background(start):
    """Rank 0 takes memory that is free before the others have started."""
    if rank != 0:
        time.sleep(0.1)
    work = start()
    if rank == 0:
        taken = [torch.full((count,), 7.0) for count in (96, 96 * size) for _ in range(100)]
        assert len(taken) == 200
    work.wait()
    assert work.is_completed()


parts = [torch.full((96,), float(rank * size + part)) for part in range(size)]
outputs = [torch.empty(96) for _ in range(size)]
in_background(lambda: dist.all_to_all(outputs, parts, ours, async_op=True))
same("all_to_all", outputs, [torch.full((96,), float(each * size + rank)) for each in range(size)])
output = torch.empty(96)
in_background(lambda: dist.scatter(output, parts if rank == 0 else None, 0, ours, async_op=True))
same("scatter", [output], [torch.full((96,), float(rank))])
in_background(lambda: dist.all_gather(outputs, torch.full((96, 2), rank + 1.0)[:, 0], ours,
                                      async_op=True))
same("all_gather", outputs, [torch.full((96,), each + 1.0) for each in range(size)])
output = torch.full((96, 2), rank + 1.0)
in_background(lambda: dist.all_reduce(output[:, 0], group=ours, async_op=True))
same("all_reduce", [output[:, 0]], [torch.full((96,), size * (size + 1) / 2)])

# A sum of sparse tensors, of other rows on each rank.
rows = torch.tensor([[0, rank + 1]])
both("sparse", lambda group, one: dist.all_reduce(one, group=group),
     torch.sparse_coo_tensor(rows, torch.full((2, 3), rank + 1.0), (size + 2, 3)))
before = ours._get_sequence_number_for_group()
dist.all_reduce(torch.ones(1), group=ours)
assert ours._get_sequence_number_for_group() == before + 1
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank}, ours)
assert objects == [{"rank": each} for each in range(size)], objects
dist.barrier(ours)

# Messages: short and long, with tags out of order, to both sides at once.
after, before = (rank + 1) % size, (rank - 1) % size
for count in (0, 5, 100_000):
    for kind in (torch.float32, torch.int64, torch.bool):
        received = torch.empty(count, dtype=kind)
        works = [dist.irecv(received, before, ours, 7),
                 dist.isend(torch.full((count,), rank, dtype=kind), after, ours, 7)]
        for work in works:
            work.wait()
        same("ring", [received], [torch.full((count,), before, dtype=kind)])
if rank == 0:
    dist.send(torch.tensor([1.0]), 1, ours, 1)
    long = dist.isend(torch.full((50_000,), 2.0), 1, ours, 2)
    dist.send(torch.tensor([3.0]), 1, ours, 3)
    long.wait()
if rank == 1:
    for tag, wanted in ((3, [3.0]), (1, [1.0]), (2, [2.0] * 50_000)):
        received = torch.empty(len(wanted))
        dist.recv(received, 0, ours, tag)
        same(f"tag {tag}", [received], [torch.tensor(wanted)])
# While a collective waits for the other ranks.
pending = torch.ones(3)
if rank == 0:
    work = dist.all_reduce(pending, group=ours, async_op=True)
    dist.send(torch.tensor([5]), 1, ours)
if rank == 1:
    received = torch.empty(1, dtype=torch.int64)
    dist.recv(received, 0, ours)
    same("message beside a collective", [received], [torch.tensor([5])])
if rank != 0:
    work = dist.all_reduce(pending, group=ours, async_op=True)
work.wait()
same("collective beside a message", [pending], [torch.full((3,), float(size))])
requests = [dist.P2POp(dist.isend, torch.tensor([rank]), after, ours),
            dist.P2POp(dist.irecv, received := torch.empty(1, dtype=torch.int64), before, ours)]
for work in dist.batch_isend_irecv(requests):
    work.wait()
same("batch", [received], [torch.tensor([before])])
# From whomever, and of a request that the program does not keep.
if rank == 1:
    for other in range(size):
        if other != rank:
            dist.isend(torch.tensor([10 * other]), other, ours, 4)
else:
    sender = dist.recv(received, None, ours, 4)
    assert (sender, int(received)) == (1, 10 * rank), (sender, received)


def refuses(pattern, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except RuntimeError as error:
        assert re.search(pattern, str(error)), error
        return
    raise AssertionError(f"{function.__name__} accepted {arguments}")


refuses("expected another rank, from 0 to", ours.send,
        [torch.ones(1)], size, 0)
refuses("type among torch.float32.*got torch.float8", dist.all_reduce,
        torch.zeros(3).to(torch.float8_e5m2), group=ours)
refuses("floating-point numbers for an average, got torch.int64", dist.all_reduce,
        torch.zeros(3, dtype=torch.int64), ReduceOp.AVG, ours)
refuses("integers for an operation on bits", dist.all_reduce, torch.zeros(3), ReduceOp.BAND, ours)
other = dist.new_group(list(range(size))[::-1], backend="lockstep")
one = torch.ones(3)
dist.all_reduce(one, group=other)
same("another group", [one], [torch.full((3,), float(size))])
# A mismatch names both calls, and ends the group on all ranks; the others go on.
refuses(r"member 0 called all_reduce\(3 float32, sum\) and member 1 called all_reduce\(4",
        dist.all_reduce, torch.zeros(3 + rank), group=other)
dist.all_reduce(one, group=ours)
dist.destroy_process_group()
print(f"rank {rank} of {size}: {checked} right", flush=True)

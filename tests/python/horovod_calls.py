"""A rank: calls of lockstep.torch in different orders, that differ, of process sets, and their
timeline, in the file TIMELINE. With an argument, rank 1 ends in that way.
"""
import concurrent.futures
import json
import os
import sys
import time

import lockstep
import lockstep.torch as hvd
import torch

torch.set_num_threads(1)


def start_in_any_order():
    calls = [(hvd.allreduce_async, {"op": hvd.Sum}), (hvd.allgather_async, {}),
             (hvd.broadcast_async, {"root_rank": 1}), (hvd.reducescatter_async, {"op": hvd.Sum})]
    names = [f"{index}.{copy}" for copy in range(3) for index in range(len(calls))]
    order = names if rank == 0 else names[rank:] + names[:rank]
    handles = {}
    for name in order:
        function, options = calls[int(name[0])]
        handles[name] = function(torch.full((size,), rank + 1.0), name=name, **options)
    total = size * (size + 1) / 2
    for name in reversed(order):
        wanted = [[total] * size, [each + 1.0 for each in range(size) for _ in range(size)],
                  [2.0] * size, [total]][int(name[0])]
        assert hvd.synchronize(handles[name]).tolist() == wanted, name
        assert hvd.poll(handles[name])


def differ_and_continue():
    for function, tensor, words in (
            (hvd.allreduce, torch.ones(1 + rank),
             ("float32 [1], cpu, Average", "float32 [2]", "rank 0", "rank 1")),
            (hvd.allgather, torch.ones(2, 1 + rank), ("float32 [1]", "float32 [2]")),
            (hvd.allreduce, torch.ones(2, dtype=(torch.int32, torch.float64)[rank % 2]),
             ("int32", "float64"))):
        try:
            function(tensor, name="of two kinds")
        except hvd.HorovodInternalError as error:
            assert all(word in str(error) for word in words), error
        else:
            raise AssertionError("calls that differ were made")
    if rank == 0:
        handle = hvd.allreduce_async(torch.ones(1), name="once")
        try:
            hvd.allreduce_async(torch.ones(1), name="once")
        except ValueError as error:
            assert "[allreduce.once] expected one call of this name" in str(error)
        else:
            raise AssertionError("two calls had one name")
    hvd.barrier()
    if rank > 0:
        handle = hvd.allreduce_async(torch.ones(1), name="once")
    assert hvd.synchronize(handle).item() == 1
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size


def reduce_many_types():
    for kind in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
                 torch.bfloat16, torch.float32, torch.float64):
        group = [torch.full((5, 3), rank + 1).to(kind), torch.full((3, 5), 3).to(kind).t(),
                 torch.ones(()).to(kind)]
        for op, wanted in ((hvd.Sum, size * (size + 1) // 2), (hvd.Max, size), (hvd.Min, 1)):
            results = hvd.grouped_allreduce(group, op=op)
            assert [one.dtype for one in results] == [kind] * 3
            assert torch.equal(results[0], torch.full((5, 3), wanted).to(kind)), (kind, op)
        hvd.grouped_allreduce_(group, op=hvd.Sum, prescale_factor=0.5, postscale_factor=2.0)
        half = 1.5 if kind.is_floating_point else 1
        assert group[1].tolist() == [[half * size * 2] * 3] * 5, (kind, group[1])
    mixed = hvd.grouped_allreduce([torch.ones(2), torch.ones(2, dtype=torch.int64)], op=hvd.Sum)
    assert [one.sum().item() for one in mixed] == [2 * size] * 2
    flags = hvd.allreduce(torch.tensor([rank == 0, False]), op=hvd.Max)
    assert flags.tolist() == [True, False]


def exchange():
    splits = [rank + each for each in range(size)]
    sent = torch.arange(sum(splits) * 2.0).view(-1, 2) + 100 * rank
    received, counts = hvd.alltoall(sent, splits)
    assert counts.tolist() == [rank + each for each in range(size)]
    first = sum(counts[:1].tolist())
    if first:
        assert received[0, 0].item() == 2 * sum(range(rank))
    rows = torch.arange(3.0 * (size + 1)).view(-1, 3)
    part = hvd.reducescatter(rows, op=hvd.Sum)  # one row more on rank 0
    assert part.shape[0] == (2 if rank == 0 else 1)
    assert torch.equal(hvd.allgather(part), rows * size)
    empty = hvd.allgather(torch.empty(0, 2))
    assert empty.shape == (0, 2)
    assert hvd.alltoall(torch.ones(size, 0)).shape == (size, 0)
    hvd.broadcast_(torch.empty(0), 0)


def use_process_sets():
    first = hvd.add_process_set([0])
    others = hvd.add_process_set(hvd.ProcessSet(range(1, size)))
    mine, alien = (first, others) if rank == 0 else (others, first)
    assert mine.included() and not alien.included() and mine.size() == max(1, mine.size())
    # Calls of both sets at once, which end in another order.
    a = hvd.allreduce_async(torch.ones(1), op=hvd.Sum, process_set=mine)
    b = hvd.allreduce_async(torch.ones(1), op=hvd.Sum)
    assert hvd.synchronize(b).item() == size and hvd.synchronize(a).item() == mine.size()
    try:
        hvd.allreduce(torch.ones(1), process_set=alien)
    except ValueError as error:
        assert "[allreduce] expected a process set that was added, with rank" in str(error)
    else:
        raise AssertionError("a call in a set of others was made")
    with concurrent.futures.ThreadPoolExecutor() as threads:
        sums = [threads.submit(lambda process_set: [
            hvd.allreduce(torch.ones(9), op=hvd.Sum, name="in a thread", process_set=process_set)
            for _ in range(50)], one) for one in (hvd.global_process_set, mine)]
    for one, wanted in zip(sums, (size, mine.size())):
        assert all(torch.equal(each, torch.full((9,), wanted)) for each in one.result())
    assert hvd.remove_process_set(first) and hvd.remove_process_set(others)
    assert not hvd.remove_process_set(first)
    assert first.size() is None


def write_a_timeline():
    path = os.environ["TIMELINE"]
    hvd.start_timeline(path, mark_cycles=True)
    hvd.allreduce(torch.ones(3), name="shown")
    hvd.stop_timeline()
    hvd.allreduce(torch.ones(3), name="hidden")
    if rank == 0:
        with open(path) as file:
            events = json.load(file)
        names = [event.get("name") for event in events]
        assert names.count("NEGOTIATE_ALLREDUCE") == names.count("ALLREDUCE") == 1
        assert "CYCLE_START" in names
        lanes = [event["args"]["name"] for event in events if event.get("name") == "thread_name"]
        assert lanes == ["allreduce.shown"]
        phases = [event["ph"] for event in events if event.get("tid") == 1 and
                  event["ph"] in "BE"]
        assert phases == ["B", "E", "B", "E"]


def join_others():
    own = torch.full((2,), 2.0 + rank)
    if rank > 0:
        for op, wanted in ((hvd.Min, 3), (hvd.Max, size + 1), (hvd.Sum, None)):
            result = hvd.allreduce(own, op=op)
            assert wanted in (None, result[0].item()), (op, result)
        try:
            hvd.allgather(own)
        except hvd.HorovodInternalError as error:
            assert "got join() of rank 0" in str(error)
        else:
            raise AssertionError("rows of a rank that has joined were gathered")
    assert hvd.join() > 0 or size == 1


def keep_kinds_of_numbers():
    numbers = torch.tensor([1 + 2j, 3 - 1j])
    assert torch.equal(hvd.allreduce(numbers), numbers)
    assert torch.equal(hvd.allreduce(numbers.conj()), numbers.conj().resolve_conj())
    assert torch.equal(hvd.allgather(torch._neg_view(own := torch.ones(1))), -torch.ones(size))
    with torch.inference_mode():
        assert hvd.synchronize(hvd.allreduce_async(torch.tensor([rank] * 2), op=hvd.Average)
                               ).tolist() == [(size - 1) // 2] * 2
    weight = torch.nn.Parameter(own)
    assert hvd.allreduce_(weight) is weight


def make_a_group_for_gpus():
    """With Gloo in place of NCCL, which needs GPUs."""
    torch.distributed.ProcessGroupNCCL = torch.distributed.ProcessGroupGloo
    hvd.barrier()
    group = hvd.global_process_set._group._make_gpu_backend()
    ones = torch.ones(3)
    group.allreduce([ones]).wait()
    assert ones.tolist() == [size] * 3
    hvd.barrier()


def copy_objects():
    assert hvd.broadcast_object({"rank": rank}, 1) == {"rank": 1}
    assert hvd.allgather_object([rank] * rank) == [[each] * each for each in range(size)]


hvd.init()
rank, size = hvd.rank(), hvd.size()
if len(sys.argv) > 1:
    hvd.add_process_set([0, 1])  # beside the set of all
    model = torch.nn.Linear(2, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
    if rank == 1:
        def fail(_gradient):
            raise ValueError("in a hook of rank 1")

        if sys.argv[1] == "exception":
            model.weight.register_hook(fail)
        if sys.argv[1] == "leaves":
            hvd.shutdown()
            sys.exit()
        if sys.argv[1] == "late":
            time.sleep(3)
    model(torch.ones(2)).backward()
    optimizer.step()
    sys.exit()
for use in (start_in_any_order, differ_and_continue, reduce_many_types, exchange, use_process_sets,
            write_a_timeline, join_others, keep_kinds_of_numbers,
            make_a_group_for_gpus, copy_objects):
    use()
hvd.shutdown()
if not hvd.mpi_enabled():
    hvd.init()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == size
    hvd.shutdown()
    lockstep.init(quiet=True)  # and for arrays again
    lockstep.barrier()
    lockstep.shutdown()
print(f"rank {rank} of {size}: all right", flush=True)

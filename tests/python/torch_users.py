"""A rank of torchrun: what PyTorch builds on process groups, over ours."""
import datetime
import tempfile

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed import checkpoint
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("lockstep")
rank, size = dist.get_rank(), dist.get_world_size()


def wrapped():
    torch.manual_seed(0)
    return DistributedDataParallel(torch.nn.Linear(8, 8))


def use_zero_redundancy_optimizer():
    model = wrapped()
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1)
    for _ in range(3):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.consolidate_state_dict(0)
    together = [torch.empty(8, 8) for _ in range(size)]
    dist.all_gather(together, model.module.weight.detach())
    assert all(torch.equal(one, together[0]) for one in together)


def use_tensors_on_a_mesh():
    mesh = init_device_mesh("cpu", (size,))
    whole = torch.arange(16.0).reshape(4, 4)
    rows, columns = (distribute_tensor(whole, mesh, [Shard(axis)]) for axis in (0, 1))
    assert torch.equal((rows @ columns).full_tensor(), whole @ whole)
    assert torch.equal(rows.redistribute(mesh, [Replicate()]).to_local(), whole)


def use_a_mesh_of_two_axes():
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("outer", "inner"))
    ones = torch.ones(2)
    dist.all_reduce(ones, group=mesh["outer"].get_group())
    assert ones[0] == 2


def split_the_group():
    last = dist.split_group(split_ranks=[[size - 1]])
    assert (last == dist.GroupMember.NON_GROUP_MEMBER) == (rank != size - 1)
    half = list(range(size // 2)), list(range(size // 2, size))[::-1]
    group = dist.split_group(split_ranks=[list(ranks) for ranks in half])
    first = torch.tensor([rank])
    dist.broadcast(first, group=group, group_src=0)
    assert first.item() == (0 if rank < size // 2 else size - 1)


def name_who_does_not_come():
    group = dist.new_group()
    if rank != 1:
        try:
            dist.monitored_barrier(group, datetime.timedelta(seconds=1))
        except RuntimeError as error:
            assert rank != 0 or "Rank 1 failed to pass monitoredBarrier in 1000 ms" in str(error)
        else:
            raise AssertionError("it passed without rank 1")
    dist.barrier()


def save_and_load_a_checkpoint():
    place = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(place, 0)
    saved, loaded = ({"weights": torch.full((3,), value)} for value in (1.0, 0.0))
    checkpoint.save(saved, checkpoint_id=place[0])
    checkpoint.load(loaded, checkpoint_id=place[0])
    assert torch.equal(saved["weights"], loaded["weights"])


def join_with_unequal_inputs():
    model = wrapped()
    with Join([model]):
        for _ in range(3 + rank):
            model(torch.randn(2, 8)).sum().backward()


def compress_gradients():
    model = wrapped()
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    for _ in range(2):
        model(torch.randn(2, 8)).sum().backward()


def use_functional_collectives():
    total = functional.all_reduce(torch.ones(3), "sum", dist.group.WORLD)
    assert functional.wait_tensor(total)[0] == size
    part = functional.reduce_scatter_tensor(torch.ones(4 * size), "avg", 0, dist.group.WORLD)
    assert functional.wait_tensor(part).tolist() == [1] * 4


def exchange_objects():
    found = [None] * size
    dist.all_gather_object(found, {"rank": rank})
    assert found == [{"rank": each} for each in range(size)]
    mine = [None]
    dist.scatter_object_list(mine, list(range(size)) if rank == 0 else None, 0)
    assert mine == [rank]
    if rank == 0:
        dist.send_object_list([7], 1)
    if rank == 1:
        dist.recv_object_list(mine, 0)
        assert mine == [7]
    dist.monitored_barrier()


for use in (split_the_group, name_who_does_not_come, use_zero_redundancy_optimizer,
            use_tensors_on_a_mesh, use_a_mesh_of_two_axes, save_and_load_a_checkpoint,
            join_with_unequal_inputs, compress_gradients, use_functional_collectives,
            exchange_objects):
    use()
dist.destroy_process_group()
print(f"rank {rank} of {size}: all work", flush=True)

"""A rank of torchrun: calls in great number, from several threads, beside processes that were
forked and a second OpenMP library, and groups that end in any order.
"""
import os
import resource
import sys
import threading

import torch
import torch.distributed as dist

torch.set_num_threads(2)
dist.init_process_group("lockstep")
rank, size = dist.get_rank(), dist.get_world_size()


def check_sums_of(group, calls):
    for call in range(calls):
        one = torch.full((1000,), float(call))
        dist.all_reduce(one, group=group)
        assert one[0] == call * size


def use_threads():
    groups = [dist.new_group() for _ in range(3)]
    failed = []

    def work(group):
        try:
            check_sums_of(group, 300)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=[group]) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    for group in groups if rank == 0 else groups[::-1]:
        dist.destroy_process_group(group)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((256,), float(index)) @ torch.ones(256, 4)


def load_in_forked_processes():
    for batch in torch.utils.data.DataLoader(Numbers(), 8, num_workers=2,
                                             multiprocessing_context="fork"):
        whole = torch.randn(512, 512) @ torch.randn(512, 512)  # with torch's threads
        large = torch.ones(1 << 20)
        dist.all_reduce(large)  # with those of the core
        assert large[-1] == size and whole.shape == (512, 512) and batch.shape == (8, 4)


def fork_a_process_that_exits():
    child = os.fork()
    if child == 0:
        sys.exit(0)  # it is not a member of the group, and must not leave it
    assert os.waitpid(child, 0)[1] == 0
    check_sums_of(None, 10)


def call_often():
    """A million calls: as many as two weeks of steps."""
    one = torch.ones(16)

    def call(times):
        for _ in range(times // 2):
            dist.all_reduce(one)
            one.fill_(1)
        for _ in range(times // 4):
            works = [dist.all_reduce(one, async_op=True), dist.barrier(async_op=True)]
            for work in works:
                work.wait()
            one.fill_(1)

    call(20_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call(1_000_000)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 8 << 10, f"{grown} KiB"


for use in (use_threads, load_in_forked_processes, fork_a_process_that_exits, call_often):
    use()
print(f"rank {rank}: at rest", flush=True)  # and the default group ends with the program

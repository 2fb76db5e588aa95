"""Two members of a group in threads of one process: what must neither hang, nor use memory that is
not there any more, nor give wrong numbers.
"""
import faulthandler
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from lockstep.torch import register
from lockstep.torch.backend import LockstepBackend

faulthandler.dump_traceback_later(100, exit=True)
SHORT = timedelta(seconds=0.2)


def on_both(function):
    """function(0) and function(1), each in a thread."""
    results = [None, None]

    def run(rank):
        try:
            results[rank] = function(rank)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=[rank]) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


made = []


def members(store=None):
    store = store or dist.HashStore()
    both = on_both(lambda rank: LockstepBackend(store, rank, 2, timedelta(seconds=10)))
    assert all(isinstance(one, LockstepBackend) for one in both), both
    made.extend(both)
    return both


def summed(member, tensor, is_async=True):
    opts = dist.AllreduceOptions()
    opts.asyncOp = is_async
    return member.allreduce([tensor], opts)


def raises(pattern, function):
    try:
        function()
    except RuntimeError as error:
        assert pattern in str(error), error
        return
    raise AssertionError("expected an error of " + pattern)


def a_callback_waits_for_another_collective():
    one, other = members()
    first, second = torch.ones(2), torch.ones(2)
    future = summed(one, first).get_future().then(
        lambda _: summed(one, first).get_future().wait()[0])
    for _ in range(2):
        summed(other, second).wait()
    assert future.wait()[0] == 4


def a_message_is_sent_after_its_tensor_and_its_group():
    one, other = members()
    one.send([torch.ones(1 << 22)], 1, 0)
    one.shutdown()
    taken = torch.full((1 << 22,), 7.0)
    received = torch.zeros(1 << 22)
    other.recv([received], 0, 0).wait()
    assert (received == 1).all() and taken[0] == 7


def a_message_outlives_its_group():
    one, other = members()
    work = one.recv([torch.zeros(4)], 1, 0)
    one.shutdown()
    other.shutdown()
    raises("the session has ended", work.wait)
    assert work.is_completed() and not work.is_success()
    raises("the session has ended", work.wait)


def a_message_is_too_long():
    one, other = members()
    work = one.recv([torch.zeros(1)], 1, 0)
    other.send([torch.ones(8)], 0, 0)
    for _ in range(2):
        raises("at most 4 bytes of member 1", work.wait)


def the_group_is_left_while_a_thread_reduces():
    one, other = members()
    values = torch.ones(8)
    thread = threading.Thread(target=summed, args=[one, values, False])
    thread.start()
    thread.join(0.2)
    one.shutdown()
    summed(other, torch.ones(8), False)
    thread.join()
    assert values[0] == 2


def abort_ends_calls_and_time_limits_waits():
    one, _ = members()
    work = summed(one, torch.ones(4))
    raises("expected the collective within 0.2 s", lambda: work.wait(SHORT))
    message = one.recv([torch.zeros(4)], 1, 0)
    raises("expected the message within 0.2 s", lambda: message.wait(SHORT))
    one.abort()
    raises("called lockstep_abort", work.wait)
    raises("lockstep_abort", message.wait)


def a_store_serves_one_group_after_the_other():
    store = dist.HashStore()
    for _ in range(2):
        for member in members(store):
            member.shutdown()


def numbers_of_tensors_do_not_fit():
    one, other = both = members()
    scatter = dist.ScatterOptions()
    raises("a tensor for each of 2 ranks, got 1",
           lambda: one.scatter([torch.empty(4)], [[torch.ones(4)]], scatter))
    scatter.rootRank = 2
    raises("a root from 0 to 1, got 2", lambda: other.scatter([torch.empty(4)], [], scatter))
    raises("2 splits that add up to 4 rows", lambda: one._all_to_all_single(
        torch.empty(4), torch.empty(4), [], [-1, 5]))
    error, right = on_both(lambda rank: both[rank].alltoall(
        [torch.zeros(3), torch.zeros(1)], [torch.ones(1 + 2 * rank), torch.ones(3 - 2 * rank)]
    ).wait())
    assert "expected [12, 4] bytes from the ranks, got [4, 12]" in str(error) and right is True


def modes_of_autograd_are_those_of_the_caller():
    one, other = members()
    with torch.inference_mode():
        outputs = [[torch.zeros(3) for _ in range(2)] for _ in range(2)]
        works = [member.allgather([found], [torch.full((3,), float(number))])
                 for number, (member, found) in enumerate(zip((one, other), outputs))]
        for work, found in zip(works, outputs):
            work.wait()
            assert found[0][0] == 0 and found[1][0] == 1
    parameter = torch.nn.Parameter(torch.ones(3))
    works = [member.reduce([tensor], dist.ReduceOptions())
             for member, tensor in ((one, parameter), (other, torch.ones(3)))]
    for work in works:
        work.wait()
    assert parameter[0] == 2


def the_other_forms_of_calls():
    register()
    dist.init_process_group("lockstep", store=dist.HashStore(), rank=0, world_size=1)
    group, one = dist.group.WORLD, torch.ones(2)
    for work in (group.broadcast(one, root=0), group.broadcast([one]), group.allreduce(one),
                 group.allreduce([one], op=dist.ReduceOp.SUM), group.barrier(timeout=SHORT),
                 group.barrier()):
        work.wait()
    assert one.tolist() == [1, 1]
    dist.destroy_process_group()


for test in (a_callback_waits_for_another_collective,
             a_message_is_sent_after_its_tensor_and_its_group, a_message_outlives_its_group,
             a_message_is_too_long, the_group_is_left_while_a_thread_reduces,
             abort_ends_calls_and_time_limits_waits, a_store_serves_one_group_after_the_other,
             numbers_of_tensors_do_not_fit, modes_of_autograd_are_those_of_the_caller,
             the_other_forms_of_calls):
    test()
    for member in made:
        member.shutdown()
    made.clear()
print("all refused or right", flush=True)

"""Collectives other than allreduce(), by name, with gradients. The functions and arguments are
Horovod's.
"""
import torch

from .._library import InputError
from .calls import terms_of, text_of
from .compression import Compression
from .handles import Average, Sum, begin, dense, name_of, operation_of, plain, synchronize
from .job import global_process_set
from .negotiation import Call
from .reductions import AllReduce

__all__ = ["allgather", "allgather_async", "alltoall", "alltoall_async", "barrier", "broadcast",
           "broadcast_", "broadcast_async", "broadcast_async_", "grouped_allgather",
           "grouped_allgather_async", "grouped_reducescatter", "grouped_reducescatter_async",
           "join", "reducescatter", "reducescatter_async", "sparse_allreduce_async"]


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Starts the sum (or Average) of a tensor of layout ``torch.sparse_coo``, whose indices may
    differ between ranks; returns a function that waits for it and returns it.
    """
    op = operation_of("sparse_allreduce_async", None, op)
    if op not in (Average, Sum):
        raise InputError(f"[sparse_allreduce_async] expected Average or Sum, got {op.name}")
    parts = grouped_allgather_async([tensor._indices().t(), tensor._values()],
                                    f"{name}.sparse", process_set)

    def handle():
        indices, values = synchronize(parts)
        if op == Average:
            values = values / process_set.size()
        return torch.sparse_coo_tensor(indices.t(), values, tensor.shape,
                                       check_invariants=True)

    return handle


def _gather(function, tensors, name, process_set, waits=False, is_group=False):
    tensors = [plain(one) for one in dense(function, tensors)]
    if any(one.dim() == 0 for one in tensors):
        raise InputError(f"[{function}] expected tensors with rows, got one number")
    group, _ = process_set._use("allgather")
    types, shapes, device = terms_of(tensors)

    def start(sizes):
        results = [group.gather(one, [rows[index] for rows in sizes])
                   for index, one in enumerate(tensors)]
        return (results, sizes) if waits else results if is_group else results[0]

    return begin(process_set, Call(
        "allgather", name_of(process_set, "allgather", name),
        text_of(types, tuple(shape[1:] for shape in shapes), device), start,
        [one.shape[0] for one in tensors]), waits)


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        results, ctx.rows = _gather("allgather", tensors, name, process_set, True)
        ctx.process_set = process_set
        return tuple(results)

    @staticmethod
    def backward(ctx, *gradients):
        rank = ctx.process_set.rank()
        averages = AllReduce.apply(None, Average, 1.0, 1.0, ctx.process_set, True, *gradients)
        own = [one.narrow(0, sum(rows[index] for rows in ctx.rows[:rank]), ctx.rows[rank][index])
               for index, one in enumerate(averages)]
        return None, None, *own


def allgather(tensor, name=None, process_set=global_process_set):
    """The rows of all ranks, in rank order. Their numbers may differ, the other extents may not.
    The gradient is that of Horovod: the average over ranks.
    """
    return _AllGather.apply(name, process_set, tensor)[0]


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Starts allgather(), without a gradient; returns a handle."""
    return _gather("allgather_async", [tensor], name, process_set)


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """allgather() of several tensors as one call; returns a list."""
    return list(_AllGather.apply(name, process_set, *tensors))


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """Starts grouped_allgather(), without gradients; returns a handle."""
    return _gather("grouped_allgather_async", tensors, name, process_set, is_group=True)


def _broadcast(function, tensor, root_rank, name, process_set, in_place, waits=False):
    target, = dense(function, [tensor], in_place)
    group, _ = process_set._use("broadcast")
    root_rank = int(root_rank)
    if root_rank not in process_set.ranks:
        raise InputError(f"[{function}] expected a root among ranks {process_set.ranks}, got "
                         f"{root_rank}")
    work = plain(target)
    if not in_place:
        work = work.clone()

    def start(_sizes):
        group.broadcast(work, process_set.ranks.index(root_rank))
        if in_place and work is not target:
            with torch.inference_mode():
                target.copy_(work)
        return tensor if in_place else work

    return begin(process_set, Call("broadcast", name_of(process_set, "broadcast", name),
                                   text_of(*terms_of([work]), root_rank), start), waits)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.how = root_rank, process_set
        return _broadcast("broadcast", tensor, root_rank, name, process_set, False, True)

    @staticmethod
    def backward(ctx, gradient):
        root_rank, process_set = ctx.how
        average = AllReduce.apply(None, Average, 1.0, 1.0, process_set, False, gradient)
        is_root = process_set.ranks[process_set.rank()] == root_rank
        return average if is_root else torch.zeros_like(average), None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """The values of rank ``root_rank`` of the job, as a new tensor. The gradient is that of
    Horovod: at the root the average over ranks, elsewhere zero.
    """
    return _Broadcast.apply(tensor, root_rank, name, process_set)


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts broadcast(), without a gradient; returns a handle."""
    return _broadcast("broadcast_async", tensor, root_rank, name, process_set, False)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """broadcast() in place, without a gradient; returns the tensor."""
    return _broadcast("broadcast_", tensor, root_rank, name, process_set, True, True)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts broadcast_(); returns a handle."""
    return _broadcast("broadcast_async_", tensor, root_rank, name, process_set, True)


def _exchange(function, tensor, splits, name, process_set, waits=False):
    source, = dense(function, [tensor])
    group, _ = process_set._use("alltoall")
    if source.dim() == 0:
        raise InputError(f"[{function}] expected a tensor with rows, got one number")
    rows = source.shape[0]
    if splits is None:
        if rows % group.size:
            raise InputError(f"[{function}] expected splits, or a number of rows that is a "
                             f"multiple of {group.size}, got {rows} rows")
        parts = [rows // group.size] * group.size
    else:
        splits = torch.as_tensor(splits)
        if splits.is_floating_point() or splits.dim() != 1:
            raise InputError(f"[{function}] expected splits that are integers, one for each rank, "
                             f"got {splits.dtype} {tuple(splits.shape)}")
        parts = splits.tolist()
        if len(parts) != group.size or min(parts) < 0 or sum(parts) > rows:
            raise InputError(f"[{function}] expected {group.size} splits that add up to at most "
                             f"{rows} rows, got {parts}")
    source = plain(source[:sum(parts)])
    types, (shape,), device = terms_of([source])

    def start(sizes):
        result, received = group.exchange(source, sizes)
        if splits is not None:
            received = received.to(splits.device)
        return result, received

    return begin(process_set, Call("alltoall", name_of(process_set, "alltoall", name),
                                   text_of(types, shape[1:], device), start, parts), waits)


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        result, received = _exchange("alltoall", tensor, splits, name, process_set, True)
        ctx.received, ctx.process_set, ctx.rows = received, process_set, tensor.shape[0]
        ctx.mark_non_differentiable(received)
        return result, received

    @staticmethod
    def backward(ctx, gradient, _received):
        own, _ = _AllToAll.apply(gradient, ctx.received, None, ctx.process_set)
        rest = own.new_zeros((ctx.rows - own.shape[0], *own.shape[1:]))  # rows that nobody got
        return torch.cat([own, rest]), None, None, None


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """The rows that the ranks send to this one, in rank order.

    Args:
        splits: how many rows go to each rank; by default, the same number to all.

    Returns:
        The rows; with ``splits``, also how many come from each rank.
    """
    result, received = _AllToAll.apply(tensor, splits, name, process_set)
    return result if splits is None else (result, received)


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Starts alltoall(), without a gradient; returns a handle, whose result has two tensors."""
    return _exchange("alltoall_async", tensor, splits, name, process_set)


def _reduce_parts(function, tensors, name, op, process_set, before, after, waits=False,
                  is_group=False):
    op = operation_of(function, None, op)
    work = [plain(one).clone() for one in dense(function, tensors)]
    if any(one.dim() == 0 for one in work):
        raise InputError(f"[{function}] expected tensors with rows, got one number")
    group, _ = process_set._use("reducescatter")

    def start(_sizes):
        results = [group.reduce_parts(one, op, before, after) for one in work]
        return results if is_group else results[0]

    return begin(process_set, Call(
        "reducescatter", name_of(process_set, "reducescatter", name),
        text_of(*terms_of(work), op.name, float(before), float(after)), start), waits)


class _ReduceScatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, process_set, before, after, *tensors):
        ctx.process_set = process_set
        ctx.factor = before * after * (process_set.size() if op == Sum else 1)
        return tuple(_reduce_parts("reducescatter", tensors, name, op, process_set, before, after,
                                   True, True))

    @staticmethod
    def backward(ctx, *gradients):
        return *[None] * 5, *_AllGather.apply(None, ctx.process_set,
                                              *[one * ctx.factor for one in gradients])


def _reduce_scatter(function, tensors, name, compression, op, process_set, before, after):
    op = operation_of(function, None, op)
    compressed = [compression.compress(one) for one in tensors]
    results = _ReduceScatter.apply(name, op, process_set, before, after,
                                   *[one for one, _ in compressed])
    return [compression.decompress(one, context)
            for one, (_, context) in zip(results, compressed)]


def reducescatter(tensor, name=None, compression=Compression.none, op=Average,
                  process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """This rank's part of allreduce(): as many rows as each other rank has, and one more on the
    first ranks if the number of rows is no multiple of theirs.
    """
    return _reduce_scatter("reducescatter", [tensor], name, compression, op, process_set,
                           prescale_factor, postscale_factor)[0]


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set,
                        prescale_factor=1.0, postscale_factor=1.0):
    """Starts reducescatter(), without a gradient; returns a handle."""
    return _reduce_parts("reducescatter_async", [tensor], name, op, process_set, prescale_factor,
                         postscale_factor)


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average,
                          process_set=global_process_set, prescale_factor=1.0,
                          postscale_factor=1.0):
    """reducescatter() of several tensors as one call; returns a list."""
    return _reduce_scatter("grouped_reducescatter", tensors, name, compression, op, process_set,
                           prescale_factor, postscale_factor)


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set,
                                prescale_factor=1.0, postscale_factor=1.0):
    """Starts grouped_reducescatter(), without gradients; returns a handle."""
    return _reduce_parts("grouped_reducescatter_async", tensors, name, op, process_set,
                         prescale_factor, postscale_factor, is_group=True)


def join(device=-1):
    """Says that this rank has no more data. Until all ranks say so, allreduce() of the others goes
    on, with zeros of this rank (an Average is still over all ranks); other calls fail. For loaders
    of unequal length DistributedOptimizer with ``op=Samples`` counts right.

    Args:
        device: not needed; zeros are on the device of the others' tensors.

    Returns:
        The rank that said so last.
    """
    _, calls = global_process_set._use("join")
    return calls.join()


def barrier(process_set=global_process_set):
    """Returns when all ranks have called it."""
    group, _ = process_set._use("barrier")
    begin(process_set, Call("barrier", name_of(process_set, "barrier", None), "[]",
                             lambda _sizes: group.wait_for_all()), True)

"""allreduce() of tensors, by name, with gradients. The functions and arguments are Horovod's."""
import torch

from .._library import InputError
from .backend import COMPLEX, NATIVE, WIDENED
from .calls import reduction
from .compression import Compression
from .handles import Average, Sum, begin, dense, name_of, operation_of, plain
from .job import global_process_set

__all__ = ["allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "grouped_allreduce",
           "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_"]

REDUCED = {*NATIVE, *WIDENED, *COMPLEX, torch.bool}


def reduce(function, tensors, in_place, average, name, op, before, after, process_set,
           waits=False, is_group=False, wake=True):
    """Starts a reduction, and returns its handle; or with `waits`, makes it, and returns its
    result, which is a list for a group. With `wake` false, it is announced with a later call.
    """
    op = operation_of(function, average, op)
    given = list(tensors)
    tensors = dense(function, given, in_place)
    for kind in {one.dtype for one in tensors}:
        if kind not in REDUCED or (kind.is_complex and op not in (Average, Sum)):
            raise InputError(f"[{function}] expected a type that {op.name} is defined for, got "
                             f"{kind}")
    work = [plain(one) for one in tensors]
    if not in_place:
        work = [one.clone() if one.data_ptr() == source.data_ptr() else one
                for one, source in zip(work, tensors)]

    def finish(_sizes):
        if in_place:
            with torch.inference_mode():
                for target, source in zip(tensors, work):
                    if target is not source:
                        target.copy_(source)
        results = given if in_place else work
        return results if is_group else results[0]

    return begin(process_set, reduction(name_of(process_set, "allreduce", name), work,
                                        [op, float(before), float(after)], finish),
                 waits, wake)


class AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, before, after, process_set, is_group, *tensors):
        ctx.how = None, op, before, after, process_set, is_group
        results = reduce("allreduce", tensors, False, None, name, op, before, after, process_set,
                         True, True)
        return tuple(results) if is_group else results[0]

    @staticmethod
    def backward(ctx, *gradients):
        results = AllReduce.apply(*ctx.how, *gradients)
        return *[None] * 6, *(results if ctx.how[-1] else [results])


def _all_reduce(function, tensors, average, name, compression, op, before, after, process_set,
                is_group):
    op = operation_of(function, average, op)
    compressed = [compression.compress(one) for one in tensors]
    results = AllReduce.apply(name, op, before, after, process_set, is_group,
                               *[one for one, _ in compressed])
    results = [compression.decompress(one, context) for one, (_, context) in
               zip(results if is_group else [results], compressed)]
    return results if is_group else results[0]


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None,
              prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """The reduction of a tensor over all ranks: the same bits on all of them.

    Args:
        tensor: of the same shape and type on all ranks; not changed. May require a gradient, which
            is reduced in the same way.
        average: True for Average, False for Sum; or use ``op``.
        name: by which ranks find the call; by default, the number of calls without a name.
        compression: the type that travels, of Compression.
        op: Average (over ranks, the default), Sum, Min, Max, Product.
        prescale_factor, postscale_factor: by which values are multiplied before and after.
            Integers are multiplied as float64, and cut.
        process_set: the ranks.

    Returns:
        A new tensor.

    Raises:
        InputError: an argument is invalid.
        HorovodInternalError: shapes, types or arguments differ between ranks (the job continues),
            or a rank was lost.
    """
    return _all_reduce("allreduce", [tensor], average, name, compression, op, prescale_factor,
                       postscale_factor, process_set, False)


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                    postscale_factor=1.0, process_set=global_process_set):
    """Starts allreduce(), without a gradient; returns a handle."""
    return reduce("allreduce_async", [tensor], False, average, name, op, prescale_factor,
                  postscale_factor, process_set)


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0,
               postscale_factor=1.0, process_set=global_process_set):
    """allreduce() in place, without a gradient; returns the tensor."""
    return reduce("allreduce_", [tensor], True, average, name, op, prescale_factor,
                  postscale_factor, process_set, True)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                     postscale_factor=1.0, process_set=global_process_set):
    """Starts allreduce_(); returns a handle."""
    return reduce("allreduce_async_", [tensor], True, average, name, op, prescale_factor,
                  postscale_factor, process_set)


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """allreduce() of several tensors as one call; returns a list."""
    return _all_reduce("grouped_allreduce", tensors, average, name, compression, op,
                       prescale_factor, postscale_factor, process_set, True)


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                            postscale_factor=1.0, process_set=global_process_set):
    """Starts grouped_allreduce(), without gradients; returns a handle."""
    return reduce("grouped_allreduce_async", tensors, False, average, name, op, prescale_factor,
                  postscale_factor, process_set, is_group=True)


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                       postscale_factor=1.0, process_set=global_process_set):
    """grouped_allreduce() in place, without gradients; returns the tensors."""
    return reduce("grouped_allreduce_", tensors, True, average, name, op, prescale_factor,
                  postscale_factor, process_set, True, True)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                             postscale_factor=1.0, process_set=global_process_set):
    """Starts grouped_allreduce_(); returns a handle."""
    return reduce("grouped_allreduce_async_", tensors, True, average, name, op, prescale_factor,
                  postscale_factor, process_set, is_group=True)

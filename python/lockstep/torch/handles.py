"""What the collectives of lockstep.torch have in common: operations, tensors, handles."""
import torch

from .._library import InputError
from .calls import Op

__all__ = ["Adasum", "Average", "Max", "Min", "Product", "Samples", "Sum", "poll", "synchronize"]

Average, Sum, Adasum, Min, Max, Product, Samples = Op


def operation_of(function, average, op):
    if average is not None:
        if op is not None:
            raise InputError(f"[{function}] expected `op` or `average`, got both")
        op = Average if average else Sum
    try:
        op = Average if op is None else Op(op)
    except ValueError:
        raise InputError(f"[{function}] expected one of {', '.join(one.name for one in Op)}, got "
                         f"{op!r}") from None
    if op == Adasum:
        raise InputError(f"[{function}] expected Average, Sum, Min, Max or Product, got Adasum, "
                         "which is not here; Average with a smaller learning rate is closest")
    if op == Samples:
        raise InputError(f"[{function}] expected Average, Sum, Min, Max or Product, got Samples, "
                         "which DistributedOptimizer takes")
    return op


def plain(tensor):
    """The tensor, or a copy, with its elements one after another in memory."""
    if tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj():
        return tensor
    return tensor.resolve_conj().resolve_neg().contiguous()


def dense(function, tensors, in_place=False):
    for one in tensors:
        if not torch.is_tensor(one):
            raise InputError(f"[{function}] expected a tensor, got {type(one).__name__}")
    tensors = [one.detach() if one.requires_grad else one for one in tensors]
    if not tensors:
        raise InputError(f"[{function}] expected tensors, got none")
    device = tensors[0].device
    for tensor in tensors:
        if tensor.layout != torch.strided:
            raise InputError(f"[{function}] expected a dense tensor, got {tensor.layout}; use "
                             "sparse_allreduce_async()")
        if (in_place and not tensor.is_contiguous() and
                torch._debug_has_internal_overlap(tensor) == 1):
            raise InputError(f"[{function}] expected a tensor whose elements are apart in memory, "
                             f"got one of shape {tuple(tensor.shape)} and strides "
                             f"{tensor.stride()}")
        if tensor.device != device:
            raise InputError(f"[{function}] expected tensors on one device, got {device} and "
                             f"{tensor.device}")
    return tensors


class Handle:
    """A call that was started, for poll() and synchronize()."""

    def __init__(self, calls, call):
        self._calls, self._call = calls, call

    def is_done(self):
        return self._call.is_done

    def wait(self):
        return self._calls.wait(self._call)


def poll(handle):
    """Whether synchronize() returns at once."""
    return handle.is_done()


def synchronize(handle):
    """Waits for a call that was started; returns its result.

    Raises:
        HorovodInternalError: ranks differ in the call, or a rank was lost.
    """
    return handle.wait()


def begin(process_set, call, waits=False, wake=True):
    """Starts a call, and returns its handle; or with `waits`, makes it, and returns its result."""
    _, calls = process_set._use(call.kind)
    if waits:
        return calls.run(call)
    return Handle(calls, calls.start(call, wake))


def name_of(process_set, kind, name):
    if name is not None:
        return name
    return process_set._use(kind)[1].name(kind)

"""What the ranks of a job, or of a process set, do together: each call by a backend of
torch.distributed, that of this package for tensors in the host's memory, NCCL for those on GPUs.
"""
import array
import ctypes
import enum
import functools
import json
import math

import torch
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BroadcastOptions,
    ReduceOp,
    ReduceScatterOptions,
)

from .._library import OPS, CommunicationError, c
from .backend import NATIVE
from .negotiation import Call

FUSED_BYTES = 64 << 20  # most that is reduced as one


class Op(enum.IntEnum):
    """How the values of all ranks become one. The numbers are Horovod's."""

    Average = 0  # over ranks
    Sum = 1
    Adasum = 2  # refused
    Min = 3
    Max = 4
    Product = 5
    Samples = 6  # of DistributedOptimizer: gradients are averaged over the samples of all ranks


REDUCE_OPS = {Op.Average: ReduceOp.SUM, Op.Sum: ReduceOp.SUM, Op.Min: ReduceOp.MIN,
              Op.Max: ReduceOp.MAX, Op.Product: ReduceOp.PRODUCT}
CORE_OPS = {Op.Average: OPS["sum"], Op.Sum: OPS["sum"], Op.Min: OPS["min"], Op.Max: OPS["max"],
            Op.Product: OPS["product"]}


def terms_of(tensors):
    """What is the same on all ranks for tensors that are reduced: types (one if it is that of all),
    shapes, device.
    """
    types = {one.dtype for one in tensors}
    if len(types) > 1:
        types = [one.dtype for one in tensors]
    return (tuple(types), tuple([one.shape for one in tensors]), tensors[0].device)


@functools.lru_cache(1 << 12)
def text_of(types, shapes, device, *others):
    """terms_of(), and others, as text."""
    return json.dumps([[str(one).removeprefix("torch.") for one in types], shapes, device.type,
                       *others])


def neutral(shape, kind, device, op):
    """Numbers with which a reduction is that of the others."""
    if op in (Op.Min, Op.Max) and kind != torch.bool:
        range_ = (torch.finfo if kind.is_floating_point else torch.iinfo)(kind)
        value = range_.max if op == Op.Min else range_.min
        if kind.is_floating_point:
            value = math.copysign(math.inf, value)
    else:
        value = op in (Op.Product, Op.Min)
    return torch.full(shape, value, dtype=kind, device=device)


def reduction(name, tensors, how, finish):
    """The call that replaces the values of contiguous tensors. `how`: operation, factor before,
    factor after.
    """
    terms = terms_of(tensors)
    call = Call("allreduce", name, text_of(*terms, how[0].name, *how[1:]), finish)
    call.tensors, call.types, call.how = tensors, terms[0], (*how, terms[2])
    return call


def _options(kind, **fields):
    options = kind()
    options.asyncOp = False
    for name, value in fields.items():
        setattr(options, name, value)
    return options


class Group:
    """The backends of some ranks, and what they do when a call is made. `make_gpu_backend()` is
    called with the first call that has tensors on a GPU.
    """

    def __init__(self, backend, session, make_gpu_backend, fused_bytes=FUSED_BYTES):
        self.session = session
        self.rank, self.size = backend.rank(), backend.size()
        self._backend, self._gpu_backend = backend, None
        self._make_gpu_backend = make_gpu_backend
        self._fused_bytes = fused_bytes

    def close(self, owns_session):
        self._backend.end_works()
        if self._gpu_backend is not None:
            self._gpu_backend.shutdown()
        if owns_session:
            c.finalize(self.session)

    def _for(self, tensor):
        if tensor.device.type == "cpu":
            return self._backend
        if self._gpu_backend is None:
            self._gpu_backend = self._make_gpu_backend()
        return self._gpu_backend

    @torch.no_grad()
    def make(self, calls):
        """Makes the calls. The tensors of allreduce() are reduced together, if they are of the same
        type and have the same operation.
        """
        together = {}
        for call in calls:
            if call.kind != "allreduce":
                continue
            if len(call.types) == 1:
                together.setdefault((*call.types, *call.how), []).extend(call.tensors)
            else:
                for kind, tensor in zip(call.types, call.tensors):
                    together.setdefault((kind, *call.how), []).append(tensor)
        for (_kind, op, before, after, _device), tensors in together.items():
            self._reduce_in_parts(tensors, op, before, after)
        for call in calls:
            try:
                result = call.start(call.all_sizes)
            except CommunicationError:
                raise
            except Exception as error:
                call.end(error=error)
            else:
                call.end(result)

    def stand_in(self, kind, terms):
        """The call of a rank that has joined."""
        if kind != "allreduce":
            return Call(kind, "", terms, lambda _sizes: self.wait_for_all())
        types, shapes, device, op, *factors = terms
        how = [Op[op], *factors]
        tensors = [neutral(shape, getattr(torch, types[index % len(types)]), device, how[0])
                   for index, shape in enumerate(shapes)]
        return reduction("", tensors, how, lambda _sizes: None)

    def _reduce_in_parts(self, tensors, op, before, after):
        part, size = [], 0
        for tensor in tensors:
            if part and size + tensor.nbytes > self._fused_bytes:
                self._reduce(part, op, before, after)
                part, size = [], 0
            part.append(tensor)
            size += tensor.nbytes
        if part:
            self._reduce(part, op, before, after)

    def _reduce(self, tensors, op, before, after):
        """Replaces the values of tensors, which are contiguous and of the same type."""
        op = Op(op)
        first = tensors[0]
        kind = NATIVE.get(first.dtype)
        if first.dtype != torch.float64 and first.is_floating_point():
            before, after = (ctypes.c_float(factor).value for factor in (before, after))
        after = after / self.size if op == Op.Average else after
        is_scaled = before != 1 or after != 1
        if first.device.type == "cpu" and kind is not None and (
                first.is_floating_point() or not is_scaled):
            if len(tensors) == 1:
                c.all_reduce_start(self.session, first.data_ptr(), first.numel(), kind,
                                   CORE_OPS[op], before, after, None)
            else:
                pointers = (ctypes.c_void_p * len(tensors)).from_buffer(
                    array.array("Q", [one.data_ptr() for one in tensors]))
                counts = (ctypes.c_size_t * len(tensors)).from_buffer(
                    array.array("Q", [one.numel() for one in tensors]))
                c.grouped_all_reduce_start(self.session, pointers, counts, len(tensors), kind,
                                           CORE_OPS[op], before, after, None)
            return
        for tensor in tensors:
            self._scale(tensor, before)
            self._for(tensor).allreduce([tensor], _options(
                AllreduceOptions, reduceOp=ReduceOp(REDUCE_OPS[op]))).wait()
            self._scale(tensor, after)

    @staticmethod
    def _scale(tensor, factor):
        if factor == 1:
            return
        with torch.inference_mode():  # tensors of this mode may be changed in it only
            if tensor.is_floating_point() or tensor.is_complex():
                tensor.mul_(factor)
            else:
                tensor.copy_(tensor.double().mul_(factor))  # towards zero

    def gather(self, tensor, rows):
        """The rows of all ranks, of which rank i has rows[i]."""
        gathered = tensor.new_empty((sum(rows), *tensor.shape[1:]))
        if gathered.numel():
            self._for(tensor).allgather([list(gathered.split(rows))], [tensor],
                                        _options(AllgatherOptions)).wait()
        return gathered

    def broadcast(self, tensor, root):
        if tensor.numel():
            self._for(tensor).broadcast([tensor], _options(BroadcastOptions, rootRank=root)).wait()
        return tensor

    def exchange(self, tensor, splits):
        """What arrives if rank i sends splits[i][j] rows to rank j, and how much of each rank."""
        received = [ranks[self.rank] for ranks in splits]
        result = tensor.new_empty((sum(received), *tensor.shape[1:]))
        if math.prod(tensor.shape[1:]):
            self._for(tensor).alltoall_base(result, tensor, received, splits[self.rank],
                                            _options(AllToAllOptions)).wait()
        return result, torch.tensor(received, dtype=torch.int32)

    def reduce_parts(self, tensor, op, before, after):
        """This rank's rows of a reduction: as many as others have, the first ranks one more."""
        rows, more = divmod(tensor.shape[0], self.size)
        first = self.rank * rows + min(self.rank, more)
        own = tensor[first:first + rows + (self.rank < more)]
        if more or before != 1 or after != 1 or op == Op.Average or not tensor.numel():
            self._reduce([tensor], op, before, after)
            return own.clone()
        result = torch.empty_like(own)
        self._for(tensor)._reduce_scatter_base(result, tensor, _options(
            ReduceScatterOptions, reduceOp=ReduceOp(REDUCE_OPS[op]))).wait()
        return result

    def wait_for_all(self):
        if self.size > 1:
            c.barrier(self.session)

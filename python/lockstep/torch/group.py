"""Process groups of the backend "lockstep"."""
import datetime
import os

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions, Backend

from .._library import InputError
from .backend import NAME, LockstepBackend

CUSTOM = dist.ProcessGroup.BackendType.CUSTOM
# What a group has its backend do. The two older names of a call have the same function.
CALLS = [name for name, function in vars(LockstepBackend).items()
         if callable(function) and (not name.startswith("_") or name in (
             "_allgather_base", "_reduce_scatter_base", "_get_sequence_number_for_group",
             "_set_sequence_number_for_group"))]
OVERLOADED = ("broadcast", "allreduce", "reduce", "allgather", "gather", "scatter",
              "reduce_scatter", "alltoall", "barrier")
OPTIONS = (dist.BroadcastOptions, dist.AllreduceOptions, dist.ReduceOptions, AllgatherOptions,
           dist.GatherOptions, dist.ScatterOptions, dist.ReduceScatterOptions,
           dist.AllToAllOptions, dist.BarrierOptions)
# Whoever sets these wants torch to look at every call.
TORCH_LOOKS = ("TORCH_DIST_NAN_CHECK", "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE",
               "TORCH_DISTRIBUTED_DEBUG")


class LockstepGroup(dist.ProcessGroup):
    """A process group that has no other backend. torch calls the backend's methods: past its
    dispatcher, which takes longer than a small collective, and without a wrapper around Work, which
    hides whether it is completed.
    """

    def __init__(self, store, rank, size, backend):
        if isinstance(backend, Backend):
            super().__init__(store, rank, size)
        else:
            super().__init__(rank, size)
        self._backend = backend
        backend.is_direct = True
        self._name = self._description = ""
        if isinstance(backend, Backend):
            self._register_backend(torch.device("cpu"), CUSTOM, backend)
            self._set_default_backend(CUSTOM)
        for name in CALLS:
            function = getattr(backend, name)
            setattr(self, name, self._with_overloads(name, function) if name in OVERLOADED
                    else function)

    def _with_overloads(self, name, function):
        """`function`, whose last argument are options, and the other forms that torch has of it."""
        normalize = getattr(dist.ProcessGroup, name)

        def call(*arguments, **keywords):
            if arguments and not keywords and isinstance(arguments[-1], OPTIONS):
                return function(*arguments)
            return normalize(self, *arguments, **keywords)  # calls this again with options

        return call

    def getRank(self):
        return self._backend.rank()

    def getSize(self):
        return self._backend.size()

    # Before torch 2.14, a group without a registered backend has no name.

    def setGroupName(self, name):
        self._name = name

    def getGroupName(self):
        return self._name

    def setGroupDesc(self, description):
        self._description = description

    def getGroupDesc(self):
        return self._description

    def split_group(self, new_ranks, timeout=None, opts=None, group_name=None, group_desc=None,
                    device_types=None):
        """The group of some of the ranks; None on others."""
        backend = self._backend
        number, self._splits = getattr(self, "_splits", 0), getattr(self, "_splits", 0) + 1
        if backend.rank() not in new_ranks:
            return None
        store = dist.PrefixStore(f"split {number} of {new_ranks[0]}/", self.get_group_store())
        rank, size = new_ranks.index(backend.rank()), len(new_ranks)
        group = LockstepGroup(store, rank, size, LockstepBackend(
            store, rank, size, timeout or datetime.timedelta(seconds=backend._timeout)))
        group._set_group_name(group_name)
        group._set_group_desc(group_desc or "")
        return group


def register():
    """Makes "lockstep" known to torch.distributed, which calls this itself from version 2.15 on."""
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, _create, devices=["cpu"], extended_api=True)


def _create(opts, _options):
    rank, size = opts.group_rank, opts.group_size
    backend = LockstepBackend(opts.store, rank, size, opts.timeout,
                              getattr(opts, "enable_reconfigure", False))
    group = getattr(opts, "process_group", None)
    if not isinstance(backend, Backend) and group is not None and group.name() != "custom":
        raise InputError("[lockstep] expected torch 2.14 or later for a group of several backends, "
                         f"got {torch.__version__}")
    # A group of several backends has them all registered in torch's own.
    if isinstance(backend, Backend) and (
            group is None or group.name() != "custom" or
            any(name in os.environ for name in TORCH_LOOKS)):
        return backend
    return LockstepGroup(opts.store, rank, size, backend)

"""Lockstep: sums, and other collectives, over the processes of a job.

    import lockstep
    import numpy

    lockstep.init()
    mean = lockstep.allreduce(numpy.arange(4.0), op="average")

Start the processes by ``lockstep launch --np 2 -- python3 program.py``, ``mpirun``, ``torchrun`` or
a scheduler. Without a launcher the job has one rank.

All ranks call the same functions in the same order, from one thread at a time. Arrays are numpy's,
in the host's memory.
"""
from ._arrays import (
    Request,
    allgather,
    allreduce,
    allreduce_async,
    alltoall,
    broadcast,
    broadcast_async,
)
from ._library import CommunicationError, DataError, DeviceError, Error, InputError
from ._session import (
    any,
    barrier,
    init,
    is_initialized,
    local_rank,
    local_size,
    node,
    rank,
    shutdown,
    size,
    still_at_work,
    version,
)

__all__ = [
    "CommunicationError", "DataError", "DeviceError", "Error", "InputError", "Request",
    "allgather", "allreduce", "allreduce_async", "alltoall", "any", "barrier", "broadcast",
    "broadcast_async", "init", "is_initialized", "local_rank", "local_size", "node", "rank",
    "shutdown", "size", "still_at_work", "version",
]
__version__ = version()


def __getattr__(name):
    if name == "run":
        raise AttributeError("[lockstep] expected a program, got horovod.run(): start it with "
                             "lockstep launch, mpirun, srun or torchrun")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

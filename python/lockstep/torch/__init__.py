"""Lockstep for PyTorch.

``torch.distributed.init_process_group("lockstep")`` finds the backend by itself (torch 2.15), also
for ``"cpu:lockstep,cuda:nccl"``. init_process_group() of this module is for older versions, and for
launchers that do not set torch's variables.

The other functions are those of Horovod: ``import lockstep.torch as hvd``.
"""
try:
    from .built import (
        ccl_built,
        cuda_built,
        ddl_built,
        gloo_built,
        gloo_enabled,
        mpi_built,
        mpi_enabled,
        mpi_threads_supported,
        nccl_built,
        rocm_built,
    )
    from .collectives import (
        Adasum,
        Average,
        Max,
        Min,
        Product,
        Samples,
        Sum,
        allgather,
        allgather_async,
        allreduce,
        allreduce_,
        allreduce_async,
        allreduce_async_,
        alltoall,
        alltoall_async,
        barrier,
        broadcast,
        broadcast_,
        broadcast_async,
        broadcast_async_,
        grouped_allgather,
        grouped_allgather_async,
        grouped_allreduce,
        grouped_allreduce_,
        grouped_allreduce_async,
        grouped_allreduce_async_,
        grouped_reducescatter,
        grouped_reducescatter_async,
        join,
        poll,
        reducescatter,
        reducescatter_async,
        sparse_allreduce_async,
        synchronize,
    )
    from .compression import Compression
    from .group import register
    from .job import (
        HostsUpdatedInterrupt,
        ProcessSet,
        add_process_set,
        cross_rank,
        cross_size,
        global_process_set,
        init,
        is_homogeneous,
        is_initialized,
        local_rank,
        local_size,
        rank,
        remove_process_set,
        shutdown,
        size,
        start_timeline,
        stop_timeline,
    )
    from .launchers import init_process_group
    from .negotiation import HorovodInternalError
    from .optimizer import DistributedOptimizer
    from .state import (
        allgather_object,
        broadcast_object,
        broadcast_optimizer_state,
        broadcast_parameters,
    )
    from .sync_batch_norm import SyncBatchNorm
except ImportError as error:
    import torch
    raise ImportError(f"[lockstep.torch] expected torch 2.9 or later, got {torch.__version__}: "
                      f"{error}") from None

__all__ = [name for name in dir() if not name.startswith("_") and name != "error"]

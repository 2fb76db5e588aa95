"""Lockstep for PyTorch.

``torch.distributed.init_process_group("lockstep")`` finds the backend by itself (torch 2.15), also
for ``"cpu:lockstep,cuda:nccl"``. init_process_group() of this module is for older versions, and for
launchers that do not set torch's variables.

The other functions are those of Horovod: ``import lockstep.torch as hvd``.
"""
try:
    from . import built, exchanges, handles, job, reductions, state
    from .built import *
    from .compression import Compression
    from .exchanges import *
    from .group import register
    from .handles import *
    from .job import *
    from .launchers import init_process_group
    from .negotiation import HorovodInternalError
    from .optimizer import DistributedOptimizer
    from .reductions import *
    from .state import *
    from .sync_batch_norm import SyncBatchNorm
except ImportError as error:
    import torch
    raise ImportError(f"[lockstep.torch] expected torch 2.9 or later, got {torch.__version__}: "
                      f"{error}") from None

__all__ = ["Compression", "DistributedOptimizer", "HorovodInternalError", "SyncBatchNorm",
           "init_process_group", "register"]
__all__ += built.__all__
__all__ += exchanges.__all__
__all__ += handles.__all__
__all__ += job.__all__
__all__ += reductions.__all__
__all__ += state.__all__


def __getattr__(name):
    if name == "elastic":
        raise AttributeError("[lockstep.torch] expected a job whose ranks stay the same, got "
                             "elastic, which is not here: save a checkpoint, and restart with "
                             "torchrun --max-restarts")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

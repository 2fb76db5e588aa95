"""What Horovod was built with, and uses, as far as programs ask for it."""
import os

import torch
import torch.distributed as dist

__all__ = ["ccl_built", "cuda_built", "ddl_built", "gloo_built", "gloo_enabled", "mpi_built",
           "mpi_enabled", "mpi_threads_supported", "nccl_built", "rocm_built"]


def mpi_threads_supported():
    """False: calls of a thread beside that of the program are made one at a time."""
    return False


def mpi_enabled():
    """Whether ``mpirun`` or a relative has started the job."""
    return any(name in os.environ for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK"))


def mpi_built():
    """True: MPI is used under ``mpirun`` and its relatives."""
    return True


def gloo_enabled():
    """Whether the job does without MPI, as Horovod's does over Gloo."""
    return not mpi_enabled()


def gloo_built():
    """True: a job needs no MPI."""
    return True


def nccl_built():
    """The version of PyTorch's NCCL, such as 22703; 0 without."""
    if not (dist.is_nccl_available() and torch.cuda.is_available()):
        return 0
    major, minor, patch = torch.cuda.nccl.version()[:3]
    return major * 10000 + minor * 100 + patch


def ddl_built():
    """False."""
    return False


ccl_built = rocm_built = ddl_built


def cuda_built():
    """Whether PyTorch was built for CUDA."""
    return torch.version.cuda is not None

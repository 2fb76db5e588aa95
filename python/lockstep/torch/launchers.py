"""Starting under launchers that do not set the variables of torchrun."""
import os
import socket

import torch.distributed as dist

from .._library import InputError
from .group import register

# Of Open MPI, of MPICH and its relatives, of Slurm: rank, size, rank within the node.
LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


def init_process_group(device_backends="lockstep", **keywords):
    """torch.distributed.init_process_group() with this backend, under torchrun, mpirun or srun.

    Without the variables of torchrun, rank and number of ranks are those of mpirun or srun, and
    ``MASTER_ADDR`` and ``MASTER_PORT`` must be set if there are several hosts. No variable of the
    environment is changed. Without a launcher the job has one rank.

    Args:
        device_backends: as torch's ``backend``, such as "cpu:lockstep,cuda:nccl".
        keywords: further arguments of torch's function.

    Raises:
        InputError: the variables of the launcher are incomplete.
    """
    register()
    if "init_method" not in keywords and "store" not in keywords and "RANK" not in os.environ:
        keywords.update(_place())
    dist.init_process_group(device_backends, **keywords)


def _place():
    rank, size = 0, 1
    for names in LAUNCHERS:
        if names[0] in os.environ:
            try:
                rank, size = (int(os.environ[name]) for name in names[:2])
            except (KeyError, ValueError) as error:
                raise InputError(f"[{names[1]}] expected the number of ranks, got {error}"
                                 ) from None
            break
    if size == 1:
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        return {"rank": 0, "world_size": 1, "init_method": f"tcp://127.0.0.1:{port}"}
    address = os.environ.get("MASTER_ADDR", "127.0.0.1")
    port = os.environ.get("MASTER_PORT", "29500")
    return {"rank": rank, "world_size": size, "init_method": f"tcp://{address}:{port}"}

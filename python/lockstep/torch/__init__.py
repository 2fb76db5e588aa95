"""Lockstep for PyTorch.

``torch.distributed.init_process_group("lockstep")`` finds the backend by itself (torch 2.15), also
for ``"cpu:lockstep,cuda:nccl"``. init_process_group() of this module is for older versions, and for
launchers that do not set torch's variables.
"""
try:
    from .group import register
    from .launchers import init_process_group
except ImportError as error:
    import torch
    raise ImportError(f"[lockstep.torch] expected torch 2.9 or later, got {torch.__version__}: "
                      f"{error}") from None

__all__ = ["init_process_group", "register"]

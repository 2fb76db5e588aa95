"""Lockstep for PyTorch.

``torch.distributed.init_process_group("lockstep")`` finds the backend by itself (torch 2.15), also
for ``"cpu:lockstep,cuda:nccl"``. init_process_group() of this module is for older versions, and for
launchers that do not set torch's variables.
"""
from .launchers import init_process_group

__all__ = ["init_process_group"]

"""Lockstep for Keras 3 on its PyTorch backend, by the names of Horovod: ``import lockstep.keras as
hvd``.
"""
try:
    import keras
    import torch

    if keras.backend.backend() != "torch":
        raise ImportError(f"got its backend {keras.backend.backend()}")
except ImportError as error:
    raise ImportError("[lockstep.keras] expected Keras 3 with KERAS_BACKEND=torch in the "
                      f"environment: {error}") from None

from .. import torch as _torch
from .._library import InputError
from ..torch import (
    Average,
    Compression,
    HorovodInternalError,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    add_process_set,
    allgather_object,
    barrier,
    broadcast_object,
    cross_rank,
    cross_size,
    global_process_set,
    gloo_built,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    mpi_built,
    nccl_built,
    rank,
    remove_process_set,
    shutdown,
    size,
    start_timeline,
    still_at_work,
    stop_timeline,
)
from . import callbacks

__all__ = ["Average", "Compression", "DistributedOptimizer", "HorovodInternalError", "Max", "Min",
           "ProcessSet", "Product", "Sum", "add_process_set", "allgather", "allgather_object",
           "allreduce", "barrier", "broadcast", "broadcast_object", "callbacks", "cross_rank",
           "cross_size", "global_process_set", "gloo_built", "init", "is_homogeneous",
           "is_initialized", "join", "load_model", "local_rank", "local_size", "mpi_built",
           "nccl_built", "rank", "remove_process_set", "shutdown", "size", "start_timeline",
           "still_at_work", "stop_timeline"]


def _array(function, value, *arguments, **keywords):
    """A function of lockstep.torch for what Keras calls a tensor: numbers, arrays, variables."""
    result = function(torch.as_tensor(keras.ops.convert_to_numpy(value)), *arguments, **keywords)
    return result.numpy()


def allreduce(value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, op=None,
              compression=Compression.none, process_set=global_process_set):
    """lockstep.torch.allreduce() of a number, an array or a tensor; returns an array."""
    return _array(_torch.allreduce, value, average, name, compression, op, prescale_factor,
                  postscale_factor, process_set)


def allgather(value, name=None, process_set=global_process_set):
    """lockstep.torch.allgather() of an array or a tensor; returns an array."""
    return _array(_torch.allgather, value, name, process_set)


def broadcast(value, root_rank, name=None, process_set=global_process_set):
    """lockstep.torch.broadcast() of a number, an array or a tensor; returns an array."""
    return _array(_torch.broadcast, value, root_rank, name, process_set)


class _DistributedOptimizer:
    """What DistributedOptimizer() adds to the class of an optimizer."""

    def apply(self, grads, trainable_variables=None):
        """Reduces the gradients over all ranks, and makes the step of the optimizer."""
        name, compression, before, op, process_set = self._distributed
        if process_set.included():
            grads = list(grads)
            places = [index for index, one in enumerate(grads) if one is not None]
            reduced = _torch.grouped_allreduce(
                [grads[index].detach() for index in places], name=name, compression=compression,
                op=op, prescale_factor=before, postscale_factor=1 / before,
                process_set=process_set)
            for index, one in zip(places, reduced):
                grads[index] = one
        return super(self.__class__, self).apply(grads, trainable_variables)


def DistributedOptimizer(optimizer, name=None, device_dense="", device_sparse="",
                         compression=Compression.none, sparse_as_dense=False,
                         gradient_predivide_factor=1.0, op=Average, num_groups=0, groups=None,
                         backward_passes_per_step=1, process_set=global_process_set):
    """Wraps an optimizer of Keras, so that gradients are reduced over all ranks before each step.
    With the policy "mixed_float16", a LossScaleOptimizer is put around it first, as compile() does:
    the ranks then skip the same steps.

    Args:
        optimizer: a ``keras.optimizers.Optimizer``, or its name. Returned is another with its
            options, of a class derived from its class; models that are saved with it name the class
            itself.
        name: of the call; by default that of the optimizer.
        compression: the type in which gradients travel: Compression.none, fp16 or bf16.
        gradient_predivide_factor: divide by it before the sum, and by the rest after it. Only with
            Average.
        op: Average over ranks, or Sum.
        process_set: the ranks.
        device_dense, device_sparse, sparse_as_dense, num_groups, groups: not needed.
        backward_passes_per_step: 1; use gradient_accumulation_steps of the optimizer.

    Raises:
        InputError: an argument is invalid.
    """
    optimizer = keras.optimizers.get(optimizer)
    for is_right, expected, got in (
            (op in (Average, Sum), "Average or Sum", op),
            (gradient_predivide_factor == 1 or op == Average,
             "op=Average for a gradient_predivide_factor", op),
            (gradient_predivide_factor > 0, "a positive gradient_predivide_factor",
             gradient_predivide_factor),
            (backward_passes_per_step == 1, "gradient_accumulation_steps of the optimizer",
             f"backward_passes_per_step={backward_passes_per_step}"),
            (not hasattr(optimizer, "_distributed"), "an optimizer that is not wrapped yet",
             "one that is")):
        if not is_right:
            raise InputError(f"[DistributedOptimizer] expected {expected}, got {got}")
    if (keras.config.dtype_policy().name == "mixed_float16" and
            not isinstance(optimizer, keras.optimizers.LossScaleOptimizer)):
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    wrapped_class = optimizer.__class__
    kind = type(wrapped_class.__name__, (wrapped_class,), {
        "apply": _DistributedOptimizer.apply, "__module__": wrapped_class.__module__,
        "_distributed": (name or f"keras.{optimizer.name}", compression,
                         1 / gradient_predivide_factor, op, process_set)})
    return kind.from_config(optimizer.get_config())


def load_model(filepath, custom_optimizers=None, custom_objects=None,
               compression=Compression.none):
    """keras.saving.load_model(), with the optimizer wrapped by DistributedOptimizer().

    Args:
        custom_optimizers: classes of optimizers of one's own.
        custom_objects: as that of Keras.
    """
    known = {one.__name__: one for one in custom_optimizers or ()}
    model = keras.saving.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    if model.optimizer is not None:
        wrapped = DistributedOptimizer(model.optimizer, compression=compression)
        if model.optimizer.built:
            wrapped.build(model.trainable_variables)
            for own, loaded in zip(wrapped.variables, model.optimizer.variables):
                own.assign(loaded)
        model.optimizer = wrapped
    return model

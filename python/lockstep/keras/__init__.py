"""Lockstep for Keras 3 on its PyTorch backend, by the names of Horovod: ``import lockstep.keras as
hvd``.
"""
import keras
import torch

from .. import torch as _torch
from .._library import InputError

if keras.backend.backend() != "torch":
    raise ImportError("[lockstep.keras] expected Keras on its PyTorch backend (KERAS_BACKEND=torch "
                      f"in the environment), got {keras.backend.backend()}")

from ..torch import (  # noqa: E402
    Average,
    Compression,
    Max,
    Min,
    Product,
    Sum,
    broadcast_object,
    cross_rank,
    cross_size,
    global_process_set,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from . import callbacks  # noqa: E402

__all__ = ["Average", "Compression", "DistributedOptimizer", "Max", "Min", "Product", "Sum",
           "allgather", "allreduce", "broadcast", "broadcast_object", "callbacks", "cross_rank",
           "cross_size", "global_process_set", "init", "is_initialized", "load_model", "local_rank",
           "local_size", "rank", "shutdown", "size"]


def _array(function, value, *arguments, **keywords):
    """A function of lockstep.torch for what Keras calls a tensor: numbers, arrays, variables."""
    result = function(torch.as_tensor(keras.ops.convert_to_numpy(value)), *arguments, **keywords)
    return result.numpy()


def allreduce(value, name=None, op=Average, prescale_factor=1.0, postscale_factor=1.0,
              process_set=global_process_set):
    """lockstep.torch.allreduce() of a number, an array or a tensor; returns an array."""
    return _array(_torch.allreduce, value, name=name, op=op, prescale_factor=prescale_factor,
                  postscale_factor=postscale_factor, process_set=process_set)


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
        options = self._distributed
        if options["process_set"].included():
            grads = list(grads)
            places = [index for index, one in enumerate(grads) if one is not None]
            before = 1 / options["gradient_predivide_factor"]
            reduced = _torch.grouped_allreduce(
                [grads[index].detach() for index in places], name=options["name"],
                compression=options["compression"], op=options["op"], prescale_factor=before,
                postscale_factor=1 / before, process_set=options["process_set"])
            for index, one in zip(places, reduced):
                grads[index] = one
        return super(self.__class__, self).apply(grads, trainable_variables)


def DistributedOptimizer(optimizer, name=None, compression=Compression.none,
                         gradient_predivide_factor=1.0, op=Average,
                         process_set=global_process_set):
    """Wraps an optimizer of Keras, so that gradients are reduced over all ranks before each step.

    Args:
        optimizer: a ``keras.optimizers.Optimizer``. Returned is another with its options, of a
            class derived from its class; models that are saved with it name the class itself.
        name: of the call; by default that of the optimizer.
        compression: the type in which gradients travel: Compression.none, fp16 or bf16.
        gradient_predivide_factor: divide by it before the sum, and by the rest after it. Only with
            Average.
        op: Average over ranks, or Sum.
        process_set: the ranks.

    Raises:
        InputError: an argument is invalid.
    """
    if op not in (Average, Sum):
        raise InputError(f"[DistributedOptimizer] expected Average or Sum, got {op!r}")
    if gradient_predivide_factor != 1 and op != Average:
        raise InputError("[DistributedOptimizer] expected op=Average for a "
                         f"gradient_predivide_factor, got {op.name}")
    wrapped_class = optimizer.__class__
    kind = type(wrapped_class.__name__, (wrapped_class,),
                {"apply": _DistributedOptimizer.apply, "__module__": wrapped_class.__module__})
    wrapped = kind.from_config(optimizer.get_config())
    wrapped._distributed = {"name": name or f"keras.{wrapped.name}", "compression": compression,
                            "gradient_predivide_factor": gradient_predivide_factor, "op": op,
                            "process_set": process_set}
    return wrapped


def load_model(filepath, custom_objects=None, compression=Compression.none):
    """keras.saving.load_model(), with the optimizer wrapped by DistributedOptimizer()."""
    model = keras.saving.load_model(filepath, custom_objects=custom_objects)
    if model.optimizer is not None:
        wrapped = DistributedOptimizer(model.optimizer, compression=compression)
        if model.optimizer.built:
            wrapped.build(model.trainable_variables)
            for own, loaded in zip(wrapped.variables, model.optimizer.variables):
                own.assign(loaded)
        model.optimizer = wrapped
    return model

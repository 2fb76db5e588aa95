"""Models, optimizers and objects that all ranks are to have the same of."""
import io

import torch

from .._library import InputError
from .exchanges import allgather, broadcast, broadcast_async_
from .handles import synchronize
from .job import global_process_set, in_job

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state",
           "broadcast_parameters"]


def broadcast_parameters(params, root_rank):
    """Copies parameters of a rank to all others, in place.

    Args:
        params: ``model.state_dict()``, or a list or an iterator of parameters or of pairs of a name
            and a parameter.
        root_rank: the rank.
    """
    if isinstance(params, torch.nn.Module):
        raise InputError("[broadcast_parameters] expected model.state_dict(), got the model")
    params = sorted(params.items()) if isinstance(params, dict) else list(params)
    handles = []
    for one in params:
        name, tensor = one if isinstance(one, tuple) else (None, one)
        if torch.is_tensor(tensor):
            handles.append(broadcast_async_(tensor, root_rank, name))
        elif tensor is not None:
            raise InputError(f"[broadcast_parameters] expected tensors, got {type(tensor)} for "
                             f"{name}")
    for handle in handles:
        synchronize(handle)


def broadcast_optimizer_state(optimizer, root_rank, model=None):
    """Copies the state of an optimizer, such as momentum, and its options, such as the learning
    rate, of a rank to all others.

    Args:
        model: not needed.

    Raises:
        InputError: LBFGS, whose state has no fixed shape.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InputError("[broadcast_optimizer_state] expected an optimizer other than LBFGS, "
                         "whose state has no fixed shape")
    is_root = root_rank == in_job("broadcast_optimizer_state").rank
    state = _copy(_plain_state(optimizer) if is_root else None, root_rank, "optimizer",
                  global_process_set, weights_only=True)
    if not is_root:
        _take(optimizer, state)
    if not state["state"]:  # as with Horovod, which makes a step without gradients first
        for one in (one for group in optimizer.param_groups for one in group["params"]):
            if one.requires_grad and one.grad is None:
                one.grad = torch.zeros_like(one)


def _plain_state(optimizer):
    """state_dict(), with numbers of Python in place of numpy's, which are objects."""
    state = optimizer.state_dict()
    for group in state["param_groups"]:
        for name, value in group.items():
            if hasattr(value, "item") and not torch.is_tensor(value):
                group[name] = value.item()
    return state


def _take(optimizer, state):
    """Changes the options in place, which a scheduler may have; state keeps its type."""
    groups, sent = optimizer.param_groups, state["param_groups"]
    wanted, found = ([len(group["params"]) for group in one] for one in (sent, groups))
    if wanted != found:
        raise InputError("[broadcast_optimizer_state] expected groups of as many parameters as the "
                         f"root has, {wanted}, got {found}")
    parameters = [one for group in groups for one in group["params"]]
    numbers = [number for group in sent for number in group["params"]]
    for group, options in zip(groups, sent):
        group.update((name, value) for name, value in options.items() if name != "params")
    for parameter, number in zip(parameters, numbers):
        if number in state["state"]:
            optimizer.state[parameter] = {
                name: value.to(parameter.device) if torch.is_tensor(value) and value.dim() else
                value for name, value in state["state"][number].items()}


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """A copy of an object of rank ``root_rank``, by pickle; there, the object itself."""
    return _copy(obj, root_rank, name or "object", process_set, weights_only=False)


def _copy(obj, root_rank, name, process_set, weights_only):
    is_root = root_rank == in_job("broadcast_object").rank
    data, problem = torch.empty(0, dtype=torch.uint8), None
    if is_root:
        try:
            data = _bytes_of(obj)
            _object_of(data, weights_only)  # whether the others can read it
        except Exception as error:
            data, problem = data[:0], error
    size = int(broadcast(torch.tensor([data.numel()]), root_rank, f"{name}.size", process_set))
    if size == 0:
        raise InputError(f"[{name}] expected an object that can be copied, got one on rank "
                         f"{root_rank} that cannot: {problem or 'its message says why'}")
    if not is_root:
        data = torch.empty(size, dtype=torch.uint8)
    data = broadcast(data, root_rank, f"{name}.data", process_set)
    return obj if is_root else _object_of(data, weights_only)


def allgather_object(obj, name=None, process_set=global_process_set):
    """A list of the objects of all ranks, copied by pickle."""
    data = _bytes_of(obj)
    name = name or "object"
    sizes = allgather(torch.tensor([data.numel()]), f"{name}.sizes", process_set)
    gathered = allgather(data, f"{name}.data", process_set)
    return [_object_of(part, weights_only=False) for part in gathered.split(sizes.tolist())]


def _bytes_of(obj):
    file = io.BytesIO()
    torch.save(obj, file)
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def _object_of(data, weights_only):
    # Objects can be code; they come from a rank that has proved that it knows the job's secret.
    return torch.load(io.BytesIO(data.numpy().tobytes()), map_location="cpu",
                      weights_only=weights_only)

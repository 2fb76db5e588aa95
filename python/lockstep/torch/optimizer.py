"""Optimizers of PyTorch whose gradients are reduced while the backward pass runs."""
import contextlib
import numbers
import warnings
import weakref

import torch

from .._library import InputError
from .calls import Op
from .compression import Compression
from .exchanges import sparse_allreduce_async
from .handles import operation_of, synchronize
from .job import ProcessSet, global_process_set, in_job
from .negotiation import HorovodInternalError
from .reductions import allreduce, reduce

FUSED_BYTES = 4 << 20  # gradients wait for others until there are as many bytes


class _DistributedOptimizer:
    """What DistributedOptimizer() adds to the class of an optimizer."""

    def _distribute(self, named_parameters, compression, backward_passes_per_step, op,
                    gradient_predivide_factor, groups, sparse_as_dense, process_set):
        self._compression, self._op, self._sparse_as_dense = compression, op, sparse_as_dense
        self._process_set = process_set
        self._before, self._after = 1 / gradient_predivide_factor, gradient_predivide_factor
        parameters = [one for group in self.param_groups for one in group["params"]]
        names = _names(parameters, named_parameters)
        prefix = in_job("DistributedOptimizer").prefix(names.values())
        self._parameter_names = {one: prefix + name for one, name in names.items()}
        self._group_name = f"{prefix}{names[parameters[0]]}.group"
        self.backward_passes_per_step = backward_passes_per_step
        self._group_of = {one: index for index, members in enumerate(_groups(parameters, groups))
                          for one in members}
        self._members = {}
        for one, index in self._group_of.items():
            self._members.setdefault(index, []).append(one)
        self._samples, self._is_empty = None, False
        self._is_synchronized, self._may_synchronize = False, True
        self._hooks = {}
        self._sparse_dims = {}  # of parameters whose gradients are sparse
        self._forget()
        if self._is_distributed():
            for one in parameters:
                if one.requires_grad:
                    self._hook(one)

    def _is_distributed(self):
        return bool(self._process_set.included())

    def _forget(self):
        """As before a backward pass."""
        self._handles, self._passes_left = {}, {}
        self._versions = {}  # of gradients that are reduced in place
        self._ready = {index: set() for index in self._members}
        self._waiting_bytes = 0

    def _hook(self, parameter):
        self._hooks[parameter] = None
        report = weakref.WeakMethod(self._on_gradient)  # a hook lives as long as its parameter

        def on_gradient(one):
            if report() is not None:
                report()(one)

        parameter.register_post_accumulate_grad_hook(on_gradient)

    def set_backward_passes_per_step(self, passes):
        """The gradients of how many backward passes are added before they are reduced."""
        self.backward_passes_per_step = passes
        self._passes_left = {}

    def samples(self, count):
        """With ``op=Samples``: of how many samples this rank's gradients are the mean. Call it
        before each step(); before the backward pass if gradients are to be reduced while it runs. A
        rank without samples gives 0.
        """
        if not isinstance(count, numbers.Integral) or count < 0:
            raise InputError(f"[samples] expected a number of samples, got {count!r}")
        if self._op != Op.Samples:
            raise InputError("[samples] expected a DistributedOptimizer with op=Samples, got one "
                             f"with {self._op.name}")
        if self._handles and count != self._samples:
            raise InputError(f"[samples] expected {self._samples} again, with which gradients are "
                             f"being reduced, got {count}")
        self._samples = count

    # While the backward pass runs.

    def _on_gradient(self, parameter):
        left = self._passes_left.get(parameter, self.backward_passes_per_step) - 1
        if left < 0:
            raise AssertionError(
                "[DistributedOptimizer] expected step() after backward_passes_per_step="
                f"{self.backward_passes_per_step}, got another backward pass")
        self._passes_left[parameter] = left
        self._is_synchronized = False
        if left == 0 and not (self._op == Op.Samples and self._samples is None):
            self._start(parameter)

    def _start(self, parameter):
        index = self._group_of.get(parameter)
        if index is None:
            self._reduce([parameter], self._parameter_names[parameter])
            return
        self._ready[index].add(parameter)
        members = [one for one in self._members[index] if one.requires_grad]
        if self._ready[index] >= set(members):
            self._ready[index] = set()
            self._reduce(members, f"{self._group_name} {index}")

    def _reduce(self, parameters, name):
        dense, gradients = [], []
        for one in parameters:
            gradient = one.grad
            if gradient.is_sparse:
                self._sparse_dims[one] = gradient.sparse_dim()
                if self._sparse_as_dense:
                    gradient = gradient.to_dense()
            if self._op == Op.Samples:
                if self._samples:
                    gradient.mul_(self._samples)
                else:
                    gradient.zero_()
            if gradient.is_sparse:
                self._reduce_sparse(one, gradient, self._parameter_names[one])
            else:
                dense.append(one)
                gradients.append(gradient)
        if not dense:
            return
        compressed = [self._compression.compress(one) for one in gradients]
        travel = [one for one, _ in compressed]
        self._waiting_bytes += sum(one.nbytes for one in travel)
        is_last = len(self._handles) + len(dense) >= len(self._hooks)
        wake = is_last or self._waiting_bytes >= FUSED_BYTES
        if wake:
            self._waiting_bytes = 0
        op = Op.Sum if self._op == Op.Samples else self._op
        handle = reduce("DistributedOptimizer", travel, True, None, name, op, self._before,
                        self._after, self._process_set, is_group=True, wake=wake)
        for one, (tensor, context) in zip(dense, compressed):
            self._handles[one] = handle, tensor, context
            if tensor is one.grad and tensor.is_contiguous():  # then only the program changes it
                self._versions[one] = tensor._version

    def _reduce_sparse(self, parameter, gradient, name):
        if self._op not in (Op.Average, Op.Sum, Op.Samples) or self._before != 1:
            raise InputError(f"[{name}] expected Average, Sum or Samples for a sparse gradient, "
                             f"without a factor, got {self._op.name}; or use sparse_as_dense")
        op = Op.Average if self._op == Op.Average else Op.Sum
        self._handles[parameter] = sparse_allreduce_async(
            gradient.coalesce(), name, op, self._process_set), None, None

    # Afterwards.

    def synchronize(self):
        """Waits until all gradients are reduced. Those that the backward pass has not reached are
        zeros.
        """
        if not self._is_distributed():
            self._is_synchronized = True
            return
        if self._op == Op.Samples and self._samples is None:
            raise InputError("[DistributedOptimizer] expected samples() before step(), for the "
                             "mean over the samples of all ranks, got no call of it")
        total = 1
        if self._op == Op.Samples:
            total = int(allreduce(torch.tensor(self._samples), op=Op.Sum,
                                  name=f"samples.{next(iter(self._parameter_names.values()))}",
                                  process_set=self._process_set))
            self._is_empty = total == 0
        for group in self.param_groups:  # also those that were frozen before
            for one in group["params"]:
                if one.requires_grad and one not in self._hooks:
                    self._hook(one)
        try:
            self._complete(total)
        finally:
            self._samples = None
            self._forget()
        self._is_synchronized = True

    def _complete(self, total):
        missing = [one for one in self._hooks if one not in self._handles and one.requires_grad]
        for one in missing:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
                if one in self._sparse_dims:
                    one.grad = one.grad.to_sparse(self._sparse_dims[one])
            if one not in self._ready.get(self._group_of.get(one), ()):
                self._start(one)
        for one, (handle, travelled, context) in self._handles.items():
            if travelled is None:
                one.grad = handle()
            else:
                synchronize(handle)
                if self._versions.get(one, one.grad._version) != one.grad._version:
                    raise InputError(
                        "[DistributedOptimizer] expected gradients to be changed after "
                        "optimizer.synchronize(), and step() within optimizer.skip_synchronize(), "
                        f"got {self._parameter_names[one]} changed while it was reduced")
                if one.grad.is_sparse:
                    one.grad = self._compression.decompress(travelled, context).to_sparse(
                        self._sparse_dims[one])
                elif travelled is not one.grad:
                    one.grad.copy_(self._compression.decompress(travelled, context))
            if total > 1:
                one.grad.div_(total)

    @contextlib.contextmanager
    def skip_synchronize(self):
        """In this context step() uses the gradients as they are, for code that calls synchronize()
        and then changes them:

            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        """
        self._may_synchronize = False
        try:
            yield
        finally:
            self._may_synchronize = True

    def step(self, closure=None):
        """Waits until all gradients are reduced, and makes the step of the optimizer. A closure's
        are reduced each time it is called, as often on all ranks.
        """
        if closure is not None and not self._handles:
            def reduced():
                loss = closure()
                self.synchronize()
                return loss

            return super(self.__class__, self).step(reduced)
        if self._may_synchronize:
            if self._is_synchronized:
                warnings.warn(
                    "[DistributedOptimizer] expected skip_synchronize() around step() after "
                    "synchronize(): optimizer.step() called without optimizer.skip_synchronize() "
                    "reduces gradients that are new", stacklevel=2)
            else:
                self.synchronize()
        self._is_synchronized = False
        if self._is_empty:  # no rank had a sample
            self._is_empty = False
            return None
        return super(self.__class__, self).step(closure)

    def zero_grad(self, *arguments, **keywords):
        """That of the optimizer. Gradients that are being reduced must not be changed."""
        if self._handles:
            raise AssertionError(
                "[DistributedOptimizer] expected step() or synchronize() before zero_grad(), got "
                "gradients that are being reduced (with a GradScaler: optimizer.synchronize() "
                "before its unscale_() or step(), which goes within optimizer.skip_synchronize())")
        return super(self.__class__, self).zero_grad(*arguments, **keywords)

    def add_param_group(self, param_group):
        """That of the optimizer; its gradients are reduced too."""
        super(self.__class__, self).add_param_group(param_group)
        for one in self.param_groups[-1]["params"]:
            self._parameter_names[one] = f"{self._group_name} added {len(self._parameter_names)}"
            if one.requires_grad and self._is_distributed():
                self._hook(one)

    def load_state_dict(self, *arguments, **keywords):
        """That of the optimizer; forgets gradients that are being reduced."""
        for handle, travelled, _ in self._handles.values():
            try:
                handle() if travelled is None else synchronize(handle)
            except HorovodInternalError:  # they are not used
                pass
        self._forget()
        self._is_synchronized = False
        super(self.__class__, self).load_state_dict(*arguments, **keywords)


# It is not to be wrapped by torch, for hooks of the step: the step of the optimizer calls them.
_DistributedOptimizer.step.hooked = True


def _names(parameters, named_parameters):
    if named_parameters is None:
        return {one: f"gradient.{index}" for index, one in enumerate(parameters)}
    named = list(named_parameters)
    if any(not isinstance(one, tuple) for one in named):
        raise InputError("[DistributedOptimizer] expected named_parameters of pairs of a name and "
                         "a parameter, such as model.named_parameters(), got other values")
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError("[DistributedOptimizer] expected names of parameters that differ, got "
                         f"twice: {', '.join(twice)}")
    by_parameter = {one: name for name, one in named}
    unnamed = sum(one not in by_parameter for one in parameters)
    if unnamed:
        raise InputError("[DistributedOptimizer] expected names for all parameters of the "
                         f"optimizer, got {unnamed} without; is named_parameters that of the "
                         "whole model?")
    return by_parameter


def _groups(parameters, groups):
    """Lists of parameters that are reduced together."""
    if not groups:
        return []
    if isinstance(groups, int):
        trained = [one for one in parameters if one.requires_grad]
        count = min(groups, len(trained))
        return [trained[len(trained) * i // count:len(trained) * (i + 1) // count]
                for i in range(count)]
    known = set(parameters)
    groups = [list(one) for one in groups]
    for one in (parameter for group in groups for parameter in group):
        if one not in known:
            raise InputError("[DistributedOptimizer] expected groups of parameters of the "
                             "optimizer, got another tensor")
        known.discard(one)
    return groups


def DistributedOptimizer(optimizer, named_parameters=None, compression=Compression.none,
                         backward_passes_per_step=1, op=Op.Average, gradient_predivide_factor=1.0,
                         num_groups=0, groups=None, sparse_as_dense=False,
                         process_set=global_process_set):
    """Wraps an optimizer of PyTorch: while the backward pass runs, its gradients are reduced over
    all ranks; step() waits for them.

    Args:
        optimizer: the optimizer. Returned is one of a class derived from its class, with the same
            parameters and options; use it in its place.
        named_parameters: ``model.named_parameters()``, for names in messages.
        compression: the type in which gradients travel: Compression.none, fp16 or bf16.
        backward_passes_per_step: how many backward passes add to the gradients before a step.
        op: Average over ranks, Sum, or Samples: the mean over the samples of all ranks, whose
            number each rank gives by samples() before step(). With batches of different sizes on
            the ranks, Average weighs the samples of a small batch more, so that the result depends
            on the number of ranks.
        gradient_predivide_factor: divide by it before the sum, and by the rest after it, against
            overflow. Only with Average.
        num_groups: how many groups of gradients are each reduced as one. By default those that are
            ready are reduced together.
        groups: lists of parameters, in place of ``num_groups``.
        sparse_as_dense: reduce sparse gradients as dense ones.
        process_set: the ranks.

    All ranks make the same optimizers in the same order.

    Raises:
        InputError: an argument is invalid.
    """
    function = "DistributedOptimizer"
    op = op if op == Op.Samples else operation_of(function, None, op)
    for is_right, expected, got in (
            (isinstance(optimizer, torch.optim.Optimizer), "an optimizer", optimizer),
            (not hasattr(optimizer, "_distribute"), "an optimizer that is not wrapped yet",
             "one that is"),
            (hasattr(compression, "compress"), "one of Compression", compression),
            (isinstance(process_set, ProcessSet), "a ProcessSet", process_set),
            (backward_passes_per_step >= 1, "at least one backward pass",
             backward_passes_per_step),
            (gradient_predivide_factor > 0, "a positive gradient_predivide_factor",
             gradient_predivide_factor),
            (num_groups >= 0, "a number of groups", num_groups)):
        if not is_right:
            raise InputError(f"[{function}] expected {expected}, got {got}")
    if op == Op.Samples and compression is Compression.fp16:
        raise InputError("[DistributedOptimizer] expected Compression.none or bf16 with Samples, "
                         "got fp16, whose range is too small for sums over samples")
    if gradient_predivide_factor != 1 and op != Op.Average:
        raise InputError("[DistributedOptimizer] expected op=Average for a "
                         f"gradient_predivide_factor, got {op.name}")
    kind = type(optimizer.__class__.__name__, (optimizer.__class__,),
                {name: value for name, value in vars(_DistributedOptimizer).items()
                 if name not in ("__dict__", "__weakref__")})
    wrapped = kind.__new__(kind)
    # Not a step() that a scheduler has put there.
    wrapped.__dict__.update((name, value) for name, value in vars(optimizer).items()
                            if name not in vars(_DistributedOptimizer))
    wrapped._distribute(named_parameters, compression, backward_passes_per_step, op,
                        gradient_predivide_factor, groups or num_groups, sparse_as_dense,
                        process_set)
    return wrapped

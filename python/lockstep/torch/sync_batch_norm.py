"""Batch normalization over the samples of all ranks."""
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .calls import Op
from .job import global_process_set
from .reductions import reduce


def _sum(values, process_set):
    return reduce("SyncBatchNorm", [values], True, None, None, Op.Sum, 1.0, 1.0, process_set, True)


class _Normalize(torch.autograd.Function):
    """(inputs - mean) / sqrt(variance + eps) of each channel, the second axis."""

    @staticmethod
    def forward(ctx, inputs, eps, process_set):
        axes = [axis for axis in range(inputs.dim()) if axis != 1]
        shape = [1, -1] + [1] * (inputs.dim() - 2)
        wide = inputs.to(torch.promote_types(inputs.dtype, torch.float32))
        count = inputs.new_tensor([inputs.numel() // inputs.shape[1]], dtype=torch.float64)
        sums = _sum(torch.cat([wide.sum(axes, dtype=torch.float64), count]), process_set)
        total = sums[-1].item()
        mean = (sums[:-1] / total).to(wide.dtype)
        centered = wide - mean.view(shape)
        squares = _sum(centered.square().sum(axes, dtype=torch.float64), process_set)
        variance = (squares / total).to(wide.dtype)
        scale = torch.rsqrt(variance + eps)
        normalized = centered * scale.view(shape)
        ctx.save_for_backward(normalized, scale)
        ctx.kind = inputs.dtype
        ctx.how = axes, shape, total, process_set
        ctx.mark_non_differentiable(mean, variance)
        return normalized, mean, variance, total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient, _mean, _variance, _total):
        normalized, scale = ctx.saved_tensors
        axes, shape, total, process_set = ctx.how
        sums = _sum(torch.stack([one.sum(axes, dtype=torch.float64)
                                 for one in (gradient, gradient * normalized)]),
                    process_set) / total
        means = [one.to(gradient.dtype).view(shape) for one in sums]
        own = (gradient - means[0] - normalized * means[1]) * scale.view(shape)
        return own.to(ctx.kind), None, None


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm1d to 3d, whose statistics in training are those of the samples of all
    ranks, of which each may have another number. In evaluation, and on one rank, it is the same.

    Args: those of torch.nn.BatchNorm2d, and ``process_set``: the ranks.

    Inputs: N x C x …, floating-point.
    """

    def __init__(self, *arguments, process_set=global_process_set, **keywords):
        super().__init__(*arguments, **keywords)
        self._process_set = process_set

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"[SyncBatchNorm] expected inputs of at least two axes, got "
                             f"{tuple(input.shape)}")

    def forward(self, input):
        self._check_input_dim(input)
        uses_batch = self.training or not self.track_running_stats
        if not uses_batch or self._process_set.size() == 1:
            return super().forward(input)
        result, mean, variance, total = _Normalize.apply(input, self.eps, self._process_set)
        if self.training and self.track_running_stats:
            self.num_batches_tracked.add_(1)
            rate = (1 / float(self.num_batches_tracked) if self.momentum is None
                    else self.momentum)
            with torch.no_grad():
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
                self.running_var.lerp_((variance * (total / max(total - 1, 1))).to(
                    self.running_var.dtype), rate)
        if self.affine:
            shape = [1, -1] + [1] * (input.dim() - 2)
            result = result * self.weight.view(shape) + self.bias.view(shape)
        return result.to(input.dtype)

"""Smaller types for tensors that travel."""
import torch


class Compressor:
    """compress() makes a tensor smaller; decompress() takes what it returned."""

    @staticmethod
    def compress(tensor):
        """The tensor that travels, and what decompress() needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor, _context):
        """The tensor as it was, with new values."""
        return tensor


class _Shorter(Compressor):
    dtype = None

    @classmethod
    def compress(cls, tensor):
        return (tensor.to(cls.dtype) if tensor.is_floating_point() else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor, context):
        return tensor.to(context)


class Compression:
    """Ways to compress: ``none``, ``fp16``, ``bf16`` (the range of float32)."""

    none = Compressor
    fp16 = type("fp16", (_Shorter,), {"dtype": torch.float16})
    bf16 = type("bf16", (_Shorter,), {"dtype": torch.bfloat16})

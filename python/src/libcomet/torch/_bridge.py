# SPDX-License-Identifier: Apache-2.0
"""Hands PyTorch's functions to the C module, which is not built against PyTorch."""
import torch

from libcomet import _native


def _rescale(tensor, by_channel, dtype):
    """The values of a grid times a number for each channel, which is the second dimension."""
    return tensor.mul_(by_channel.view(-1, *[1] * (tensor.dim() - 2))).to(dtype)


def _full_nan(count, device):
    return torch.full((count,), float("nan"), device=device)


def _pinned(count):
    return torch.empty(count, dtype=torch.uint8, pin_memory=True)


def _upload(data, device):
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device, non_blocking=True)


def _used_by(tensor, index, address):
    tensor.record_stream(torch.cuda.ExternalStream(address, device=index))


def _no_cuda(*_):
    raise RuntimeError("this PyTorch has no CUDA")


def _functions():
    has_cuda = torch.cuda.is_available()
    return {
        "Tensor": torch.Tensor,
        "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16,
        "uint8": torch.uint8, "int64": torch.int64, "bool": torch.bool,
        "empty_strided": torch.empty_strided, "empty_like": torch.empty_like,
        "reciprocal": torch.reciprocal,
        "is_grad_enabled": torch.is_grad_enabled,
        "rescale": _rescale, "full_nan": _full_nan,
        "pinned": _pinned, "upload": _upload,
        "current_device": torch._C._cuda_getDevice if has_cuda else _no_cuda,
        "current_stream": torch._C._cuda_getCurrentRawStream if has_cuda else _no_cuda,
        "memory_alloc": torch.cuda.caching_allocator_alloc,
        "used_by": _used_by,
        "memory_delete": torch.cuda.caching_allocator_delete,
        "storage_expired": torch.UntypedStorage._expired,
        "storage_free": torch.UntypedStorage._free_weak_ref,
        "cpu": torch.device("cpu"),
        "cuda": [torch.device("cuda", index) for index in range(torch.cuda.device_count() if has_cuda else 0)],
    }


_native.set_torch(_functions())


def gpu_obstacle(index=0):
    """Why tensors of that GPU cannot be held, or an empty string."""
    if not torch.cuda.is_available():
        return "PyTorch finds no GPU"
    return _native.gpu_obstacle(index)

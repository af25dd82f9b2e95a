# SPDX-License-Identifier: Apache-2.0
"""Which functions of PyTorch are known, and what their backward passes do with what they save.

A function that is not in this table saves what it saves as it is: losses, softmax, sigmoid, anything that others wrote.
The rule for an entry: backward is linear in what is held (convolutions, linear layers, norms in their normalised
input, products with a factor for many values each), or reads no more than its sign (ReLU), its shape (pooling), or a
curve whose slope changes slowly (SiLU, GELU).
"""
import weakref

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as _modules

from libcomet import _native

# Operations: the numbers of native/pass/frame.h.
LAYER, RELU, CURVE, BATCH_NORM, ROW_NORM, AVERAGE, MAX_POOL, DROPOUT, SCALE = range(1, 10)

# Roles: the numbers of native/hold/session.h.
ROLES = ("none", "layer input", "relu", "curve input", "batch norm input", "row norm input", "scaled",
         "shape", "pool indices", "mask", "dropout")


def _argument(args, kwargs, position, name, default=None):
    return args[position] if len(args) > position else kwargs.get(name, default)


def _pair(value):
    return (value, value) if isinstance(value, int) else tuple(value) * (3 - len(value))


def _pool_window(args, kwargs):
    """kernel, stride, padding, dilation of a max-pool: rows, columns each."""
    kernel = _pair(_argument(args, kwargs, 1, "kernel_size"))
    stride = _argument(args, kwargs, 2, "stride")
    padding = _pair(_argument(args, kwargs, 3, "padding", 0))
    dilation = _pair(_argument(args, kwargs, 4, "dilation", 1))
    return kernel + (_pair(stride) if stride not in (None, [], ()) else kernel) + padding + dilation


def _table():
    """function -> (operation, position of its weight among the arguments or 0, how to find a pool's window or None)."""
    table = {}

    def add(operation, *functions, weight=0, window=None):
        table.update({function: (operation, weight, window) for function in functions})

    add(LAYER, torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d,
        torch.conv_transpose3d, F.conv1d, F.conv2d, F.conv3d, F.linear, torch._C._nn.linear, weight=1)
    add(RELU, F.relu, F.relu_, torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_)
    add(CURVE, F.silu, F.gelu)
    add(BATCH_NORM, F.batch_norm, weight=3)
    add(BATCH_NORM, torch.batch_norm, weight=1)
    add(ROW_NORM, F.layer_norm, F.group_norm, torch.layer_norm, torch.group_norm, weight=2)
    add(AVERAGE, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d,
        F.adaptive_avg_pool3d)
    add(MAX_POOL, F.max_pool2d, F.max_pool2d_with_indices, window=_pool_window)
    add(DROPOUT, F.dropout, torch.dropout)
    add(SCALE, torch.mul, torch.multiply, torch.Tensor.mul, torch.Tensor.multiply, torch.Tensor.__mul__,
        torch.Tensor.__rmul__)
    return table


_native.set_known(_table())


# ---- modules that are one known operation ----


def _module_window(module):
    return _pool_window((), {"kernel_size": module.kernel_size, "stride": module.stride, "padding": module.padding,
                             "dilation": module.dilation})


def _leaves():
    """class -> (operation, how to find a pool's window or None)."""
    table = {}

    def add(operation, *classes, window=None):
        table.update({kind: (operation, window) for kind in classes})

    add(LAYER, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)
    add(RELU, nn.ReLU)
    add(CURVE, nn.SiLU, nn.GELU)
    add(BATCH_NORM, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    add(ROW_NORM, nn.LayerNorm, nn.GroupNorm)
    add(AVERAGE, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d,
        nn.AdaptiveAvgPool3d)
    add(MAX_POOL, nn.MaxPool2d, window=_module_window)
    add(DROPOUT, nn.Dropout)
    return table


_LEAVES = _leaves()


def is_leaf(module):
    """Of such a class itself: what inherits from it may do other things. Padding other than zeros is an operation
    before the convolution, whose input is then not the module's."""
    return type(module) in _LEAVES and getattr(module, "padding_mode", "zeros") == "zeros"


def leaf(module):
    """One for each module, also where several sessions have it."""
    if module not in _made:
        operation, window = _LEAVES[type(module)]
        _made[module] = _native.Leaf(operation, module, window)
    return _made[module]


_made = weakref.WeakKeyDictionary()
_native.set_global_hooks((_modules._global_forward_hooks, _modules._global_forward_pre_hooks,
                          _modules._global_backward_hooks, _modules._global_backward_pre_hooks))

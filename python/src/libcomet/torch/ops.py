# SPDX-License-Identifier: Apache-2.0
"""Which functions of PyTorch are known, and what their backward passes do with what they save.

A function that is not in this table saves what it saves as it is: losses, softmax, sigmoid, anything that others wrote.
The rule for an entry: backward is linear in what is held (convolutions, linear layers, norms in their normalised input),
or reads no more than its sign (ReLU), its shape (pooling), or a curve whose slope changes slowly (SiLU, GELU).
"""
import torch
import torch.nn.functional as F

# Operations: the numbers of native/frame.h.
LAYER, RELU, CURVE, BATCH_NORM, ROW_NORM, AVERAGE, MAX_POOL, DROPOUT = range(1, 9)

# Roles: the numbers of native/session.h.
ROLES = ("none", "layer input", "relu", "curve input", "batch norm input", "row norm input", "shape", "pool indices",
         "mask", "dropout")


def _input(args, kwargs):
    return args[0] if args else kwargs["input"]


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


def _no_more(args, kwargs):
    return None, None


def _weight(position):
    return lambda args, kwargs: (_argument(args, kwargs, position, "weight"), None)


def _window(args, kwargs):
    return None, _pool_window(args, kwargs)


def _table():
    table = {}

    def add(operation, find, *functions):
        for function in functions:
            if function is not None:
                table[function] = (operation, find)

    add(LAYER, _weight(1), torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d,
        torch.conv_transpose3d, F.conv1d, F.conv2d, F.conv3d, F.linear, torch._C._nn.linear)
    add(RELU, _no_more, F.relu, F.relu_, torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_)
    add(CURVE, _no_more, F.silu, F.gelu)
    add(BATCH_NORM, _weight(3), F.batch_norm)
    add(BATCH_NORM, _weight(1), torch.batch_norm)
    add(ROW_NORM, _weight(2), F.layer_norm, F.group_norm, torch.layer_norm, torch.group_norm)
    add(AVERAGE, _no_more, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d,
        F.adaptive_avg_pool3d)
    add(MAX_POOL, _window, F.max_pool2d, F.max_pool2d_with_indices)
    add(DROPOUT, _no_more, F.dropout, torch.dropout)
    return table


KNOWN = _table()


def find(function, args, kwargs):
    """(operation, input, weight, pool window) of a call that is known, else None."""
    operation, more = KNOWN[function]
    weight, window = more(args, kwargs)
    return operation, _input(args, kwargs), weight, window

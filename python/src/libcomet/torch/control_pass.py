# SPDX-License-Identifier: Apache-2.0
"""A forward pass that a controller watches: what held tensors are used for, and what is seen of it now and in backward
(control.py)."""
import weakref

import torch

from libcomet import _native
from libcomet.torch import control_measure, measure, ops

# comet_use_kind, and what is to be seen of a layer: comet/error_model.h, comet/use_stats.h
CONV_WEIGHTS, LINEAR_WEIGHTS, NORM_SCALE, NORM_INPUT = range(4)
OUTPUT, INPUT, COMMON = 1, 2, 4
NEEDS_ACGC = 8

NO_MODEL = {ops.ROW_NORM: "row norm: no model", ops.CURVE: "curve: no model", ops.SCALE: "gate: no model"}
_CONVOLUTIONS = {torch.nn.Conv1d.forward: 1, torch.nn.Conv2d.forward: 2}
_FUNCTIONS = {torch.conv1d: 1, torch.conv2d: 2, torch.nn.functional.conv1d: 1, torch.nn.functional.conv2d: 2}
_LINEAR = (torch.nn.functional.linear, torch._C._nn.linear)


# ---- layers ----


def _numbers(value, count):
    return (value,) * count if isinstance(value, int) else tuple(value)


def _geometry(source, args, kwargs, weight):
    """(dimensions, (kernel, stride, padding, dilation, groups)) of a layer, rows before columns; None: no model of it.
    A linear layer has none: 0."""
    is_module = isinstance(source, torch.nn.Module)
    if type(source).forward is torch.nn.Linear.forward if is_module else source in _LINEAR:
        return 0, (1, 1, 1, 1, 0, 0, 1, 1, 1)
    if is_module:
        count = _CONVOLUTIONS.get(type(source).forward)
        if count is None or source.padding_mode != "zeros":
            return None
        given = source.stride, source.padding, source.dilation, source.groups
    else:
        count = _FUNCTIONS.get(source)
        if count is None:
            return None
        given = [ops._argument(args, kwargs or {}, at, name, default) for at, name, default in
                 ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1), (6, "groups", 1))]
    if isinstance(given[1], str):  # "same" may have more padding on one side than on the other
        if given[1] != "valid":
            return None
        given = given[0], 0, *given[2:]
    kernel = tuple(weight.shape[2:])
    shape = [kernel, *(_numbers(value, count) for value in given[:3])]
    if count == 1:  # a row
        shape = [(1, *shape[0]), (1, *shape[1]), (0, *shape[2]), (1, *shape[3])]
    return count, (*shape[0], *shape[1], *shape[2], *shape[3], int(given[3]))


def _rows(tensor):
    """What a linear layer reads or writes: rows and channels."""
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])


class Layer:
    """A call of a convolution or linear layer in a pass."""
    __slots__ = "number", "gradient", "is_before_norm"

    def __init__(self, number, gradient):
        self.number, self.gradient, self.is_before_norm = number, gradient, False


class Norm:
    __slots__ = "number", "gradient"

    def __init__(self, number, gradient):
        self.number, self.gradient = number, gradient


# ---- what is seen in backward ----


class _LayerHook:
    """The gradient of a layer's output."""
    __slots__ = "control", "layer", "shape", "geometry"

    def __init__(self, control, layer, shape, geometry):
        self.control, self.layer, self.shape, self.geometry = control, layer, shape, geometry

    def __call__(self, gradient):
        with self.control.guarded():
            if type(gradient) is torch.Tensor:
                dimensions, geometry = self.geometry
                dy = gradient.detach() if dimensions else _rows(gradient.detach())
                self.control.native.see_layer(self.layer.number, OUTPUT, self.shape, dy, None, geometry)


class _NormHook:
    """The gradient of a batch norm's output, and its input, as it comes back."""
    __slots__ = "control", "norm", "held", "tables", "errors"

    def __init__(self, control, norm, held, tables, errors):
        self.control, self.norm, self.held, self.tables, self.errors = control, norm, held, tables, errors

    def __call__(self, gradient):
        held, self.held = self.held, None  # the graph may live on: what is held must not
        if held is None or type(gradient) is not torch.Tensor:
            return
        with self.control.guarded():
            mean, inverse, gamma, beta = (table.detach().float() for table in self.tables)
            x = self.control.sites.unpack(held)
            self.control.native.see_norm(self.norm.number, x, gradient.detach(), inverse, -mean * inverse, gamma, beta)
            if self.errors is not None:
                self.errors(gradient.detach(), (mean, inverse, gamma, beta), x)


class _FusedHook:
    __slots__ = "control", "norm", "errors", "weight", "beta"

    def __init__(self, control, norm, errors, weight, beta):
        self.control, self.norm, self.errors, self.weight, self.beta = control, norm, errors, weight, beta

    def __call__(self, held, gradient):
        with self.control.guarded():
            self.control.native.see_fused(self.norm.number, held, gradient)
            values = None if self.errors is None else held.values
            if values is not None:
                tables = *_tables_of(held), self.weight.detach(), self.beta.detach()
                self.errors(gradient.detach(), tables, values, is_normalised=True, masks=held.masks)


def _tables_of(held):
    """Means and 1 / deviations of a fused batch norm."""
    memory, mean, inverse, channels = held.tables
    return [memory[at:at + 4 * channels].view(torch.float32) for at in (mean, inverse)]


class Guard:
    """Statistics that fail must not end a training: the bounds stay as they are."""

    def __init__(self, control):
        self.control = control

    def __enter__(self):
        self.mode = torch.no_grad()
        self.mode.__enter__()

    def __exit__(self, kind, problem, trace):
        self.mode.__exit__(kind, problem, trace)
        if kind is not None and issubclass(kind, Exception) and not self.control.strict:
            self.control.give_up(problem)
            return True
        return False


# ---- one forward pass ----


class Pass:
    """Called for every known operation of a pass that is watched. Learns what held tensors are used for; if statistics
    are wanted, looks at what is there now and arranges for what backward will show."""

    def __init__(self, control, collects):
        self.control, self.collects = control, collects
        self.measuring = control.measuring if collects else None
        self.made = {}  # id of a layer's output -> (weak reference to it, its version, layer)
        self.before = {}  # layer -> who measures what errors of its output do

    def __call__(self, op, source, node, x, weight, args, kwargs, result, kin, is_controlled, vectors, held):
        with self.control.guarded():
            if op == ops.LAYER:
                self._layer(source, node, x, weight, args, kwargs, result, kin, is_controlled, held)
            elif op == ops.BATCH_NORM:
                self._norm(source, node, x, weight, args, kwargs, result, kin, is_controlled, vectors, held)
            elif kin >= 0:
                self.control.leave(kin, NO_MODEL[op])
                self._operation(op, source, x, weight, args, kwargs, result, kin, held)

    def _layer(self, source, node, x, weight, args, kwargs, result, kin, is_controlled, held):
        control = self.control
        geometry = _geometry(source, args, kwargs, weight) if weight is not None else None
        plain = type(x) is torch.Tensor and type(result) is torch.Tensor
        if node is None or geometry is None or not plain or (geometry[0] and x.dim() != geometry[0] + 2):
            if kin >= 0:
                control.leave(kin, "a layer without a model")
            return
        layer = control.layer(node, weight)
        shown = [tensor.detach() if geometry[0] else _rows(tensor.detach()) for tensor in (x, result)]
        use = None
        if kin >= 0 and is_controlled:
            norm = control.fused.get(kin)
            use = (LINEAR_WEIGHTS if geometry[0] == 0 else CONV_WEIGHTS, layer.gradient, layer.number,
                   -1 if norm is None else norm.number)
            control.use(kin, *use)
            control.see_size(kin, x, 1 if geometry[0] else -1)
        elif kin >= 0:
            control.leave(kin, "a form of its own")
        self.made[id(result)] = weakref.ref(result), result._version, layer
        if self.collects and layer.is_before_norm:
            control.native.see_layer(layer.number, INPUT | COMMON, shown[0], tuple(shown[1].shape), weight.detach(),
                                     geometry[1])
        reads = kin >= 0 and is_controlled
        if self.collects and (reads or control.native.needs & NEEDS_ACGC) and result.requires_grad:
            result.register_hook(_LayerHook(control, layer, tuple(shown[0].shape), geometry))
        if self.measuring is not None and result.requires_grad:
            self._measure_layer(layer, measure.Layer(*geometry), kin, use, x, shown, held, result)

    def _measure_layer(self, layer, geometry, kin, use, x, shown, held, result):
        measuring = self.measuring
        index = measuring.index(kin, use, shown[0].shape[geometry.channels_at])
        if index is None and layer.number not in measuring.before_norms:
            return
        errors = control_measure.LayerErrors(measuring, layer.number, geometry, shown[1].shape[geometry.channels_at])
        with measuring.guarded(x.device):
            if index is not None:
                errors.keep((kin, index), measuring.parts[kin], shown[0], result.dtype)
            if kin >= 0:
                errors.held = held
            elif x.dtype == result.dtype:
                errors.read_as_it_is(x)
            self.before[layer.number] = errors
            result.register_hook(errors)

    def _measure_norm(self, kin, uses, x, layer):
        """Who is to be told in backward; None: it is not measured."""
        measuring = self.measuring
        keys = [None if measuring is None else measuring.index(kin, use, x.shape[1]) for use in uses]
        if keys == [None, None]:
            return None
        with measuring.guarded(x.device):
            part = measuring.parts[kin]
            kept = measuring.room.keep(x.detach().narrow(1, *part), x.dtype, copies=2)
            keys = [None if key is None else (kin, key) for key in keys]
            return control_measure.NormErrors(measuring, part, kept, *keys, self.before.get(layer.number))

    def _operation(self, op, source, x, weight, args, kwargs, result, kin, held):
        found = control_measure.describe(op, source, x, weight, args, kwargs)
        if found is None or type(result) is not torch.Tensor:
            return
        dim, length, rows, make = found
        if not self.control.see_operation(kin, op, x, length):
            return
        part = None if self.measuring is None else self.measuring.parts.get(kin)
        if part is None or sum(part) > length or not result.requires_grad:
            return
        with self.measuring.guarded(x.device):
            kept = self.measuring.room.keep(control_measure.some(x.detach(), dim, part, rows), x.dtype)
            if kept is not None:
                key = kin, control_measure.OPERATIONS[op]
                result.register_hook(control_measure.OperationErrors(self.measuring, key, dim, part, rows, kept, held,
                                                                     make))

    def _maker_of(self, x):
        reference, version, layer = self.made.get(id(x), (lambda: None, 0, None))
        return layer if reference() is x and x._version == version else None

    def _norm(self, source, node, x, weight, args, kwargs, result, kin, is_controlled, vectors, held):
        control, is_fused = self.control, isinstance(held, _native.Norm)
        if kin < 0:
            return
        layer = self._maker_of(x)
        beta = args[2] if is_fused else source.bias if isinstance(source, torch.nn.Module) else \
            ops._argument(args, kwargs or {}, 4 if source is torch.nn.functional.batch_norm else 2, "bias")
        if not is_controlled:
            return control.leave(kin, "curve: no model" if is_fused else "a form of its own")
        if node is None or beta is None or not (is_fused or vectors) or not 2 <= x.dim() <= 4:
            return control.leave(kin, "batch norm without a model")
        if layer is None or layer.gradient < 0:
            return control.leave(kin, "batch norm: no trained layer is right before it")
        norm = control.norm(node, weight)
        layer.is_before_norm = True
        if is_fused:
            control.fused[kin] = norm
        uses = ((NORM_SCALE, norm.gradient, -1, norm.number),
                (NORM_INPUT, layer.gradient, layer.number, norm.number))
        for use in uses:
            control.use(kin, *use)
        control.see_size(kin, x, 1)
        if self.collects and is_fused:
            held.observer = _FusedHook(control, norm, self._measure_norm(kin, uses, x, layer), weight, beta)
        elif self.collects and result.requires_grad:
            errors = self._measure_norm(kin, uses, x, layer)
            result.register_hook(_NormHook(control, norm, held, (*vectors, weight, beta), errors))

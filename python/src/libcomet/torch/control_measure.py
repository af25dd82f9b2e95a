# SPDX-License-Identifier: Apache-2.0
"""Measured errors (docs/measured.md, "In the plug-in"): in an iteration with statistics a few channels of some tensors
in turn are also kept as they were, and their backward passes compute what the held ones' errors do (measure.py)."""
import collections
import math
import weakref

import torch

from libcomet.torch import measure, ops

NEEDS_MEASURED = 32   # include/comet/control.h
NORM_INPUT = 3
AT_ONCE = 10          # tensors of an iteration, at most
PART = 192            # the part of all tensors that is kept
TURN = 0x6A09E667F3BCC908  # 2^64 (sqrt(2) - 1): its multiples visit all packs, in steps of 1 to 10 turns alike
OPERATIONS = {ops.CURVE: "curve", ops.ROW_NORM: "row norm", ops.SCALE: "gate"}
FORGETS = 20          # measurements, after which the first ones count less than the last

# Of a site: channels (rows, images) and bytes of one of them in fp32; how many copies of these there are while it is
# measured; how many of them at least.
Size = collections.namedtuple("Size", "channels bytes copies least")


# ---- turns ----


def room_of(sizes):
    total = sum(size.channels * size.bytes for size in sizes.values())
    least = max((size.least * size.bytes * size.copies for size in sizes.values()), default=0)
    return max(total // PART, least)


def _width(size, room):
    """As many channels as leave room for ten tensors."""
    most = min(size.channels, measure.WIDTH, room // max(1, size.bytes * size.copies * AT_ONCE))
    return max(most, size.least)


def _packs(sizes, room):
    """Sites that are looked at together, [{kin: width}, ...], in the order of the network."""
    packs, used = [], 0
    for kin, size in sorted(sizes.items()):
        width = _width(size, room)
        taken = width * size.bytes * size.copies
        if not packs or used + taken > room or len(packs[-1]) == AT_ONCE:
            packs.append({})
            used = 0
        packs[-1][kin] = width
        used += taken
    return packs


def _block(channels, width, number):
    """The number-th block of channels; the last one may go over some of the one before."""
    return min(number * width, channels - width), width


def choose(sizes, iteration, every):
    """({kin: (first channel, how many)}, bytes of room). It follows from the number of the iteration alone, so that a
    run that goes on from a checkpoint does the same."""
    room = room_of(sizes)
    packs = _packs(sizes, room)
    if not packs:
        return {}, 0
    turn = iteration // every
    pack = packs[(turn * TURN & measure.MASK) * len(packs) >> 64]
    parts = {}
    for kin, width in pack.items():
        channels = sizes[kin].channels
        parts[kin] = _block(channels, width, measure.drawn(turn, kin, -(-channels // width)))
    return parts, room


# ---- what is kept ----


class Room:
    """Bytes for what is kept, of all graphs that are alive together."""

    def __init__(self):
        self.limit = self.used = self.peak = 0

    def keep(self, values, dtype, copies=1):
        """A copy; None: there is no room, as there is for one graph at a time."""
        taken = 4 * values.numel() * copies
        if self.used + taken > self.limit:
            return None
        return Kept(self, values.detach().to(dtype, copy=True), taken)


class Kept:
    __slots__ = "room", "values", "bytes"

    def __init__(self, room, values, taken):
        self.room, self.values, self.bytes = room, values, taken
        room.used += taken
        room.peak = max(room.peak, room.used)

    def __del__(self):
        self.room.used -= self.bytes


# ---- an iteration ----


class Measuring:
    """What is measured in one iteration. Hooks of its graphs add to it until it is closed."""

    def __init__(self, control, parts, uses, turn):
        self.control, self.parts, self.turn = weakref.proxy(control), parts, turn
        self.native, self.room = control.sites, control.room
        self.uses = {kin: uses.get(kin, ()) for kin in parts}
        self.before_norms = {use[2] for some in self.uses.values() for use in some if use[0] == NORM_INPUT}
        self.weights, self.operations = {}, {}
        self.is_open = True

    def guarded(self, device):
        return _Guard(self, device)

    def index(self, kin, use, channels):
        """The number of one of a site's uses; None: it is not measured now, or has fewer channels than before."""
        uses = self.uses.get(kin, ())
        return uses.index(use) if use in uses and sum(self.parts[kin]) <= channels else None

    def seed(self, number):
        return self.turn, number

    def add(self, key, sums, values):
        """Errors of the gradients of some weights, which further batches add to."""
        before = self.weights.get(key)
        self.weights[key] = (sums, values, 1) if before is None else (before[0] + sums, values, before[2] + 1)

    def add_operation(self, key, error, whole):
        before = self.operations.get(key, (0, 0))
        self.operations[key] = before[0] + error, before[1] + whole

    def close(self):
        """([(kin, use, batches), ...], [(kin, operation), ...], tensors of one number). A number for each of the first:
        the root of the mean square. Two for each of the second: sums of squares."""
        self.is_open = False
        numbers = [(sums.double().square().sum() / max(values, 1)).sqrt() for sums, values, _ in self.weights.values()]
        numbers += [number for both in self.operations.values() for number in both]
        weights = [(*key, batches) for key, (_, _, batches) in self.weights.items()]
        return weights, list(self.operations), numbers


class _Guard:
    """Without autograd and autocast. What fails ends the measuring, neither the statistics nor the training."""

    def __init__(self, measuring, device):
        self.measuring = measuring
        self.modes = torch.no_grad(), torch.autocast(device.type, enabled=False)

    def __enter__(self):
        for mode in self.modes:
            mode.__enter__()

    def __exit__(self, kind, problem, trace):
        for mode in reversed(self.modes):
            mode.__exit__(kind, problem, trace)
        if kind is None or not issubclass(kind, Exception) or self.measuring.control.strict:
            return False
        self.measuring.is_open = False
        self.measuring.control.stop_measuring(problem)
        return True


# ---- hooks ----


class LayerErrors:
    """At a layer's backward pass: what errors of its input, and of its output's gradient, do to its weights."""
    __slots__ = ("measuring", "number", "layer", "outputs", "held", "reads", "version", "key", "part", "kept",
                 "errors")

    def __init__(self, measuring, number, layer, outputs):
        self.measuring, self.number, self.layer, self.outputs = measuring, number, layer, outputs
        self.held = self.reads = self.key = self.part = self.kept = None
        self.version, self.errors = 0, []

    def keep(self, key, part, shown, dtype):
        kept = self.measuring.room.keep(shown.narrow(self.layer.channels_at, *part), dtype)
        if kept is not None:
            self.key, self.part, self.kept = key, part, kept

    def read_as_it_is(self, x):
        """The input is not held, and autograd keeps it anyway."""
        self.reads, self.version = x.detach(), x._version

    def _input(self, held, reads):
        if held is not None:
            return self.measuring.native.unpack(held)
        return reads if reads is not None and reads._version == self.version else None

    def __call__(self, gradient):
        held, reads, kept, errors = self.held, self.reads, self.kept, self.errors
        self.held = self.reads = self.kept = None  # the graph may live on, and is measured once
        self.errors = []
        measuring = self.measuring
        if not measuring.is_open or not (kept or errors) or type(gradient) is not torch.Tensor:
            return
        with measuring.guarded(gradient.device):
            x = self._input(held, reads)
            if x is None:
                return
            dy = gradient.detach()
            if self.layer.dimensions == 0:
                x, dy = (t if t.dim() == 2 else t.reshape(-1, t.shape[-1]) for t in (x, dy))
            seed = measuring.seed(self.number)
            if kept is not None:
                measuring.add(self.key, *measure.of_input(self.layer, self.part, kept.values, x, dy, seed))
            for key, part, error in errors:
                if error.is_cuda:  # it is of the norm's queue
                    error.record_stream(torch.cuda.current_stream(error.device))
                measuring.add(key, *measure.of_output(self.layer, part, error, self.outputs, x, seed))


class NormErrors:
    """At a batch norm's: the error of its scale, and of its dX, which goes on to the layer before it."""
    __slots__ = "measuring", "part", "kept", "of_scale", "of_input", "before"

    def __init__(self, measuring, part, kept, of_scale, of_input, before):
        self.measuring, self.part, self.kept, self.before = measuring, part, kept, before
        self.of_scale, self.of_input = of_scale, of_input  # keys, or None

    def _some(self, tensor, dim=1):
        some = measure.channels_first(tensor.narrow(dim, *self.part), dim)
        return some if dim == 0 else some.flatten(1)

    def __call__(self, gradient, tables, values, is_normalised=False, masks=False):
        """tables: mean, 1 / deviation, gamma, beta; values: what comes back, x or u. masks: of a ReLU behind it."""
        kept, self.kept = self.kept, None
        measuring = self.measuring
        if kept is None or not measuring.is_open:
            return
        with measuring.guarded(gradient.device):
            mean, inverse, gamma, beta = (self._some(table, 0).unsqueeze(1) for table in tables)
            exact = (kept.values.movedim(1, 0).float().flatten(1) - mean) * inverse
            u = self._some(values) if is_normalised else (self._some(values) - mean) * inverse
            g = self._some(gradient)
            if masks:
                g = g * (gamma * u + beta > 0)
            scale, error = measure.of_norm(exact, u, g, (gamma * inverse).squeeze(1))
            if self.of_scale is not None:
                measuring.add(self.of_scale, scale, self.part[1])
            if self.of_input is not None and self.before is not None:
                self.before.errors.append((self.of_input, self.part, self._as_layer(error, gradient)))

    def _as_layer(self, error, gradient):
        """As Layer.read would read it of the gradient."""
        if gradient.dim() == 2:
            return error
        shape = [error.shape[0], gradient.shape[0], *gradient.shape[2:]]
        error = error.reshape(shape)
        return error.unsqueeze(2) if gradient.dim() == 3 else error


class OperationErrors:
    """At the backward pass of an operation that there is no model of: the error of what it passes on, as a part."""
    __slots__ = "measuring", "key", "dim", "part", "rows", "kept", "held", "make"

    def __init__(self, measuring, key, dim, part, rows, kept, held, make):
        self.measuring, self.key, self.dim, self.part, self.rows = measuring, key, dim, part, rows
        self.kept, self.held, self.make = kept, held, make

    def __call__(self, gradient):
        kept, held, self.kept, self.held = self.kept, self.held, None, None
        measuring = self.measuring
        if kept is None or not measuring.is_open or type(gradient) is not torch.Tensor:
            return
        with measuring.guarded(gradient.device):
            x, dy = (some(tensor.detach(), self.dim, self.part, self.rows).float()
                     for tensor in (measuring.native.unpack(held), gradient))
            exact = kept.values.float()
            measuring.add_operation(self.key, *measure.of_operation(self.make(exact), exact, x, dy))


def some(tensor, dim, part, rows):
    """rows: the length of a layer norm's rows, of which some are taken; 0: some of dimension `dim` are."""
    return (tensor.reshape(-1, rows) if rows else tensor).narrow(dim, *part)


# ---- operations without a model ----


def _layer_norm(source, x, weight, args, kwargs):
    is_module = isinstance(source, torch.nn.Module)
    shape = source.normalized_shape if is_module else ops._argument(args, kwargs, 1, "normalized_shape")
    eps = source.eps if is_module else ops._argument(args, kwargs, 4, "eps", 1e-5)
    length = math.prod((shape,) if isinstance(shape, int) else shape)
    weight = None if weight is None else weight.detach().float().reshape(-1)
    return 0, x.numel() // length, length, lambda exact: measure.layer_norm_backward([length], weight, eps, exact)


def _group_norm(source, x, weight, args, kwargs):
    is_module = isinstance(source, torch.nn.Module)
    groups = source.num_groups if is_module else ops._argument(args, kwargs, 1, "num_groups")
    eps = source.eps if is_module else ops._argument(args, kwargs, 4, "eps", 1e-5)
    weight = None if weight is None else weight.detach().float()
    return 0, x.shape[0], 0, lambda exact: measure.group_norm_backward(groups, weight, eps, exact)


def _scale(x, args):
    """Of what a factor belongs to: the last dimension that factors have, but for the batch."""
    factors = next((one for one in args if one is not x and isinstance(one, torch.Tensor)), None)
    if factors is None:
        return None
    shape = (1,) * (x.dim() - factors.dim()) + tuple(factors.shape)
    own = [dim for dim in range(1, x.dim()) if shape[dim] > 1]
    dims = [dim for dim in range(x.dim()) if shape[dim] == 1 and x.shape[dim] > 1]
    return (own[-1], x.shape[own[-1]], 0, lambda exact: measure.scale_backward(dims)) if own and dims else None


def _is_group_norm(source):
    if isinstance(source, torch.nn.Module):
        return isinstance(source, torch.nn.GroupNorm)
    return source in (torch.nn.functional.group_norm, torch.group_norm)


def describe(op, source, x, weight, args, kwargs):
    """(dimension, its length, length of a row or 0, exact part -> backward) of an operation; None: it is not looked
    at. x: its input."""
    kwargs = kwargs or {}
    if op == ops.CURVE:
        is_silu = source is torch.nn.functional.silu or isinstance(source, torch.nn.SiLU)
        kind = source.approximate if isinstance(source, torch.nn.GELU) else kwargs.get("approximate", "none")
        dim = 1 if x.dim() > 3 else x.dim() - 1
        return dim, x.shape[dim], 0, lambda exact: measure.curve_backward(is_silu, kind)
    if op == ops.SCALE:
        return _scale(x, args)
    return (_group_norm if _is_group_norm(source) else _layer_norm)(source, x, weight, args, kwargs)


# ---- what is known after a while ----


class Means:
    """By site, number of the use (-1: there is no model) and its kind: how often it was measured, and the mean squares
    of what was predicted and measured, in units of the gradient's mean size; of operations without a model there is no
    prediction."""

    def __init__(self):
        self.of = {}

    def add(self, key, predicted, measured):
        times, *before = self.of.get(key, (0, 0.0, 0.0))
        weight = max(1 / (times + 1), 1 / FORGETS)
        self.of[key] = (times + 1, *(mean + weight * (seen - mean)
                                     for mean, seen in zip(before, (predicted, measured))))

    def state(self):
        return [[*key, *value] for key, value in self.of.items()]

    def load(self, state):
        self.of = {tuple(row[:3]): tuple(row[3:]) for row in state}

# SPDX-License-Identifier: Apache-2.0
"""Blocks whose forward pass is done again when backward comes to them, from their own input.

Like torch.utils.checkpoint, with two differences: what the second pass saves is held compressed, and the block's input
is held without loss in the device store, from where it may go to the host. Batch norms count a batch once.
"""
import contextlib

import torch
from torch import nn
from torch.utils import _pytree

from libcomet.torch import ops, scope


def blocks_of(model):
    """What networks repeat: modules with a forward of their own that stand in a list or a sequence, the outermost."""
    found = []

    def search(module, is_repeated):
        is_list = isinstance(module, nn.ModuleList) or type(module).forward is nn.Sequential.forward
        if is_repeated and not is_list and not ops.is_leaf(module):
            if sum(ops.is_leaf(part) for part in module.modules()) > 1:
                found.append(module)
            return
        for child in module.children():
            search(child, is_list)

    search(model, False)
    return found


@contextlib.contextmanager
def _statistics_as_they_are(module):
    """Batch norms have counted this batch already."""
    before = []
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._NormBase) and part.track_running_stats:
            before.append((part, part.momentum, part.num_batches_tracked))
            part.momentum, part.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for part, part.momentum, part.num_batches_tracked in before:
            pass


class _Followed(torch.autograd.Function):
    """A tensor that autograd follows, and that may be written to in place, as a leaf may not."""

    @staticmethod
    def forward(ctx, anchor, tensor):
        return tensor[0]

    @staticmethod
    def backward(ctx, gradient):  # the graph of a second pass is not gone through
        raise AssertionError


def _input_of(tensor, requires_grad):
    tensor = tensor.detach()
    return _Followed.apply(torch.empty(0, requires_grad=True), (tensor,)) if requires_grad else tensor


class _Surroundings:
    """Random numbers and autocast, as they were in the first pass. Backward has threads of its own."""

    def __init__(self, device):
        self.device = device if device.type == "cuda" else None
        self.random = torch.get_rng_state()
        self.random_of_device = torch.cuda.get_rng_state(self.device) if self.device else None
        kinds = ["cpu"] + (["cuda"] if self.device else [])
        self.autocast = [(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in kinds]
        self.cache = torch.is_autocast_cache_enabled()

    @contextlib.contextmanager
    def again(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng([self.device] if self.device else []))
            torch.set_rng_state(self.random)
            if self.device:
                torch.cuda.set_rng_state(self.random_of_device, self.device)
            for kind, dtype, enabled in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=self.cache))
            stack.enter_context(torch.enable_grad())
            yield


class _Part:
    """What autograd keeps for the n-th tensor that a block saves."""
    __slots__ = ("call", "number")

    def __init__(self, call, number):
        self.call, self.number = call, number

    def __del__(self):
        self.call.forget(self.number)


class _Call:
    """One call of a block, from its first forward pass until backward has gone through it."""

    def __init__(self, block, running, call, args, kwargs):
        self.block, self.call, self.running = block, call, running
        self.form, self.count, self.parts = running.frame.form, 0, None
        self.values, self.structure = _pytree.tree_flatten((args, kwargs))
        tensors = [value for value in self.values if isinstance(value, torch.Tensor)]
        self.surroundings = _Surroundings(next((t.device for t in tensors if t.is_cuda), torch.device("cpu")))
        self.inputs = {at: self._hold(value) for at, value in enumerate(self.values) if isinstance(value, torch.Tensor)}

    def _hold(self, tensor):
        """Blocks that write to their input get a copy of it held."""
        with torch.no_grad():
            held = tensor.detach().clone() if self.block.changes_input is not False else tensor
            return self.running.frame.hold(held), tensor.requires_grad

    def first(self):
        versions = {at: self.values[at]._version for at in self.inputs}
        args, kwargs = _pytree.tree_unflatten(self.values, self.structure)
        dry = self.running.part(self._pack, self._unpack)
        dry.frame.dry = True
        result = dry.run_inside(self.running, self.call, args, kwargs)
        if self.block.changes_input is None:
            self.block.changes_input = any(self.values[at]._version != version for at, version in versions.items())
        self.values = [None if at in self.inputs else value for at, value in enumerate(self.values)]
        return result

    def _pack(self, tensor):
        self.count += 1
        return _Part(self, self.count - 1)

    @staticmethod
    def _unpack(part):
        return part.call.tensor(part.number)

    def tensor(self, number):
        if self.parts is None:
            self._again()
        return self.running.native.unpack(self.parts[number])

    def forget(self, number):
        if self.parts is not None:
            self.parts[number] = None

    def _again(self):
        parts, before = [], self.block.allocated()
        inner = self.running.part(None, self.running.native.unpack)
        inner.frame.part, inner.frame.form = True, self.form

        def pack(tensor):
            parts.append(inner.frame.pack(tensor))
            return parts[-1]

        inner.hook(pack)
        values = list(self.values)
        with self.surroundings.again(), _statistics_as_they_are(self.block.module):
            for at, (held, requires_grad) in self.inputs.items():
                values[at] = _input_of(self.running.native.unpack(held), requires_grad)
            args, kwargs = _pytree.tree_unflatten(values, self.structure)
            del values
            inner.run_inside(None, self.call, args, kwargs)
        if len(parts) != self.count:
            raise RuntimeError(f"libcomet: {self.block.name} saved {self.count} tensors in its first forward pass and "
                               f"{len(parts)} when it was done again: exclude it from recomputation")
        self.parts, self.inputs, self.values = parts, {}, []
        self.block.bytes = max(self.block.bytes, self.block.allocated() - before)


class Block:
    """A module that may be done again. `wanted` asks, for each call, whether it shall be."""

    def __init__(self, session, module, name, wanted):
        self.session, self.module, self.name, self.wanted = session, module, name, wanted
        self.changes_input = None  # not known yet
        self.calls = 0
        self.bytes, self.position = 0, 0  # what it holds when it is not done again; sites before it in a pass

    def allocated(self):
        device = self.session.device
        return torch.cuda.memory_allocated(device) if device is not None else 0

    def run(self, call, *args, **kwargs):
        running = scope.innermost()
        if (running is None or running.native is not self.session.native or running.is_part
                or not torch.is_grad_enabled() or not self.wanted(self)):
            return call(*args, **kwargs)
        self.calls += 1
        self.position = running.frame.site_count
        return _Call(self, running, call, args, kwargs).first()

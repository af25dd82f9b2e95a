# SPDX-License-Identifier: Apache-2.0
"""Random programs over PyTorch's operations, for test_random_graphs.py. The same seed makes the same program.

A program is a list of instructions over slots, which hold tensors. What may be written to in place is known: results
that their own operation does not need again (fresh), as long as nobody has read them.
"""
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from conftest import in_thread


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, gradient):
        return 3 * ctx.saved_tensors[0] ** 2 * gradient


class Broken(Exception):
    pass


def part_of(x, r):
    """A slice of one of the dimensions."""
    dim = r.randrange(x.dim())
    length = r.randint(1, x.shape[dim])
    start, step = r.randint(0, x.shape[dim] - length), r.choice((1, 1, 2))
    index = [slice(None)] * x.dim()
    index[dim] = slice(start, start + length, step)
    return lambda x: x[tuple(index)]


# Each maker gets a sample and random numbers, and returns a function, modules in it are registered by the caller.
# Or None: not for such a sample.


def convolution(x, r):
    out, kernel = r.choice((4, 6, 8)), r.choice((1, 3))
    if x.dim() != 4 or min(x.shape[2:]) < 3:
        return None
    if r.random() < 0.2:
        return nn.ConvTranspose2d(x.shape[1], out, kernel, r.choice((1, 2)), bias=r.random() < 0.5)
    groups = x.shape[1] if r.random() < 0.2 else 1
    return nn.Conv2d(x.shape[1], out * groups if groups < 3 else groups, kernel, r.choice((1, 1, 2)), kernel // 2,
                     groups=groups, bias=r.random() < 0.5)


def linear(x, r):
    return nn.Linear(x.shape[-1], r.choice((4, 8, 16)), bias=r.random() < 0.7)


def batch_norm(x, r):
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}.get(x.dim())
    if kind is None or x.numel() == x.shape[1]:
        return None
    norm = kind(x.shape[1], affine=r.random() < 0.8, track_running_stats=r.random() < 0.8)
    return norm.eval() if r.random() < 0.15 and norm.track_running_stats else norm


def row_norm(x, r):
    if x.dim() >= 3 and r.random() < 0.5:
        return nn.GroupNorm(2 if x.shape[1] % 2 == 0 else 1, x.shape[1])
    return nn.LayerNorm(x.shape[-1])


def curve(x, r):
    return r.choice((nn.SiLU(), nn.GELU(), nn.GELU("tanh")))


def relu(x, r):
    return r.choice((nn.ReLU(), F.relu, torch.relu, torch.Tensor.relu))


def other_curve(x, r):
    return r.choice((torch.sigmoid, torch.tanh, Cube.apply, nn.Softmax(-1), nn.LeakyReLU(), nn.Hardswish(), F.relu6))


def pooling(x, r):
    if x.dim() != 4 or min(x.shape[2:]) < 4:
        return None
    kernel = r.choice((2, 3))
    # windows that overlap are added up in no certain order on a GPU
    stride = r.choice((1, 2, 3)) if not x.is_cuda else r.choice((kernel, kernel + 1))
    return r.choice((nn.MaxPool2d(kernel, stride, r.choice((0, 1)), ceil_mode=r.random() < 0.3),
                     nn.AvgPool2d(kernel, stride), nn.AdaptiveAvgPool2d(1 if x.is_cuda else r.choice((1, 2, 3)))))


def dropout(x, r):
    return nn.Dropout(r.choice((0.1, 0.5)))


def view(x, r):
    def permuted(x, order=tuple(r.sample(range(x.dim()), x.dim()))):
        return x.permute(order)

    choices = [permuted, part_of(x, r), part_of(x, r)]
    if x.dim() == 4:
        choices += [lambda x: x.flatten(1), lambda x: x.flatten(2), lambda x: x.flatten(2).transpose(1, 2)]
    if x.dim() == 2 and x.shape[1] % 4 == 0:
        choices.append(lambda x: x.reshape(x.shape[0], -1, 2, 2))
    if x.shape[0] > 1:
        choices.append(lambda x: x[:1].expand(3, *x.shape[1:]))
    return r.choice(choices)


def copy_of(x, r):
    choices = [torch.clone, lambda x: x.contiguous(), lambda x: x * 1.5, lambda x: x.flip(0)]
    if x.dim() == 4:
        choices.append(lambda x: x.contiguous(memory_format=torch.channels_last))
    return r.choice(choices)


MAKERS = {  # maker: how often, whether its result is fresh
    convolution: (5, True), linear: (4, True), batch_norm: (3, True), row_norm: (2, True), curve: (2, True),
    relu: (6, False), other_curve: (1, False), pooling: (2, True), dropout: (1, True), view: (3, False),
    copy_of: (1, False),
}


def in_place(x, r):
    """(function, is the result fresh). What it writes to is fresh."""
    some = part_of(x, r)
    return r.choice([
        (lambda x: x.relu_(), False), (nn.ReLU(True), False), (nn.SiLU(True), True), (nn.Dropout(0.3, True), True),
        (lambda x: x.mul_(0.5), True), (lambda x: x.add_(0.1), True), (lambda x: (some(x).relu_(), x)[1], False),
        (lambda x: (some(x).mul_(2), x)[1], True), (lambda x: (some(x).zero_(), x)[1], True),
    ])


def how_to_call(r, device):
    """A function is called as it is, in another thread, again in backward, or on another stream."""
    def as_it_is(function, x):
        return function(x)

    def in_a_thread(function, x):
        kind = x.device.type  # autocast is each thread's own
        with_cast = torch.autocast(kind, torch.bfloat16, enabled=torch.is_autocast_enabled(kind))
        return in_thread(with_cast(function), x)

    def again_in_backward(function, x):
        return checkpoint(function, x, use_reentrant=False)

    def on_another_stream(function, x):
        here, there = torch.cuda.current_stream(), torch.cuda.Stream()
        there.wait_stream(here)
        with torch.cuda.stream(there):
            y = function(x)
        x.record_stream(there)
        here.wait_stream(there)
        y.record_stream(here)
        return y

    chance = r.random()
    if chance < 0.03:
        return in_a_thread
    if chance < 0.06:
        return again_in_backward
    return on_another_stream if chance < 0.2 and device.type == "cuda" else as_it_is


class Graph(nn.Module):
    def __init__(self, seed, device):
        super().__init__()
        self.r, self.device = random.Random(seed), device
        self.layers, self.code, self.fails_at = nn.ModuleList(), [], None
        torch.manual_seed(seed)
        shapes = [(self.r.choice((2, 3)), self.r.choice((4, 6, 8)), 8, self.r.choice((8, 9))), (12, 16)]
        self.inputs = [torch.randn(shape, device=device) for shape in shapes]
        self.samples = [torch.zeros(shape, device=device) for shape in shapes]
        self.fresh = [False] * len(shapes)
        with torch.no_grad():
            for _ in range(self.r.randint(6, 20)):
                self.add()
        del self.samples

    # ---- building ----

    def add(self):
        chance = self.r.random()
        if chance < 0.12:
            self.add_pair()
        elif chance < 0.27:
            self.add_in_place()
        elif chance < 0.31:
            self.add_odd()
        else:
            self.add_one()

    def pick(self, only_fresh=False):
        """A slot that holds something; the later ones rather than the first."""
        slots = [i for i, sample in enumerate(self.samples) if sample is not None and (self.fresh[i] or not only_fresh)]
        return max(self.r.choice(slots), self.r.choice(slots)) if slots else None

    def keep(self, function):
        if isinstance(function, nn.Module):
            self.layers.append(function.to(self.device))
        return function

    def emit(self, instruction, sample, fresh):
        self.code.append(instruction)
        self.samples.append(sample)
        self.fresh.append(fresh)

    def add_one(self):
        slot = self.pick()
        x = self.samples[slot]
        maker = self.r.choices(list(MAKERS), [often for often, _ in MAKERS.values()])[0]
        function = maker(x, self.r)
        if function is None:
            return
        function, call = self.keep(function), how_to_call(self.r, self.device)
        y = function(x)
        if y.numel() == 0 or y.numel() > 20000 or y.dim() < 2:
            return
        self.fresh[slot] = False
        self.emit(lambda slots: slots.append(call(function, slots[slot])), y, MAKERS[maker][1])

    def add_pair(self):
        first = self.pick()
        x = self.samples[first]
        others = [i for i, sample in enumerate(self.samples) if sample is not None and sample.shape == x.shape]
        second = self.r.choice(others)
        function = self.r.choice((torch.add, torch.mul, torch.sub, torch.maximum, lambda a, b: torch.cat([a, b], 1),
                                  lambda a, b: torch.cat([a, b])))
        y = function(x, self.samples[second])
        if y.numel() > 20000:
            return
        self.fresh[first] = self.fresh[second] = False
        self.emit(lambda slots: slots.append(function(slots[first], slots[second])), y, False)

    def add_in_place(self):
        """Now and then on what must not be written to: then plain PyTorch raises, or the session keeps values apart."""
        slot = self.pick(only_fresh=self.r.random() > 0.03)
        if slot is None or self.samples[slot].stride().count(0):
            return
        function, fresh = in_place(self.samples[slot], self.r)
        function(self.samples[slot].clone())
        self.fresh[slot] = False  # the name in that slot: the same tensor goes on in the new one
        self.emit(lambda slots: slots.append(function(slots[slot])), self.samples[slot], fresh)

    def add_odd(self):
        """Something that leaves no result: an exception that is caught, work without gradients, a tensor let go of."""
        def caught(slots):
            try:
                F.conv2d(slots[slot].float(), torch.ones(3, 99, 1, 1, device=self.device))
            except RuntimeError:
                pass

        def without_gradients(slots):
            with torch.no_grad():
                F.relu(slots[slot]).sum()

        def let_go(slots):
            slots[slot] = None

        slot = self.pick()
        what = self.r.choice((caught, without_gradients, let_go))
        if what is let_go:
            if sum(sample is not None for sample in self.samples) < 3:
                return
            self.samples[slot] = None
        self.code.append(what)

    # ---- running ----

    def forward(self, *inputs):
        slots = [x * 1 for x in inputs]
        for index, instruction in enumerate(self.code):
            if index == self.fails_at:
                raise Broken
            instruction(slots)
        results = [slot for slot in slots if slot is not None and slot.requires_grad]
        return sum((result.double() * torch.arange(result.numel(), device=self.device).view(result.shape).cos()).mean()
                   for result in results)

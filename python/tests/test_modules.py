# SPDX-License-Identifier: Apache-2.0
"""Modules that are one known operation: what else runs in their calls is not it. And functions are seen as well."""
import concurrent.futures
import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import Program, activation, assert_same_bits, assert_within, attach, gradients, rms, same_bits, total

MODULES = {  # with as many values in the output as in the input
    "linear": lambda: nn.Linear(16, 16),
    "conv": lambda: nn.Conv2d(8, 8, 3, padding=1),
    "relu": lambda: nn.ReLU(),
    "silu": lambda: nn.SiLU(),
    "batch norm": lambda: nn.BatchNorm2d(8),
    "layer norm": lambda: nn.LayerNorm(16),
    "max pool": lambda: nn.MaxPool2d(3, 1, 1),
    "average": lambda: nn.AvgPool2d(3, 1, 1),
    "dropout": lambda: nn.Dropout(0.5),
}


def unknown(x):
    """Saves its input and its result, and is not known."""
    return torch.sigmoid(x * x)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_hooks_compute_is_exact(module, when, device):
    """Regularisers and probes are hooks of layers. Their operations are not the layer's."""
    values = torch.randn(4, 8, 16, 16, device=device)
    results = []
    for attached in (False, True):
        torch.manual_seed(0)
        layer, made = MODULES[module]().to(device), []
        model = nn.Sequential(layer)
        if when == "before":
            layer.register_forward_pre_hook(lambda module, args: made.append(unknown(args[0])))
        else:
            layer.register_forward_hook(lambda module, args, output: made.append(unknown(args[0])))
        if attached:
            attach(model)
        x = values.clone().requires_grad_()
        torch.manual_seed(1)
        y = model(x * 1)
        results.append(torch.autograd.grad(made[0].sum() + 0 * y.sum(), x)[0])
    assert same_bits(*results)


@pytest.mark.parametrize("when", ["before", "while"])
def test_forward_that_somebody_put_there(when, device):
    """Adapters replace `forward` of an instance, before a session is attached, and while it is."""
    values = torch.randn(64, 16, device=device)

    def gradient(attached):
        torch.manual_seed(0)
        layer = nn.Linear(16, 16).to(device)
        model = nn.Sequential(layer)
        if attached and when == "while":
            attach(model)
        layer.forward = unknown
        if attached and when == "before":
            attach(model)
        x = values.clone().requires_grad_()
        model(x * 1).sum().backward()
        return x.grad

    assert same_bits(gradient(True), gradient(False))


def test_pooling_that_is_changed(device):
    """The window of a max-pool is what it is when it is called."""
    values = torch.randn(2, 4, 16, 16, device=device)

    def gradient(attached):
        pool = nn.MaxPool2d(2)
        model = nn.Sequential(pool)
        session = attach(model) if attached else None
        pool.kernel_size, pool.stride, pool.padding = 4, 4, 1
        x = values.clone().requires_grad_()
        model(x * 1).square().sum().backward()
        assert session is None or session.stats()["index_bytes"] > 0
        return x.grad

    assert same_bits(gradient(True), gradient(False))


class Standardised(nn.Conv2d):
    """A layer that inherits from a known one, and does more."""

    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return F.conv2d(torch.sigmoid(x), weight, self.bias)


class StandardisedWithin(nn.Conv2d):
    """The same, in a method that nn.Conv2d.forward calls."""

    def _conv_forward(self, x, weight, bias):
        return F.conv2d(torch.sigmoid(x * x), weight - weight.mean((1, 2, 3), keepdim=True), bias)


@pytest.mark.parametrize("kind", [Standardised, StandardisedWithin])
def test_module_that_inherits(kind, device):
    model = nn.Sequential(kind(8, 8, 1)).to(device)
    x = torch.randn(4, 8, 16, 16, device=device, requires_grad=True)
    plain, compressed, inputs = copy.deepcopy(model), model, []
    attach(compressed)
    for one in (plain, compressed):
        inputs.append(torch.autograd.grad(one(x * 1).square().sum(), x)[0])
        one(x * 1).square().sum().backward()
    assert same_bits(*inputs)  # what is squared, and the result of sigmoid, are exact; the gradient needs no more
    assert (compressed[0].weight.grad - plain[0].weight.grad).norm() < 0.3 * plain[0].weight.grad.norm()


@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect"])
def test_padding_modes(mode, device):
    """A convolution that pads by itself saves another tensor than its input: gradients are right all the same."""
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, padding_mode=mode)).to(device)
    x = torch.randn(4, 8, 16, 16, device=device)
    plain = copy.deepcopy(model)
    attach(model, error_rel=0.1)
    for one in (plain, model):
        one(x).square().sum().backward()
    assert (model[1].weight.grad - plain[1].weight.grad).norm() < 0.1 * plain[1].weight.grad.norm()


def test_functions_and_modules_are_the_same(device):
    """Held alike: F.relu and nn.ReLU, in the first pass and in later ones, and in all later ones."""
    norm, conv = nn.BatchNorm2d(8).to(device), nn.Conv2d(8, 8, 3, padding=1).to(device)
    modules = nn.Sequential(copy.deepcopy(norm), nn.ReLU(), copy.deepcopy(conv), nn.SiLU())
    functions = Program(lambda norm, conv, x: F.silu(F.conv2d(
        F.relu(F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, True, 0.1, 1e-5)),
        conv.weight, conv.bias, padding=1)), norm, conv)
    sessions = [attach(model) for model in (modules, functions)]
    for step in range(3):
        x = activation(4, 8, 16, 16, device=device)
        results = []
        for model in (modules, functions):
            model.zero_grad()
            model(x).square().sum().backward(retain_graph=True)
            results.append(list(gradients(model).values()))
        assert all(same_bits(*pair) for pair in zip(*results)), step
    assert total(sessions[0], "saves") == total(sessions[1], "saves") == 9


def test_function_that_comes_late(device):
    """What the first passes do not show is exact when it comes, or within the bound; never anything else."""
    model = Program(lambda layer, x, late: layer(F.silu(x)) if late else layer(x), nn.Linear(64, 64)).to(device)
    attach(model)
    for step in range(70):
        x = activation(64, 64, device=device)
        y = model(x, step > 3)
        if step > 3:
            saved = y.grad_fn.next_functions[1][0]._saved_self
            assert_within(saved, x, 2 * 0.1 * rms(x), is_held=False)
        y.sum().backward()


def test_module_called_within_another(device):
    """Sharing and recursion: one instance in several places, a module that calls itself."""
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.act = nn.Linear(64, 64), nn.ReLU()

        def forward(self, x, depth=3):
            x = self.act(self.layer(x))
            return x if depth == 0 else self(x, depth - 1)

    model = Twice().to(device)
    x = torch.randn(64, 64, device=device)
    plain = copy.deepcopy(model)
    attach(model, exact=True)
    for one in (plain, model):
        one(x).sum().backward()
    assert_same_bits(gradients(model), gradients(plain))


def test_two_sessions_of_two_threads_share_a_layer(device):
    """Their passes overlap, and the one that began first ends first."""
    first_is_in, second_is_in, first_has_ended = (threading.Event() for _ in range(3))

    def first(layer, x):
        y = layer(x)
        first_is_in.set()
        second_is_in.wait(10)
        return y

    def second(layer, x):
        second_is_in.set()
        first_has_ended.wait(10)
        return layer(x)

    def run_first():
        y = models[0](x)
        first_has_ended.set()
        return y

    def run_second():
        first_is_in.wait(10)
        return models[1](x)

    layer = nn.Linear(64, 64).to(device)
    models = [Program(function, layer) for function in (first, second)]
    sessions = [attach(model) for model in models]
    x = torch.randn(64, 64, device=device)
    expected = F.linear(x, layer.weight, layer.bias)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        results = [one.result() for one in [pool.submit(run) for run in (run_first, run_second)]]
    assert all(torch.equal(result, expected) for result in results)
    for session in sessions:
        session.detach()
    assert torch.equal(layer(x), expected)
    assert layer.__dict__.get("_compiled_call_impl") is None

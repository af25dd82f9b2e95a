# SPDX-License-Identifier: Apache-2.0
"""Measured errors: what is computed of a few channels is what PyTorch says of all of them, factors put wrong predictions
right, and nothing else changes because something is measured."""
import copy
import json
import math
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import Program, assert_same_bits, attach, nodes, total
from libcomet.torch import control_measure, measure
from libcomet.torch.control import Control

ALWAYS = {"every": 1, "warmup": 10**6}  # statistics of every iteration, bounds as they are without a controller


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(Control, "strict", True)
    monkeypatch.setattr(Control, "_rest_longer", lambda *_: None)  # in every iteration, also where nothing moves
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def network(act=nn.ReLU):
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), act(), nn.Conv2d(16, 24, 3, 2, 1),
                         nn.BatchNorm2d(24), act(), nn.Conv2d(24, 24, 3, padding=1, groups=2), nn.BatchNorm2d(24),
                         act(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 10))


def batch(device, count=32, seed=0, channels=3):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, channels, 16, 16, generator=generator)
    labels = torch.randint(10, (count,), generator=generator)
    return images.to(device), labels.to(device)


def still(model):
    """An optimizer that moves nothing."""
    return torch.optim.SGD(model.parameters(), 0.0, momentum=0.9)


def loss_of(model, x):
    """Gradients that differ from value to value, whatever the model returns."""
    y = model(x).float()
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.device)
    return (y * weights + 0.1 * y * y).sum()


def learn(model, x, **options):
    """A session that has seen one step, so that it knows what there is to be measured."""
    optimizer = still(model)
    session = attach(model, optimizer=optimizer, **{"control_options": ALWAYS, **options})
    loss_of(model, x).backward()
    optimizer.step()
    optimizer.zero_grad()
    return session, optimizer


# ---- what is computed, against PyTorch's own backward passes ----


class Graph:
    """What backward reads and is given, at all nodes that have a weight: by the weight's address."""

    def __init__(self, loss):
        self.gradients, self.saved = {}, {}
        for node in nodes(loss):
            weight = next((getattr(node, name) for name in ("_saved_weight", "_saved_mat2") if hasattr(node, name)),
                          None)
            x = next((getattr(node, name) for name in ("_saved_input", "_saved_mat1") if hasattr(node, name)), None)
            if weight is not None and x is not None:
                self.saved[weight.data_ptr()] = x.detach().clone()
                node.register_prehook(lambda grads, key=weight.data_ptr(): self.gradients.__setitem__(
                    key, grads[0].detach().clone()))

    def of(self, module):
        """(what comes back of the input, the gradient of the output)"""
        key = module.weight.data_ptr()
        return self.saved[key].double(), self.gradients[key].double()


def exact_inputs(model, x):
    """Of all modules, by name: what they read in a forward pass."""
    found, handles = {}, []
    for name, module in model.named_modules():
        handles.append(module.register_forward_hook(
            lambda _, inputs, output, name=name: found.__setitem__(name, inputs[0].detach().clone())))
    model(x)
    for handle in handles:
        handle.remove()
    return found


def weight_gradient(module, x, dy):
    """(outputs, inputs / groups, taps), in fp64."""
    if isinstance(module, nn.Linear):
        return (dy.flatten(0, -2).t() @ x.flatten(0, -2)).unsqueeze(2)
    result = torch.ops.aten.convolution_backward(
        dy, x, module.weight.detach().double(), None, module.stride, module.padding, module.dilation, False,
        [0] * len(module.stride), module.groups, [False, True, False])[1]
    return result.flatten(2)


def norm_gradients(module, x, dy, exact):
    """dX and the gradient of the scale, with the statistics of what was read."""
    count, dims = x.numel() / x.shape[1], [0, *range(2, x.dim())]
    mean = exact.mean(dims)
    inverse = (exact.var(dims, correction=0) + module.eps).rsqrt()
    return torch.ops.aten.native_batch_norm_backward(dy, x, module.weight.detach().double(), None, None, mean, inverse,
                                                     count > 1, module.eps, [True, True, False])[:2]


def sides(module):
    return (module.in_features, module.out_features) if isinstance(module, nn.Linear) else \
        (module.in_channels, module.out_channels)


def groups_of(module):
    return getattr(module, "groups", 1)


def layer_of(module):
    def two(value):
        return (0, *value) if len(value) == 1 else tuple(value)
    if isinstance(module, nn.Linear):
        return measure.Layer(0, (1, 1, 1, 1, 0, 0, 1, 1, 1))
    shape = [tuple(module.kernel_size), module.stride, module.padding, module.dilation]
    if len(module.kernel_size) == 1:
        shape = [(1, *shape[0]), (1, *shape[1]), (0, *shape[2]), (1, *shape[3])]
    return measure.Layer(len(module.kernel_size), (*shape[0], *shape[1], *shape[2], *shape[3], module.groups))


def weights_that_are_looked_at(module, difference, pairs, is_input):
    """(taps, count, others) of (outputs, inputs / groups, taps)."""
    inputs, outputs = (size // groups_of(module) for size in sides(module))
    result = torch.zeros(difference.shape[2], pairs.count, pairs.others, dtype=torch.float64, device=difference.device)
    for i in range(pairs.count):
        for j in range(pairs.others):
            of_input, of_output = (pairs.first + i, pairs.other + j)[::1 if is_input else -1]
            if of_input // inputs == of_output // outputs:
                result[:, i, j] = difference[of_output, of_input % inputs]
    return result


def check_measured(session, model, x, graph, tolerance):
    """All that has been measured, sum by sum. Returns the names of sites and uses."""
    measuring, exact = session.control.measuring, exact_inputs(copy.deepcopy(model), x)
    names, seen = {id(parameter): name for name, parameter in model.named_parameters()}, set()
    parameters = [names[id(parameter)].rpartition(".")[0] for parameter in session.control.parameters]
    layers = {layer.number: parameters[layer.gradient] for layer in session.control.layers.values()}
    for (kin, index), (sums, values, batches) in measuring.weights.items():
        kind, gradient, number, _ = measuring.uses[kin][index]
        name, (first, width) = parameters[gradient], measuring.parts[kin]
        module = model.get_submodule(name)
        came_back, dy = graph.of(module)
        seed = measuring.seed(number)
        if kind <= 1:
            was = exact[name].double().reshape(came_back.shape)
            difference = weight_gradient(module, came_back, dy) - weight_gradient(module, was, dy)
            pairs = measure.Pairs(layer_of(module), first, width, *sides(module), seed)
            expected = weights_that_are_looked_at(module, difference, pairs, True)
        elif kind == 2:
            was = exact[name].double()
            expected = (norm_gradients(module, came_back, dy, was)[1] -
                        norm_gradients(module, was, dy, was)[1])[first:first + width]
        else:
            site = session.native.sites()[kin]["name"].rpartition(".")[0]
            norm, was = model.get_submodule(site), exact[site].double()
            x_norm, dy_norm = graph.of(norm)
            error = norm_gradients(norm, x_norm, dy_norm, was)[0] - norm_gradients(norm, was, dy_norm, was)[0]
            assert layers[number] == name
            difference = weight_gradient(module, came_back, error)
            pairs = measure.Pairs(layer_of(module), first, width, *sides(module)[::-1], seed)
            expected = weights_that_are_looked_at(module, difference, pairs, False)
        assert batches == 1 and values == max(1, (expected != 0).sum().item())
        size = expected.square().mean().sqrt().item()
        assert size > 0
        assert (sums.double() - expected).abs().max().item() < tolerance * size, (name, kind)
        seen.add((name, kind))
    return seen


def conv1d():
    return nn.Sequential(nn.Conv1d(3, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU(),
                         nn.Conv1d(16, 24, 5, 2, 2), nn.BatchNorm1d(24), nn.ReLU(), nn.Flatten(), nn.Linear(192, 8))


def depthwise():
    return nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
                         nn.Conv2d(32, 32, 5, padding=2, groups=32), nn.BatchNorm2d(32), nn.ReLU(),
                         nn.Conv2d(32, 64, 3, padding=2, dilation=2, groups=32), nn.BatchNorm2d(64), nn.ReLU(),
                         nn.Conv2d(64, 16, 1), nn.BatchNorm2d(16), nn.ReLU())


def linear():
    return nn.Sequential(nn.Flatten(2), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, 48), nn.ReLU(), nn.Flatten(),
                         nn.Linear(144, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))


CASES = {"convolutions": (network, 8), "depthwise": (depthwise, 11), "rows": (conv1d, 6), "linear": (linear, 5)}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_it_is_what_pytorch_computes(case, channels_last, device):
    """Backward with what comes back less backward with what was there, for every weight that is looked at."""
    make, least = CASES[case]
    model = make().to(device)
    images = batch(device, 24)[0]
    images = images[:, :, 0] if case == "rows" else images
    if channels_last:
        if images.dim() < 4:
            pytest.skip("a row has one order")
        images, model = (it.to(memory_format=torch.channels_last) for it in (images, model))
    session, optimizer = learn(model, images, error_rel=0.2)
    seen = set()
    for _ in range(12):
        loss = loss_of(model, images)
        graph = Graph(loss)
        loss.backward()
        seen |= check_measured(session, model, images, graph, 1e-3)
        optimizer.step()
        optimizer.zero_grad()
    assert len(seen) >= least, seen

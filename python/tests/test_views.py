# SPDX-License-Identifier: Apache-2.0
"""Views: what comes back has the values that the view had, and memory that several operations save is held once."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import Program, activation, assert_within, attach, nodes, rms, total

ERROR = 0.3


def apply_layer(x):
    """A layer whose weight fits: linear for matrices and rows of them, a convolution for maps."""
    if x.dim() == 4:
        return F.conv2d(x, torch.ones(3, x.shape[1], 1, 1, device=x.device, requires_grad=True))
    return F.linear(x, torch.ones(3, x.shape[-1], device=x.device, requires_grad=True))


def saved_inputs(*outputs):
    """What the layers behind the outputs have saved, in this order."""
    def saved(output):
        for node in nodes(output):
            for name in ("_saved_input", "_saved_mat1", "_saved_self"):
                if node.name().startswith(("Conv", "Addmm", "Mm")) and hasattr(node, name):
                    return getattr(node, name)

    return [saved(output) for output in outputs]


MATRICES = {  # of 64 x 64
    "whole": lambda x: x,
    "transposed": lambda x: x.t(),
    "rows": lambda x: x[8:40],
    "columns": lambda x: x[:, 16:48],
    "every other row": lambda x: x[::2],
    "transposed columns": lambda x: x[:, 16:48].t(),
    "one row for all": lambda x: x[3:4].expand(64, 64),
    "one column for all": lambda x: x[:, 3:4].expand(64, 64),
    "behind an offset": lambda x: x.view(-1)[5:5 + 60 * 64].view(60, 64),
    "reshaped": lambda x: x.view(32, 128),
    "three dimensions": lambda x: x.view(4, 16, 64),
    "turned": lambda x: x.view(4, 16, 64).transpose(0, 1),
    "overlapping windows": lambda x: x.view(-1).unfold(0, 64, 32),
}
MAPS = {  # of 4 x 8 x 16 x 16
    "whole": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "some channels": lambda x: x[:, 2:7],
    "some channels, last": lambda x: x.contiguous(memory_format=torch.channels_last)[:, 2:7],
    "a crop": lambda x: x[:, :, 2:14, 3:15],
    "a crop, channels last": lambda x: x.contiguous(memory_format=torch.channels_last)[:, :, 2:14, 3:15],
    "turned": lambda x: x.transpose(2, 3),
    "one for all": lambda x: x[:1].expand(4, 8, 16, 16),
    "images": lambda x: x[1:3],
    "every other pixel": lambda x: x[:, :, ::2, ::2],
}
VIEWS = [pytest.param((64, 64), view, id=f"matrix, {name}") for name, view in MATRICES.items()]
VIEWS += [pytest.param((4, 8, 16, 16), view, id=f"maps, {name}") for name, view in MAPS.items()]
WRITABLE = [one for one in VIEWS if 0 not in one.values[1](torch.empty(one.values[0])).stride()]


@pytest.mark.parametrize("shape, view", VIEWS)
def test_view(shape, view, device):
    """Alone, and after the whole tensor was saved; gradients are then those of the values within the bound."""
    for of_whole in (False, True):
        model = Program(lambda x: (apply_layer(x) if of_whole else None, apply_layer(view(x))))
        attach(model, error_rel=ERROR)
        x = activation(*shape, device=device)
        _, output = model(x)
        (back,) = saved_inputs(output)
        expected = view(x)
        is_held = expected.dim() != 3 or expected.is_contiguous()  # else linear makes a copy of its own, and saves that
        assert_within(back.reshape(expected.shape), expected, ERROR * max(rms(expected), rms(x)), is_held)
        output.sum().backward()


@pytest.mark.parametrize("shape, view", WRITABLE)
def test_relu_in_place_on_a_view(shape, view, device):
    """The result of the ReLU is a part of a tensor, which is saved as a view with gaps. Exact mode holds it too."""
    def program(x):
        y = x * 2
        view(y).relu_()
        return y

    def gradient(module):
        x = values.clone().requires_grad_()
        module(x).mul(weights).sum().backward()
        return x.grad

    values, weights = torch.randn(shape, device=device), torch.randn(shape, device=device)
    plain, model = gradient(program), Program(program)
    attach(model, exact=True)
    assert torch.equal(gradient(model), plain)


SAME_MEMORY = {
    "transposed": lambda x: x.t(),
    "reshaped": lambda x: x.view(32, 128),
    "three dimensions": lambda x: x.view(4, 16, 64),
    "detached and joined again": lambda x: x.view_as(x),
}
OTHER_MEMORY = {
    "rows": lambda x: x[:32],
    "columns": lambda x: x[:, :32],
    "a copy": lambda x: x.clone(),
    "behind an offset": lambda x: x[1:],
}


@pytest.mark.parametrize("view", SAME_MEMORY)
def test_same_memory_is_held_once(view, device):
    model = Program(lambda x: [apply_layer(part) for part in (x, SAME_MEMORY[view](x), x)])
    session = attach(model)
    outputs = model(activation(64, 64, device=device))
    assert total(session, "entries") == 1
    del outputs
    assert total(session, "entries") == 0


@pytest.mark.parametrize("view", OTHER_MEMORY)
def test_other_memory_is_held_apart(view, device):
    model = Program(lambda x: [apply_layer(part) for part in (x, OTHER_MEMORY[view](x))])
    session = attach(model)
    outputs = model(activation(64, 64, device=device))
    assert total(session, "entries") == 2, outputs


def test_relu_and_the_layers_behind_it_share(device):
    model = Program(lambda a, b, x: (a(F.relu(x)), b(F.relu(x * 2).t())), nn.Linear(64, 3), nn.Linear(64, 3)).to(device)
    session = attach(model)
    outputs = model(activation(64, 64, device=device))
    assert total(session, "entries") == 2, outputs


def test_views_with_gaps_at_one_address(device):
    """Same address, type, version and number of values; one lies side by side, the other does not."""
    views = (lambda x: x.view(-1)[:2048].view(64, 32), lambda x: x[:, :32])
    for first, second in (views, views[::-1]):
        model = Program(lambda x: (apply_layer(first(x)), apply_layer(second(x))))
        attach(model, error_rel=ERROR)
        x = activation(64, 64, device=device)
        for back, expected in zip(saved_inputs(*model(x)), (first(x), second(x))):
            assert_within(back, expected, ERROR * rms(expected))


class At(torch.autograd.Function):
    """A result of `value` everywhere, in memory that is given."""

    @staticmethod
    def forward(ctx, ones, memory, value):
        memory[:] = value
        return torch.from_numpy(memory)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None, None


def test_memory_that_was_given_out_again(device):
    """Activations that are gone after use: their memory is the next one's. Each graph has its own values."""
    model = Program(apply_layer)
    attach(model, error_rel=ERROR)
    memory, ones = np.empty((64, 64), np.float32), torch.ones(64, 64, device=device, requires_grad=True)
    values, outputs = [1.0, -2.0, 3.0, -4.0, 5.0, -6.0], []
    for value in values:
        # PyTorch's memory of a GPU is given out again at once; that of a CPU when the C library likes
        outputs.append(model(ones * value if device.type == "cuda" else At.apply(ones, memory, value)))
    for value, back in zip(values, saved_inputs(*outputs)):
        assert (back - value).abs().max() <= ERROR * abs(value) * 1.001


def test_contents_that_changed_between_two_uses(device):
    """One address, one shape, another version. The later use is the one that plain PyTorch allows to go back to."""
    def program(x):
        y = x * 1
        first = apply_layer(y)
        y.add_(10)
        return first, apply_layer(y), y

    model = Program(program)
    session = attach(model, error_rel=ERROR)
    _, second, y = model(torch.randn(64, 64, device=device).requires_grad_())
    assert_within(saved_inputs(second)[0], y, ERROR * rms(y))
    assert total(session, "entries") == 2

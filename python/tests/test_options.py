# SPDX-License-Identifier: Apache-2.0
"""Options: which modules are held, and how; what is not an option is refused before anything happens."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import Program, activation, assert_within, attach, rms, same_bits, total


def model(device):
    return nn.Sequential(nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.Sequential(nn.Linear(64, 64), nn.ReLU()),
                         nn.Linear(64, 4)).to(device)


def held(network, device, **options):
    """How many tensors are held: 3 of this network's if all are, as layers share them with the ReLUs before them."""
    session = attach(network, **options)
    output = network(activation(64, 64, device=device))
    count = total(session, "entries")
    session.detach()
    return count, output


@pytest.mark.parametrize("options, count", [
    ({}, 3),
    ({"exclude": "0"}, 2),            # the layer behind it holds the ReLU's result
    ({"exclude": ["0", "1"]}, 1),     # and the last layer the second one's
    ({"exclude": ["0", "1", "2"]}, 0),
    ({"exclude": "*"}, 0),
    ({"exclude": [nn.Sequential]}, 0),
    ({"include": "1.1"}, 1),
    ({"include": ["0.*"]}, 2),
    ({"include": "*", "exclude": "*"}, 0),
    ({"forms": {"*": "exact"}}, 0),
    ({"forms": {"*": "lossless"}}, 2),  # the ReLUs' results
    ({"exact": True}, 2),
    ({"exact": True, "forms": {"2": "eb:0.1"}}, 2),
    ({"min_bytes": "1MiB"}, 0),
    ({"min_bytes": "16 KiB"}, 3),
    ({"min_bytes": 16385}, 0),
])
def test_what_is_held(options, count, device):
    assert held(model(device), device, **options)[0] == count


def test_exclude_wins_over_include(device):
    assert held(model(device), device, include="0.*", exclude="0.1")[0] == 1


def test_a_module_itself(device):
    network = model(device)
    assert held(network, device, exclude=[network])[0] == 0
    assert held(network, device, include=[network[1]])[0] == 2


@pytest.mark.parametrize("form, bound", [("eb:0.05", 0.05), ("eb:1.5", 1.5), ("eb", 0.3), ("exact", 0.0)])
def test_form_of_a_module(form, bound, device):
    layer = nn.Linear(64, 4).to(device)
    network = Program(lambda layer, x: layer(x), layer)
    x = activation(64, 64, device=device)
    attach(network, forms={"parts.0": form})
    back = network(x).grad_fn._saved_mat1
    assert_within(back, x, bound * rms(x), is_held=bound > 0)
    assert bound == 0 or (back - x).abs().max() > 0.8 * bound * rms(x)


def test_lossless_form_is_exact(device):
    network = nn.Sequential(nn.Sequential(nn.ReLU()))
    session = attach(network, forms={"0": "lossless"})
    y = network(activation(64, 64, device=device))
    assert total(session, "entries") == 1 and same_bits(y.grad_fn._saved_result, y)


@pytest.mark.parametrize("codec", ["eb", "zvc", "raw", "group:2", "group:4", "group:8", "pool:2", "dct"])
def test_codec(codec, device):
    """Whatever it is: a ReLU's mask is the same, since its backward pass is wrong otherwise, not only inaccurate."""
    network = Program(F.relu)
    session = attach(network, codec=codec)
    x = torch.randn(4, 8, 16, 16, device=device).requires_grad_()
    y = network(x * 1)
    back = y.grad_fn._saved_result
    assert torch.equal(back > 0, y > 0)
    y.sum().backward()
    assert torch.equal(x.grad, (x > 0).float())
    assert total(session, "entries") == 0


@pytest.mark.parametrize("options", [
    {"error_rel": 0}, {"error_rel": -1}, {"error_rel": 5}, {"error_rel": float("nan")}, {"codec": "zip"},
    {"codec": "group:3"}, {"codec": "eb:1"}, {"exclude": "no.such.module"}, {"include": "nothing*"},
    {"forms": {"9": "eb"}}, {"forms": {"0": "zip"}}, {"min_bytes": "many"}, {"error": 0.1},
])
def test_what_is_refused(options, device):
    network = model(device)
    with pytest.raises((ValueError, TypeError)):
        attach(network, **options)
    attributes = {name for name, value in network.__dict__.items() if value is not None}
    assert attributes == {name for name, value in model(device).__dict__.items() if value is not None}

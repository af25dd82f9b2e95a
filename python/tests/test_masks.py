# SPDX-License-Identifier: Apache-2.0
"""Dropouts: their masks are held at a bit for each value, without loss; PyTorch's random numbers stay what they are."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import Program, attach, same_bits, total


def compare(device, function, dtype=torch.float32):
    def run(module):
        torch.manual_seed(3)
        x = values.clone().requires_grad_()
        y = module(x * 1)
        (y * weights).sum().backward()
        return y.detach(), x.grad, torch.rand(4, device=device)

    values = torch.randn(4, 8, 16, 16, device=device, dtype=dtype)
    weights = torch.randn(4, 8, 16, 16, device=device, dtype=dtype)
    plain, model = run(function), Program(function)
    session = attach(model)
    assert all(same_bits(*pair) for pair in zip(run(model), plain))
    assert total(session, "entries") == 0
    return session


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9, 0.9999])
def test_dropout(p, inplace, dtype, device):
    session = compare(device, lambda x: F.dropout(x, p, True, inplace), dtype)
    assert total(session, "saves") == (0 if inplace and device.type == "cuda" else 1)  # there its mask is of numbers


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_all_or_nothing(p, device):
    compare(device, lambda x: F.dropout(x, p, True))


@pytest.mark.parametrize("function", [F.dropout1d, F.dropout2d, F.alpha_dropout, F.feature_alpha_dropout])
def test_other_dropouts(function, device):
    shape = (8, 16, 16) if function is F.dropout1d else (4, 8, 16, 16)
    compare(device, lambda x: function(x.view(-1, *shape[-2:]) if len(shape) == 3 else x, 0.3, True).view(4, 8, 16, 16))


def test_a_bit_for_each_value(device):
    model = nn.Dropout(0.5)
    session = attach(model)
    x = torch.randn(64, 1024, device=device, requires_grad=True)
    y = model(x * 1)
    assert 64 * 1024 / 8 <= total(session, "stored_bytes") < 64 * 1024 / 8 * 1.1
    y.sum().backward()


def test_not_in_training(device):
    model = nn.Dropout(0.5).eval()
    session = attach(model)
    x = torch.randn(64, 64, device=device, requires_grad=True)
    y = model(x * 1)
    y.sum().backward()
    assert total(session, "saves") == 0 and torch.equal(x.grad, torch.ones_like(x))


def test_two_dropouts_have_their_own_masks(device):
    compare(device, lambda x: F.dropout(F.dropout(x, 0.5, True), 0.25, True))

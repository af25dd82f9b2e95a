# SPDX-License-Identifier: Apache-2.0
"""Default mode: gradients are off by what theory says, and networks train."""
import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import Program, attach, gradients, same_bits

SEEDS = range(3)


def relative_error(result, expected):
    names = [name for name in expected if expected[name] is not None]
    error = sum((result[name].double() - expected[name].double()).square().sum() for name in names)
    return math.sqrt(error / sum(expected[name].double().square().sum() for name in names))


@pytest.mark.parametrize("error_rel", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_weights_of_one_convolution(seed, error_rel, device):
    """
    Errors spread evenly over +-error_rel * rms have a deviation of error_rel / sqrt(3) * rms. Where what comes from
    behind is random, neither signal nor error adds up, so the gradient's relative error is the same: 0.577 * error_rel.
    Measured 0.53 to 0.59.
    """
    def gradient(model):
        model.zero_grad()
        model(x * 1).backward(dy)
        return {"weight": model.parts[0].weight.grad.clone()}

    torch.manual_seed(seed)
    model = Program(lambda conv, x: conv(F.relu(x)), nn.Conv2d(16, 16, 3)).to(device)
    x, dy = torch.randn(8, 16, 16, 16, device=device).requires_grad_(), torch.randn(8, 16, 14, 14, device=device)
    plain = gradient(model)
    attach(model, error_rel=error_rel)
    error = relative_error(gradient(model), plain) / error_rel
    assert 0.48 < error < 0.67


def network():
    def block(before, after, act):
        return [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), act]

    return nn.Sequential(*block(3, 16, nn.ReLU(True)), *block(16, 32, nn.ReLU()), nn.MaxPool2d(2),
                         *block(32, 32, nn.SiLU()), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def step(model, images, labels):
    model.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    return loss.item(), gradients(model)


@pytest.mark.parametrize("error_rel", [0.03, 0.1, 0.3])
@pytest.mark.parametrize("seed", SEEDS)
def test_all_gradients_of_a_network(seed, error_rel, device):
    """
    In a network a layer's own error (0.577 * error_rel) meets those that batch norms and curves behind it pass on.
    Measured over seeds, bounds and devices: 0.62 to 0.73 * error_rel. Twice or half of that fails.
    """
    torch.manual_seed(seed)
    model = network().to(device)
    images, labels = torch.randn(32, 3, 16, 16, device=device), torch.randint(10, (32,), device=device)
    loss, plain = step(copy.deepcopy(model), images, labels)
    attach(model, error_rel=error_rel)
    compressed_loss, compressed = step(model, images, labels)
    assert compressed_loss == loss  # the forward pass is not touched
    assert 0.5 < relative_error(compressed, plain) / error_rel < 1.0


def test_same_bits_in_every_run(device):
    """And no random number of PyTorch's is used up."""
    images, labels = torch.randn(16, 3, 16, 16, device=device), torch.randint(10, (16,), device=device)
    model, results = network().to(device), []
    for _ in range(2):
        copied = copy.deepcopy(model)
        attach(copied)
        before = torch.get_rng_state()
        results.append([step(copied, images, labels)[1] for _ in range(3)][-1])
        assert torch.equal(torch.get_rng_state(), before)
    assert all(same_bits(results[0][name], results[1][name]) for name in results[0])


def test_a_network_learns_as_well(device):
    """Colours in noise: from 2.3 the loss falls to 0.11, with and without. Over seeds both were within 5 %."""
    def final_loss(model):
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        for index in range(40):
            torch.manual_seed(index)
            labels = torch.randint(10, (32,), device=device)
            images = 0.5 * torch.randn(32, 3, 16, 16, device=device) + patterns[labels]
            loss, _ = step(model, images, labels)
            optimizer.step()
        return loss

    patterns, model = torch.randn(10, 3, 1, 1, device=device), network().to(device)
    plain, compressed = copy.deepcopy(model), copy.deepcopy(model)
    attach(compressed)
    expected = final_loss(plain)
    assert expected < 0.3
    assert final_loss(compressed) == pytest.approx(expected, rel=0.2)

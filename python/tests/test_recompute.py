# SPDX-License-Identifier: Apache-2.0
"""Blocks that are done again in backward: forms={...: "recompute"}."""
import copy
import gc

import pytest
import torch
from torch import nn

import libcomet.torch as comet
from conftest import without_overlaps
from libcomet.torch import recompute


class Block(nn.Module):
    """With what a second pass could get wrong: statistics, dropout, a product of activations."""

    def __init__(self, channels, drop=0.3):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.act, self.gate, self.drop = nn.ReLU(), nn.Conv2d(channels, channels, 1), nn.Dropout(drop)

    def forward(self, x):
        y = self.act(self.norm(self.conv(x)))
        return x + self.drop(y * torch.sigmoid(self.gate(y)))


class Network(nn.Module):
    def __init__(self, blocks=3, channels=16, block=Block):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(*[block(channels) for _ in range(blocks)])
        self.head = nn.Linear(channels, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def train(model, device, steps=3, dtype=None):
    """Losses, gradients, and all that the model has afterwards."""
    torch.manual_seed(5)
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.05), []
    for _ in range(steps):
        x, target = torch.randn(4, 3, 24, 24, device=device), torch.randint(0, 10, (4,), device=device)
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    return losses, gradients, {name: value.clone() for name, value in model.state_dict().items()}


def assert_same(found, wanted):
    assert found[0] == wanted[0]
    for part in (1, 2):
        for name, value in wanted[part].items():
            assert torch.equal(found[part][name], value), name


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_exact_is_bit_equal(device, dtype):
    """Dropout draws the same numbers, batch norms count each batch once, autocast is as it was."""
    model = Network().to(device)
    plain = train(copy.deepcopy(model), device, dtype=dtype)
    with comet.compress(model, exact=True, min_bytes=1, forms={"blocks.*": "recompute"}) as session:
        found = train(model, device, dtype=dtype)
        assert [block.calls for block in session._blocks if block.module in set(model.blocks)] == [3, 3, 3]
    assert_same(found, plain)


def test_inner_blocks_are_left_to_the_outermost(device):
    model = Network(1).to(device)
    with comet.compress(model, exact=True, min_bytes=1, forms={"blocks*": "recompute"}) as session:
        train(model, device, steps=1)
        assert {block.name for block in session._blocks if block.calls} == {"blocks"}


def test_compressed_equals_compressed(device):
    """The second pass holds what the first one would have held: gradients are the same with and without it."""
    model = Network(2).to(device)
    results = []
    for forms in ({}, {"blocks.*": "recompute"}):
        copied = copy.deepcopy(model)
        with comet.compress(copied, error_rel=0.2, control="fixed", min_bytes=1, head_bytes=0, forms=forms):
            results.append(train(copied, device, steps=1))
    assert_same(*results)


def held_after_forward(model, device, forms):
    """Values that autograd keeps as they are, those of a model's parameters not counted."""
    x = torch.randn(8, 3, 32, 32, device=device)
    with comet.compress(model, error_rel=0.3, control="fixed", min_bytes=1, head_bytes=0, forms=forms) as session:
        loss = model(x).sum()
        raw = sum(stats["raw_bytes"] for key, stats in session.stats().items() if isinstance(key, int))
        loss.backward()
    return raw


def test_less_is_held_between_the_passes(device):
    model = Network(4).to(device)
    without = held_after_forward(model, device, {})
    blocks = held_after_forward(model, device, {"blocks.*": "recompute"})
    inputs = 4 * 8 * 16 * 32 * 32 * 4  # of four blocks
    assert blocks <= inputs + 8 * 16 * 4  # and the head's
    assert without > 2.5 * blocks


def test_backward_twice(device):
    model = Network(2).to(device)
    x = torch.randn(4, 3, 16, 16, device=device)
    with comet.compress(model, exact=True, min_bytes=1, forms={"blocks.*": "recompute"}):
        loss = model(x).sum()
        first = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        second = torch.autograd.grad(loss, list(model.parameters()))
    for a, b in zip(first, second):
        assert torch.equal(a, b)


class ChangesInput(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.act, self.conv = nn.ReLU(inplace=True), nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return self.conv(self.act(x))


def test_a_block_that_writes_to_its_input(device):
    """The input is held as it was before the block."""
    model = without_overlaps(Network(2, block=ChangesInput), device)
    plain = train(copy.deepcopy(model), device)
    with comet.compress(model, exact=True, min_bytes=1, forms={"blocks.*": "recompute"}):
        found = train(model, device)
    assert_same(found, plain)


class Moody(nn.Module):
    """Does something else when it is called again."""

    def __init__(self, channels):
        super().__init__()
        self.conv, self.calls = nn.Conv2d(channels, channels, 1), 0

    def forward(self, x):
        self.calls += 1
        return self.conv(x) if self.calls == 1 else torch.tanh(self.conv(torch.tanh(x)))


def test_a_block_that_does_something_else_is_an_error(device):
    model = Network(1, block=Moody).to(device)
    x = torch.randn(2, 3, 16, 16, device=device)
    with comet.compress(model, exact=True, min_bytes=1, forms={"blocks.0": "recompute"}):
        loss = model(x).sum()
        with pytest.raises(RuntimeError, match="blocks.0 saved"):
            loss.backward()


def test_nothing_is_left(device):
    model = Network(2).to(device)
    with comet.compress(model, error_rel=0.3, control="fixed", min_bytes=1, forms={"blocks.*": "recompute"}) as session:
        for backward in (True, False, True):
            loss = model(torch.randn(4, 3, 16, 16, device=device)).sum()
            if backward:
                loss.backward()
            del loss
        gc.collect()
        assert all(stats["entries"] == 0 for key, stats in session.stats().items() if isinstance(key, int))


def test_which_blocks_a_budget_may_do_again():
    torchvision = pytest.importorskip("torchvision")
    model = torchvision.models.efficientnet_b0(weights=None)
    assert {type(block).__name__ for block in recompute.blocks_of(model)} == {"MBConv"}
    model = torchvision.models.resnet50(weights=None)
    assert len(recompute.blocks_of(model)) == 3 + 4 + 6 + 3
    assert recompute.blocks_of(torchvision.models.vgg11(weights=None)) == []

# SPDX-License-Identifier: Apache-2.0
"""A thousand steps take no more memory than a few: trained, given up without a backward pass, ended by exceptions."""
import gc
import os
import sys
import threading

import pytest
import torch
from torch import nn

from conftest import attach, total

STEPS, WARM_UP = 1000, 200
ALLOWED = 4 << 20  # bytes that may come: the C library keeps some. 20 KB a step, of 1 MB that is saved, would be 16 MB


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def allocated(device):
    return torch.cuda.memory_allocated() if device.type == "cuda" else 0


def network():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(True), nn.MaxPool2d(2),
                         nn.Dropout(0.1), nn.Conv2d(16, 16, 3, padding=1), nn.SiLU(), nn.Sigmoid(), nn.AvgPool2d(8),
                         nn.Flatten(), nn.Linear(16, 4), nn.Softmax(1))  # sigmoid and softmax save what they return


def train(model, x):
    model(x).square().mean().backward()


def give_up(model, x):
    model(x)


def fail(model, x):
    with pytest.raises(ValueError):
        model(x)


def go_twice(model, x):
    loss = model(x).square().mean()
    loss.backward(retain_graph=True)
    loss.backward()


def raise_error(*_):
    raise ValueError


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("step", [train, give_up, fail, go_twice])
def test_steps(step, exact, device):
    model = network().to(device)
    session = attach(model, exact=exact)
    if step is fail:
        model[6].register_forward_hook(raise_error)
    x = torch.randn(8, 3, 16, 16, device=device)
    for index in range(STEPS):
        step(model, x)
        if index == WARM_UP:
            gc.collect()
            before, places, on_gpu = resident(), len(session.native.sites()), allocated(device)
    gc.collect()
    assert total(session, "entries") == 0
    assert len(session.native.sites()) == places
    assert resident() - before < ALLOWED
    assert allocated(device) - on_gpu < 1 << 16


def test_without_the_garbage_collector(device):
    """Large training jobs switch it off: a step leaves no cycle behind."""
    model = network().to(device)
    attach(model)
    x = torch.randn(8, 3, 16, 16, device=device)
    for step in (train, give_up):
        for index in range(60):
            step(model, x)
            if index == 10:
                gc.collect()
                gc.disable()
                before = len(gc.get_objects())
        after = len(gc.get_objects())
        gc.enable()
        assert after - before < 40, f"{after - before} objects in 49 steps"


def test_batches_of_many_sizes(device):
    """What is known of a place is known for each size: it is bounded by how many there are, and small."""
    model = network().to(device)
    session = attach(model)
    for index in range(300):
        train(model, torch.randn(1 + index % 30, 3, 16, 16, device=device))
        if index == 150:
            before, places = resident(), len(session.native.sites())
    assert len(session.native.sites()) == places
    assert resident() - before < ALLOWED


class Twice(nn.Module):
    """What two layers share is decoded once, for both."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(2))

    def forward(self, x):
        x = x * 1
        return self.norms[0](x) + self.norms[1](x)


def test_threads(device):
    """Tensors that were decoded are let go of, also when threads come in between each other."""
    model = nn.Sequential(Twice(), Twice(), nn.ReLU(), Twice()).to(device)
    session = attach(model)

    def work():
        for _ in range(15):
            train(model, torch.randn(8, 8, 64, 64, device=device))

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # as many changes of threads as can be had
    try:
        for _ in range(2):
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(switch)
    gc.collect()
    assert total(session, "entries") == 0
    left = [one for one in gc.get_objects() if type(one) is torch.Tensor and one.numel() >= 8 * 8 * 64 * 64]
    assert len(left) <= 1, f"{len(left)} tensors that nobody owns"  # one: the last that was decoded

# SPDX-License-Identifier: Apache-2.0
"""own_pool: streams lie in a pool of PyTorch's memory of their own."""
import contextlib
import gc

import pytest
import torch
from torch import nn

import libcomet.torch as comet
from conftest import NO_GPU
from libcomet.torch import pool

MIB = 1 << 20
NO_POOL = NO_GPU or pool.obstacle()


class MadeUp:
    """PyTorch's memory of a GPU: `room` bytes in a pool, the rest in the common one."""

    def __init__(self, monkeypatch, room):
        self.room, self.inside, self.pools, self.asked = room, False, 0, []
        monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
        monkeypatch.setattr(torch.cuda, "MemPool", self.make, raising=False)
        monkeypatch.setattr(torch.cuda, "use_mem_pool", self.use, raising=False)
        monkeypatch.setattr(torch.cuda, "caching_allocator_alloc", self.take)

    def make(self, use_on_oom):
        assert use_on_oom
        self.pools += 1
        return object()

    @contextlib.contextmanager
    def use(self, used):
        self.inside = True
        try:
            yield
        finally:
            self.inside = False

    def take(self, count, index, stream):
        self.asked.append((count, index, stream, self.inside))
        if self.inside and count > self.room:
            raise torch.cuda.OutOfMemoryError
        self.room -= count if self.inside else 0
        return 4096 + self.inside


def test_the_common_pool_is_asked_where_the_own_one_cannot_grow(monkeypatch):
    gpu, pools = MadeUp(monkeypatch, 100), pool.Pools()
    assert [pools.take(60, 0, 7), pools.take(60, 0, 7), pools.take(40, 1, 9)] == [4097, 4096, 4097]
    assert gpu.asked == [(60, 0, 7, True), (60, 0, 7, True), (60, 0, 7, False), (40, 1, 9, True)]
    assert gpu.pools == 2
    pools.close()
    assert pools.take(10, 0, 7) == 4096 and gpu.asked[-1] == (10, 0, 7, False)


@pytest.mark.skipif(not pool.obstacle(), reason="this PyTorch has such pools")
def test_a_pytorch_without_pools():
    with pytest.raises(ValueError, match="own_pool"):
        comet.attach(nn.Linear(4, 4), own_pool=True)


@pytest.mark.skipif(bool(NO_POOL), reason=f"no pool: {NO_POOL}")
@pytest.mark.parametrize("memory", [None, "1GiB"])
def test_on_a_gpu(memory):
    """Gradients are those without; statistics are true; nothing stays behind."""
    layers = [layer for _ in range(6) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())]
    model, images = nn.Sequential(*layers).cuda(), torch.randn(32, 16, 64, 64, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.0)

    def gradients(**options):
        session = comet.attach(model, optimizer, control="fixed", segment_bytes=2 * MIB, head_bytes=0, **options)
        for _ in range(3):
            optimizer.zero_grad()
            model(images).square().mean().backward()
        output, held = model(images), session.stats()[0]
        torch.cuda.synchronize()
        found = [parameter.grad.clone() for parameter in model.parameters()]
        sizes = [sum(part["total_size"] for part in one.snapshot()) for one in session._pools._pools.values()] \
            if session._pools else []
        session.detach()
        assert output is not None  # streams were held
        return found, held, sizes

    plain, _, _ = gradients(memory=memory)
    gc.collect()
    torch.cuda.empty_cache()
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    found, held, sizes = gradients(memory=memory, own_pool=True)
    assert all(torch.equal(one, other) for one, other in zip(found, plain))
    assert len(sizes) == 1 and sizes[0] >= held["segment_bytes"] + held["workspace_bytes"] > 0
    del found
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == allocated and torch.cuda.memory_reserved() == reserved


@pytest.mark.skipif(bool(NO_POOL), reason=f"no pool: {NO_POOL}")
def test_less_is_taken_from_the_driver():
    """Where there is not much more than activations and streams, PyTorch takes less than half as much again as it has
    allocated at its peak."""
    torchvision = pytest.importorskip("torchvision")
    model = torchvision.models.resnet18(weights=None).cuda()
    images = torch.randn(128, 3, 128, 128, device="cuda")
    for _ in range(2):  # libraries take memory
        model(images[:8]).sum().backward()
    gc.collect()
    torch.cuda.empty_cache()
    session = comet.attach(model, own_pool=True)
    for _ in range(6):
        model.zero_grad()
        model(images).sum().backward()
    torch.cuda.reset_peak_memory_stats()
    model.zero_grad()
    model(images).sum().backward()
    assert torch.cuda.max_memory_reserved() < 1.5 * torch.cuda.max_memory_allocated()
    session.detach()

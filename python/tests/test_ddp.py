# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel over two processes (gloo): exact mode gives DDP's own gradients, default mode trains."""
import copy
import os

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from conftest import attach, gradients, make_deterministic, same_bits, total

PROCESSES = 2

pytestmark = pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="PyTorch without gloo")


def network():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(True), nn.MaxPool2d(2),
                         nn.Conv2d(8, 8, 3, padding=1), nn.SiLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(32, 4))


def batch(seed, device):
    """Each process has its own. Labels can be read off the images' mean colours."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (16,), generator=generator)
    images = 0.5 * torch.randn(16, 3, 16, 16, generator=generator)
    images[:, 0] += (labels % 2 * 2 - 1).view(-1, 1, 1)
    images[:, 1] += (labels // 2 * 2 - 1).view(-1, 1, 1)
    return images.to(device), labels.to(device)


def train(model, rank, device, steps):
    """All gradients of the last step, all losses."""
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.03, momentum=0.9), []
    for step in range(steps):
        images, labels = batch(PROCESSES * step + rank, device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return gradients(model), losses


def work(rank, folder, device):
    """What one process does; it writes what it has found out."""
    torch.set_num_threads(1)
    make_deterministic()
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=PROCESSES)
    torch.manual_seed(0)
    model, result = network().to(device), {}
    plain, _ = train(DistributedDataParallel(copy.deepcopy(model)), rank, device, 3)
    for what in ("wrapper", "module"):  # either may be attached to
        wrapped = DistributedDataParallel(copy.deepcopy(model))
        session = attach(wrapped if what == "wrapper" else wrapped.module, exact=True)
        exact, _ = train(wrapped, rank, device, 3)
        result[f"{what}: equal"] = all(same_bits(exact[name], plain[name]) for name in plain)
        result[f"{what}: held"] = total(session, "saves") > 0 and total(session, "entries") == 0
    wrapped = DistributedDataParallel(copy.deepcopy(model))
    session = attach(wrapped)
    default, losses = train(wrapped, rank, device, 30)
    result["other gradients"] = not all(same_bits(default[name], plain[name]) for name in plain)
    result["losses"] = losses
    result["weights"] = {name: value.cpu() for name, value in wrapped.named_parameters()}
    torch.save(result, os.path.join(folder, f"{rank}.pt"))
    dist.destroy_process_group()


def test_two_processes(tmp_path, device):
    torch.multiprocessing.spawn(work, (str(tmp_path), str(device)), nprocs=PROCESSES)
    results = [torch.load(tmp_path / f"{rank}.pt") for rank in range(PROCESSES)]
    for result in results:
        for check in ("wrapper: equal", "wrapper: held", "module: equal", "module: held", "other gradients"):
            assert result[check], check
        assert result["losses"][0] > 1 and result["losses"][-1] < 0.5, result["losses"]
    for name, value in results[0]["weights"].items():
        assert same_bits(value, results[1]["weights"][name]), f"{name}: processes do not agree any more"

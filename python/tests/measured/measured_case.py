# SPDX-License-Identifier: Apache-2.0
"""What tests of measured errors share: networks, sessions that measure in every step, PyTorch's own backward passes."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import attach, nodes
from libcomet.torch.control import Control

ALWAYS = {"every": 1, "warmup": 10**6}  # statistics of every iteration, bounds as they are without a controller


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(Control, "strict", True)
    monkeypatch.setattr(Control, "_rest_longer", lambda *_: None)  # in every iteration, also where nothing moves
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


# ---- networks ----


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


class Blocks(nn.Module):
    """Two blocks of a transformer, and the inverted residual of a convolutional network."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1), nn.BatchNorm2d(24), nn.SiLU())
        self.depthwise = nn.Sequential(nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.BatchNorm2d(24), nn.SiLU())
        self.gate, self.project = nn.Conv2d(24, 24, 1), nn.Conv2d(24, 32, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(32, 64) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(64, 32) for _ in range(2))
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        x = self.depthwise(self.stem(x))
        x = self.project(x * self.gate(F.adaptive_avg_pool2d(x, 1)).sigmoid()).flatten(2).transpose(1, 2)
        for norm, up, down in zip(self.norms, self.up, self.down):
            x = x + down(F.gelu(up(norm(x))))
        return self.head(x.mean(1))


def even(count, seed, device):
    """Images with an even background, the same in all of them: all of it has the same error."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.tensor([0.7, -0.4, 0.2]).view(1, 3, 1, 1).expand(count, 3, 16, 16).clone()
    images[:, :, 6:10, 6:10] = torch.randn(count, 3, 4, 4, generator=generator)
    return images.to(device)


def away(model, x):
    """All gradients point one way."""
    return (model(x).float() - 3).square().mean()


def measured(session):
    if session.control._pending:
        session.control._observe()
    return {(row["site"], row["use"]): row for row in session.control.measured()}


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

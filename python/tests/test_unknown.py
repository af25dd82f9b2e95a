# SPDX-License-Identifier: Apache-2.0
"""Default mode: an operation that is not known saves what it saves as it is; its gradient is PyTorch's, bit by bit."""
import pytest
import torch
import torch.nn.functional as F

from conftest import Program, attach, same_bits, total


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        return 3 * ctx.saved_tensors[0] ** 2 * gradient


UNKNOWN = {
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "mul": lambda x: x * x.flip(0),
    "few values for each factor": lambda x: x.view(64, 8, 8) * x.view(64, 8, 8)[:, :, :1],
    "scalar": lambda x: (x * 2) ** 3,
    "div": lambda x: x / (x.flip(0).abs() + 1),
    "pow": lambda x: x**3,
    "matmul": lambda x: x @ x.t(),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(4, 16, 64)] * 3),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(len(x), device=x.device) % x.shape[1]),
    "leaky_relu": F.leaky_relu,
    "hardtanh": F.hardtanh,
    "normalize": F.normalize,
    "custom function": Cube.apply,
}


@pytest.mark.parametrize("operation", UNKNOWN)
def test_operation_that_is_not_known_is_exact(operation, device):
    def gradient(model):
        x = values.clone().requires_grad_()
        y = model(x * 1)
        (y * torch.linspace(-1, 1, y.numel(), device=device).view_as(y)).sum().backward()
        return x.grad

    values = torch.randn(64, 64, device=device)
    plain, model = gradient(UNKNOWN[operation]), Program(UNKNOWN[operation])
    session = attach(model)
    assert same_bits(gradient(model), plain)
    assert total(session, "saves") == 0 and session.stats()["kept_tensors"] > 0

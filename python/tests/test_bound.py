# SPDX-License-Identifier: Apache-2.0
"""Default mode: what comes back is within the bound of its use. `grad_fn._saved_...` asks for it as backward does."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import Program, activation, assert_within, attach, deviations, node_called, rms, same_bits

ERROR = 0.3
DTYPES = [torch.float32, torch.bfloat16]

LAYERS = {
    "conv1d": (lambda: nn.Conv1d(8, 4, 3), (4, 8, 64), "Convolution", "_saved_input"),
    "conv2d": (lambda: nn.Conv2d(8, 4, 3), (4, 8, 16, 16), "Convolution", "_saved_input"),
    "conv3d": (lambda: nn.Conv3d(8, 4, 3), (2, 8, 6, 6, 6), "Convolution", "_saved_input"),
    "transposed": (lambda: nn.ConvTranspose2d(8, 4, 3), (4, 8, 16, 16), "Convolution", "_saved_input"),
    "grouped": (lambda: nn.Conv2d(8, 8, 3, groups=8), (4, 8, 16, 16), "Convolution", "_saved_input"),
    "linear": (lambda: nn.Linear(64, 4), (32, 64), "Addmm", "_saved_mat1"),
    "tokens": (lambda: nn.Linear(64, 4), (4, 8, 64), "Addmm", "_saved_mat1"),
    "no bias": (lambda: nn.Linear(64, 4, bias=False), (32, 64), "Mm", "_saved_self"),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16"])
@pytest.mark.parametrize("layer", LAYERS)
def test_input_of_a_layer(layer, dtype, device):
    make, shape, name, saved = LAYERS[layer]
    model = make().to(device, dtype)
    x = activation(*shape, device=device, dtype=dtype)
    x = torch.where(torch.rand_like(x) < 0.3, 0, x)
    attach(model, error_rel=ERROR)
    for step in range(3):  # later steps use what the first has learnt
        y = model(x)
        back = getattr(node_called(name, y), saved).view_as(x)
        assert_within(back, x, ERROR * rms(x))
        assert ((back == 0) >= (x == 0)).all(), "a zero is not zero any more"
        y.sum().backward(retain_graph=True)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16"])
def test_result_of_a_relu_keeps_its_mask(dtype, inplace, device):
    model = nn.ReLU(inplace)
    attach(model, error_rel=ERROR)
    x = activation(4, 8, 16, 16, device=device, dtype=dtype)
    with torch.no_grad():
        x[:, :4] *= 1e-4  # far below the bound: these must stay above zero
    y = model(x)
    back = node_called("Relu", y)._saved_result
    assert torch.equal(back > 0, y > 0)
    assert_within(back, y, ERROR * rms(y))


SCALED = {
    "gate": ((8, 16, 12, 12), (8, 16, 1, 1), lambda x, factors: factors * x),
    "gate behind": ((8, 16, 12, 12), (8, 16, 1, 1), lambda x, factors: torch.mul(x, factors)),
    "channels": ((8, 16, 12, 12), (16, 1, 1), lambda x, factors: x.mul(factors)),
    "tokens": ((4, 32, 64), (64,), lambda x, factors: x * factors),
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16"])
@pytest.mark.parametrize("kind", SCALED)
def test_what_is_scaled(kind, dtype, layout, device):
    """The gradient of a factor is a sum of products with what it scales; that of what it scales is exact."""
    shape, factor_shape, scale = SCALED[kind]
    x = activation(*shape, device=device, dtype=dtype)
    x = (x.to(memory_format=layout) if x.dim() == 4 else x).detach().requires_grad_() * 1
    factors = torch.randn(*factor_shape, device=device, dtype=dtype, requires_grad=True)
    model = Program(scale)
    attach(model, error_rel=ERROR)
    y = model(x, factors)
    back = next(saved for saved in (y.grad_fn._saved_self, y.grad_fn._saved_other) if saved.shape == x.shape)
    assert_within(back, x, ERROR / 3 * rms(x))
    weights = torch.randn_like(y)
    y.backward(weights)
    error = (factors.grad - (weights * x).sum_to_size(factor_shape)).abs().max()
    scale_of_error = (weights.float() ** 2).sum_to_size(factor_shape).sqrt().max() * ERROR / 3 * rms(x)
    assert 0 < error < 3 * scale_of_error


def test_gradient_of_what_is_scaled_is_exact(device):
    x = torch.randn(8, 16, 12, 12, device=device)
    factors = torch.randn(8, 16, 1, 1, device=device)

    def gradient(model):
        leaf, gate = x.clone().requires_grad_(), factors.clone().requires_grad_()
        model(leaf * 1, gate * 1).square().sum().backward()
        return leaf.grad

    plain, model = gradient(lambda x, gate: x * gate), Program(lambda x, gate: x * gate)
    attach(model)
    assert same_bits(gradient(model), plain)


@pytest.mark.parametrize("curve", [nn.SiLU(), nn.SiLU(True), nn.GELU(), nn.GELU("tanh")], ids=str)
def test_input_of_a_curve(curve, device):
    curve = copy.deepcopy(curve)  # each test its own: a session may live as long as its module
    attach(curve, error_rel=ERROR)
    x = activation(4, 8, 16, 16, device=device)
    before = x.detach().clone()
    assert_within(curve(x).grad_fn._saved_self, before, ERROR / 3 * rms(before))


@pytest.mark.parametrize("norm", [nn.LayerNorm(16), nn.GroupNorm(2, 8)], ids=["layer", "group"])
def test_input_of_a_row_norm(norm, device):
    norm = copy.deepcopy(norm).to(device)
    attach(norm, error_rel=ERROR)
    x = activation(4, 8, 16, 16, device=device)
    assert_within(norm(x).grad_fn._saved_input.view_as(x), x, ERROR / 3 * rms(x))


@pytest.mark.parametrize("use", ["layer", "relu", "curve"])
def test_threads_change_nothing(use):
    """Sessions use as many as PyTorch does; a large tensor, so that each has some of it."""
    x, backs, before = activation(16, 8, 64, 64), [], torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            model = ODD[use][0]()
            attach(model, error_rel=ERROR)
            backs.append(getattr(model(x).grad_fn, ODD[use][1]))
    finally:
        torch.set_num_threads(before)
    assert same_bits(*backs) and not torch.equal(backs[0], F.relu(x) if use == "relu" else x)


# ---- the scale changes: bounds are set with what the last step has taught, and mended ----


@pytest.mark.parametrize("use", ["layer", "relu", "curve", "row norm"])
def test_scale_that_changes_from_step_to_step(use, device):
    """What is more than twice too coarse is held anew. What is too fine is not: it may come back without any error."""
    make, saved = ODD[use]
    model = make().to(device)
    attach(model, error_rel=ERROR)
    bound = 2 * ERROR * (1 if use in ("layer", "relu") else 1 / 3)
    for scale in (1, 1, 1e-3, 1e-3, 10, 1, 0.4, 0.2, 1e-6, 1e4):
        x = activation(4, 8, 16, 16, device=device, scale=scale)
        y = model(x)
        expected = y if use == "relu" else x
        assert_within(getattr(y.grad_fn, saved).reshape(x.shape), expected, bound * rms(expected), is_held=False)
        y.sum().backward()


def test_one_weight_at_two_scales(device):
    """Both uses of the layer are one place in the network."""
    model = Program(lambda layer, x: (layer(x), layer(x * 1e-3)), nn.Linear(64, 4)).to(device)
    attach(model, error_rel=ERROR)
    for _ in range(4):
        x = activation(64, 64, device=device)
        loud, quiet = model(x)
        assert_within(loud.grad_fn._saved_mat1, x, 2 * ERROR * rms(x), is_held=False)
        assert_within(quiet.grad_fn._saved_mat1, x * 1e-3, 2 * ERROR * rms(x * 1e-3), is_held=False)
        (loud.sum() + quiet.sum()).backward()


# ---- values that are not ordinary ----

ODD = {
    "layer": (lambda: nn.Conv2d(8, 4, 1), "_saved_input"),
    "relu": (lambda: nn.ReLU(), "_saved_result"),
    "curve": (lambda: nn.SiLU(), "_saved_self"),
    "row norm": (lambda: nn.GroupNorm(2, 8), "_saved_input"),
    "batch norm": (lambda: nn.BatchNorm2d(8), "_saved_input"),
}


@pytest.mark.parametrize("use", ODD)
def test_nan_and_infinity_survive(use, device):
    make, saved = ODD[use]
    model = make().to(device)
    attach(model, error_rel=ERROR)
    values = torch.randn(4, 8, 16, 16, device=device)
    values[0, 0, 0, 0], values[1, 1, 1, 1], values[2, 2, 2, 2] = float("nan"), float("inf"), float("-inf")
    x = values.requires_grad_() * 1
    back = getattr(model(x).grad_fn, saved).reshape(x.shape)
    expected = F.relu(x) if use == "relu" else x
    odd = ~expected.isfinite()
    if use == "batch norm":  # such a channel has no statistics: its gradients are NaN, and all of it may be
        odd = odd | (odd.any(3).any(2).any(0).view(1, -1, 1, 1) & back.isnan())
    else:
        assert torch.equal(back[odd].isnan(), expected[odd].isnan())
        assert torch.equal(back[odd].isinf(), expected[odd].isinf())
    assert not back[odd].isfinite().any()
    assert (back - expected)[~odd].abs().max() <= ERROR * 1.1


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-6, 1e6, 1e15])
@pytest.mark.parametrize("use", ODD)
def test_any_scale(use, scale, device):
    make, saved = ODD[use]
    model = make().to(device)
    attach(model, error_rel=ERROR)
    x = activation(4, 8, 16, 16, device=device, scale=scale)
    back = getattr(model(x).grad_fn, saved).reshape(x.shape)
    expected = F.relu(x) if use == "relu" else x
    limit = ERROR * (deviations(x) if use == "batch norm" else rms(expected) if scale else 0)
    assert ((back.double() - expected.double()).abs() <= limit * 1.001 + 1e-6 * scale).all()

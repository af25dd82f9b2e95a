# SPDX-License-Identifier: Apache-2.0
"""Default mode: a batch norm's input comes back within a part of each channel's deviation, however quiet that is."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import Program, activation, assert_within, attach, deviations, node_called, rms

ERROR = 0.3
LOUD_AND_QUIET = torch.tensor([100.0, 10, 1, 1, 0.1, 0.1, 0.01, 0.01]).view(1, 8, 1, 1)


def maps(device):
    return activation(4, 8, 16, 16, device=device, scale=LOUD_AND_QUIET.to(device))


def given_anew(norm):
    """Buffers as load_state_dict(assign=True) leaves them: never written to since they were made."""
    norm.load_state_dict({name: value.clone() for name, value in norm.state_dict().items()}, assign=True)
    return norm


NORMS = {
    "plain": lambda: nn.BatchNorm2d(8),
    "assigned": lambda: given_anew(nn.BatchNorm2d(8)),
    "not affine": lambda: nn.BatchNorm2d(8, affine=False),
    "no running statistics": lambda: nn.BatchNorm2d(8, track_running_stats=False),
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("norm", NORMS)
def test_input(norm, dtype, layout, device):
    """Weights and statistics are fp32 whatever the input is, as under autocast."""
    model = NORMS[norm]().to(device)
    attach(model, error_rel=ERROR)
    x = (maps(device) + 3 * LOUD_AND_QUIET.to(device)).to(dtype).to(memory_format=layout)
    for step in range(2):
        y = model(x)
        assert_within(y.grad_fn._saved_input, x, ERROR * deviations(x))
        y.sum().backward(retain_graph=True)


def test_input_of_a_norm_in_bf16(device):
    """module.bfloat16(): the deviation that the norm divides by is rounded to bf16, and the bound with it."""
    model = nn.BatchNorm2d(8).to(device, torch.bfloat16)
    attach(model, error_rel=ERROR)
    x = maps(device).bfloat16()
    assert_within(model(x).grad_fn._saved_input, x, ERROR * deviations(x) * (1 + 2.0**-7))


SAVED_BEFORE = {
    "relu": lambda norm, conv, x: norm(F.relu_(x)),
    "convolution": lambda norm, conv, x: conv(x) * 0 + norm(x),
}


@pytest.mark.parametrize("first", SAVED_BEFORE)
def test_input_that_another_saved_before(first, device):
    """The other's bound is in units of the whole tensor's rms, in which quiet channels are nothing."""
    model = Program(SAVED_BEFORE[first], nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)).to(device)
    attach(model, error_rel=ERROR)
    x = maps(device)
    y = model(x)
    assert_within(node_called("BatchNorm", y)._saved_input, x, ERROR * deviations(x))


def test_convolution_of_what_a_norm_saved_before(device):
    model = Program(lambda norm, conv, x: (norm(x), conv(x)), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)).to(device)
    attach(model, error_rel=ERROR)
    x = maps(device)
    _, y = model(x)
    assert_within(y.grad_fn._saved_input, x, ERROR * rms(x))


@pytest.mark.parametrize("assigned", [False, True])
def test_norm_that_does_not_train(assigned, device):
    """It divides by its running deviation, 0.01: neither the variance nor 1 may stand for that. Or it is exact."""
    norm = nn.BatchNorm2d(8).to(device).eval()
    norm.running_var.fill_(1e-4)
    if assigned:
        given_anew(norm)
    attach(norm, error_rel=ERROR)
    x = activation(4, 8, 16, 16, device=device, scale=0.01)
    assert_within(norm(x).grad_fn._saved_input, x, ERROR * 0.011, is_held=False)

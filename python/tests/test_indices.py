# SPDX-License-Identifier: Apache-2.0
"""Max-pooling: packed indices come back as they were, and gradients are PyTorch's, bit by bit."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import Program, attach, same_bits
from libcomet.torch import ops

WINDOWS = [  # kernel, stride, padding, dilation, ceil_mode
    (2, 2, 0, 1, False), (3, 2, 1, 1, False), (3, 2, 1, 1, True), (2, 1, 0, 1, False), (3, 1, 1, 1, False),
    (2, 3, 0, 1, False), (5, 2, 2, 1, True), ((2, 3), (2, 1), (1, 0), 1, False), ((3, 2), None, 0, 1, True),
    (3, 2, 1, 2, False), ((2, 3), (1, 2), (1, 1), (3, 2), True), (3, 3, 0, 3, True), (1, 2, 0, 1, False),
    (16, 1, 8, 1, False), (17, 1, 0, 1, False), (12, 12, 6, 1, True), ([2], [2], [1], 1, False),
]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_window(window, layout, device):
    values = torch.randn(2, 5, 19, 18, device=device).to(memory_format=layout)
    check(values, lambda x: F.max_pool2d(x, *window))


def check(values, function, is_packed=None):
    """Indices and gradient with and without a session; default mode, which is exact here."""
    def run(module):
        x = values.clone(memory_format=torch.preserve_format).requires_grad_()
        y = module(x * 1)
        node = y.grad_fn
        while not hasattr(node, "_saved_result1"):
            node = node.next_functions[0][0]
        indices = node._saved_result1.clone()
        # small whole numbers: their sums are exact in any order, which is not certain on a GPU
        (y * (torch.arange(y.numel(), device=y.device) % 4).to(y.dtype).view_as(y)).sum().backward()
        return indices, x.grad

    indices, gradient = run(function)
    model = Program(function)
    session = attach(model)
    for result, expected in zip(run(model), (indices, gradient)):
        assert same_bits(result, expected)
    packed = session.stats()["index_bytes"]
    assert packed <= indices.numel() * 8 / 4
    assert is_packed is None or (packed > 0) == is_packed


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_type(dtype, device):
    check(torch.randn(2, 4, 16, 16, device=device, dtype=dtype), lambda x: F.max_pool2d(x, 3, 2, 1), is_packed=True)


SHAPES = [(1, 1, 12, 12), (3, 1, 64, 12), (1, 64, 7, 7), (2, 3, 1, 300), (2, 3, 300, 1)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shape(shape, device):
    window = 1 if 1 in shape[2:] else 3
    check(torch.randn(shape, device=device), lambda x: F.max_pool2d(x, window, 2))


def test_values_that_are_not_ordinary(device):
    """The first of equals, NaN before all else, and minus infinity at the border."""
    for value in (0.0, float("nan"), float("-inf"), float("inf")):
        values = torch.randn(2, 4, 16, 16, device=device).round()
        values[values > 0.6] = value
        check(values, lambda x: F.max_pool2d(x, 3, 2, 1), is_packed=True)


def test_window_that_is_too_large_stays(device):
    check(torch.randn(2, 4, 20, 20, device=device), lambda x: F.max_pool2d(x, 17, 1), is_packed=False)


def test_three_dimensions_stay(device):
    check(torch.randn(4, 16, 16, device=device), lambda x: F.max_pool2d(x, 2), is_packed=False)


def test_a_view_with_gaps(device):
    check(torch.randn(2, 8, 20, 20, device=device), lambda x: F.max_pool2d(x[:, 1:6, 2:18, 1:17], 3, 2, 1))


def test_indices_for_the_user(device):
    """return_indices: the user's are the originals, and an unpooling with them is right."""
    def program(pool, unpool, x):
        y, indices = pool(x)
        return unpool(y, indices), indices

    model = Program(program, nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2))
    values = torch.randn(2, 4, 16, 16, device=device)
    results = []
    for attached in (False, True):
        if attached:
            session = attach(model)
        x = values.clone().requires_grad_()
        y, indices = model(x * 1)
        y.square().sum().backward()
        results.append((indices, x.grad))
    assert all(same_bits(*pair) for pair in zip(*results))
    assert session.stats()["index_bytes"] > 0


@pytest.mark.parametrize("call", ["module", "keywords", "torch", "functional with indices"])
def test_ways_to_call(call, device):
    calls = {
        "module": nn.MaxPool2d(3, 2, 1),
        "keywords": lambda x: F.max_pool2d(input=x, kernel_size=3, stride=2, padding=1),
        "torch": lambda x: torch.max_pool2d(x, 3, 2, 1),
        "functional with indices": lambda x: F.max_pool2d_with_indices(x, 3, 2, 1)[0],
    }
    check(torch.randn(2, 4, 16, 16, device=device), calls[call])


AVERAGES = {  # whose windows do not overlap
    "avg_pool1d": lambda x: F.avg_pool1d(x.flatten(2), 4),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 3, 1),
    "avg_pool3d": lambda x: F.avg_pool3d(x, 2),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x[0], 4),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (4, 8)),
    "global": lambda x: F.adaptive_avg_pool2d(x, 1),
}


@pytest.mark.parametrize("pool", AVERAGES)
def test_averages_need_no_values(pool, device):
    """Of an average's input only the shape is held; once and twice differentiated."""
    def run(module):
        x = values.clone().requires_grad_()
        y = module(x * 1)
        (dx,) = torch.autograd.grad(y.pow(3).sum(), x, create_graph=True)
        dx.square().sum().backward()
        return dx.detach(), x.grad

    values = torch.randn(2, 4, 16, 16, device=device)
    plain, model = run(AVERAGES[pool]), Program(AVERAGES[pool])
    attach(model)
    assert all(same_bits(*pair) for pair in zip(run(model), plain))


def test_indices_that_are_not_of_their_windows(device, monkeypatch):
    """They cannot be: but should a window be taken for another, gradients must not be wrong in silence. On a CPU that
    is seen at once, and indices are kept as they are; on a GPU when backward comes to them, or in the next poll."""
    monkeypatch.setitem(ops._LEAVES, nn.MaxPool2d, (ops.MAX_POOL, lambda module: (2, 2, 3, 3, 0, 0, 1, 1)))
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.MaxPool2d(3)).to(device)
    session = attach(model)
    y = model(torch.randn(2, 2, 18, 18, device=device))
    if device.type == "cpu":
        y.sum().backward()
        assert session.stats()["index_bytes"] == 0
        return
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match="not of its windows"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="not of its windows"):
        session.native.poll()

# SPDX-License-Identifier: Apache-2.0
"""Never touched: parameters, buffers, views and casts of them, the user's own tensors, whole numbers, small tensors."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from conftest import Program, activation, assert_same_bits, attach, nodes, same_bits, total, train_step


def saved(node):
    """name -> tensor, of everything that a node has saved."""
    names = [name for name in dir(node) if name.startswith("_saved_")]
    return {name: value for name, value in ((name, getattr(node, name)) for name in names)
            if isinstance(value, torch.Tensor)}


def all_saved(*outputs):
    return [tensor for node in nodes(*outputs) for tensor in saved(node).values()]


def addresses(tensors):
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


LAYERS = {  # with as many values in the input as in the weight, so that one could be taken for the other
    "linear": (lambda: nn.Linear(64, 64), (64, 64)),
    "conv": (lambda: nn.Conv2d(16, 16, 3), (16, 16, 3, 3)),
    "transposed conv": (lambda: nn.ConvTranspose2d(16, 16, 3), (16, 16, 3, 3)),
    "conv1d": (lambda: nn.Conv1d(32, 32, 4), (32, 32, 4)),
    "wide": (lambda: nn.Linear(64, 32), (32, 64)),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_weight_is_saved_itself(layer, device):
    make, shape = LAYERS[layer]
    model = make().to(device)
    session = attach(model)
    y = model(activation(*shape, device=device))
    assert total(session, "entries") == 1  # the input
    assert model.weight.untyped_storage().data_ptr() in addresses(all_saved(y))


@pytest.mark.parametrize("layer", LAYERS)
def test_cast_of_a_weight_is_exact(layer, device):
    """Autocast makes it inside of the operation: neither its memory nor its name tell what it is."""
    make, shape = LAYERS[layer]
    model = make().to(device)
    attach(model)
    with torch.autocast(device.type, torch.bfloat16):
        y = model(activation(*shape, device=device))
    cast = model.weight.detach().bfloat16().flatten().sort().values  # in whichever order it was saved
    candidates = [tensor for tensor in all_saved(y) if tensor.numel() == cast.numel()]
    assert any(torch.equal(tensor.flatten().sort().values, cast) for tensor in candidates)


def test_buffers_and_statistics_are_exact(device):
    model = nn.BatchNorm2d(256).to(device)
    session = attach(model, min_bytes=1)
    x = activation(4, 256, 4, 4, device=device)
    plain = copy.deepcopy(model)
    results = [norm(x).grad_fn for norm in (model, plain)]
    assert total(session, "entries") == 1
    for name, expected in saved(results[1]).items():
        if expected.is_floating_point() and name != "_saved_input":  # cuDNN has bytes of its own besides
            assert same_bits(getattr(results[0], name), expected), name
    memory = addresses(saved(results[0]).values())
    assert {buffer.data_ptr() for buffer in (model.running_mean, model.running_var, model.weight)} <= memory


VIEWS = {
    "itself": lambda p: p,
    "transposed": lambda p: p.t(),
    "rows": lambda p: p[:32],
    "columns": lambda p: p[:, :32],
    "reshaped": lambda p: p.view(32, 128),
    "expanded": lambda p: p[:1].expand(64, 64),
    "a view of a view": lambda p: p.view(-1)[:2048].view(32, 64),
}


OPERATIONS = {
    "linear": lambda x: F.linear(x, torch.ones(5, x.shape[-1], device=x.device, requires_grad=True)),
    "silu": F.silu,
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "batch norm": lambda x: F.batch_norm(x, None, None, training=True),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["parameter", "buffer"])
def test_view_of_a_parameter_as_input(kind, view, operation, device):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            values = torch.randn(64, 64, device=device)
            self.register_parameter("p", nn.Parameter(values)) if kind == "parameter" else \
                self.register_buffer("p", values)

        def forward(self):
            return OPERATIONS[operation](VIEWS[view](self.p))

    model = Model()
    session = attach(model)
    y = model()
    assert total(session, "saves") == 0
    assert session.stats()["kept_tensors"] > 0 or not y.requires_grad


def test_users_own_tensors(device):
    """He has them anyway; what he writes to them is seen, as without a session."""
    model = Program(lambda conv, norm, x: (conv(x), F.silu(conv(x)), norm(x)), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8))
    model.to(device)
    session = attach(model)
    x = torch.randn(4, 8, 16, 16, device=device)
    first, second, third = model(x)
    assert total(session, "entries") == 1  # of the SiLU alone
    assert x.data_ptr() in addresses(all_saved(first, third))
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.sum().backward()


def test_parametrized_weights(device):
    """They are made anew in each step: exact, and what is known of places in the network does not pile up."""
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(64, 64)), nn.ReLU(),
                          parametrizations.spectral_norm(nn.Linear(64, 64))).to(device)
    x = torch.randn(64, 64, device=device)
    plain = train_step(copy.deepcopy(model), x)
    session = attach(model, exact=True)
    assert_same_bits(train_step(model, x), plain)
    session.detach()
    session, places, others = attach(model), [], []
    for _ in range(100):
        train_step(model, x)
        places.append(len(session.native.sites()))
        others.append(torch.zeros(1))  # so that Python's addresses do not repeat
    assert places[-1] == places[9]


def test_whole_numbers(device):
    index = torch.randint(64, (64, 64), device=device)
    model = Program(lambda emb, x: emb(index).sum() + x.gather(1, index).sum(), nn.Embedding(64, 64)).to(device)
    session = attach(model)
    y = model(activation(64, 64, device=device))
    assert total(session, "saves") == 0
    assert index.data_ptr() in addresses(all_saved(y))


def test_small_tensors(device):
    """Below min_bytes everything is as it was, in default mode."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(), nn.GELU())
    model.to(device)
    x = torch.randn(4, 3, 16, 16, device=device)  # 25 KB behind the convolution
    plain = train_step(copy.deepcopy(model), x)
    session = attach(model, min_bytes=1 << 16)
    assert_same_bits(train_step(model, x), plain)
    assert total(session, "saves") == 0 and session.stats()["index_bytes"] == 0


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (1, 3, 1, 1)])
def test_nothing_is_too_small(shape, device):
    """min_bytes=0: empty and tiny tensors are no error."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.GELU(), nn.Dropout(), nn.Conv2d(4, 4, 1)).to(device)
    attach(model, min_bytes=0)
    train_step(model, torch.ones(shape, device=device))


@pytest.mark.filterwarnings("ignore:Complex modules")
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64], ids=str)
def test_other_types(dtype, device):
    model = nn.Linear(64, 64).to(device, dtype)
    session = attach(model)
    x = activation(64, 64, device=device, dtype=dtype)
    back = model(x).grad_fn._saved_mat1
    assert total(session, "saves") == 0 and torch.equal(back, x)


def test_seven_dimensions(device):
    model = nn.Sequential(nn.ReLU(), nn.Linear(8, 8)).to(device)
    x = torch.randn(2, 2, 2, 2, 2, 2, 8, device=device)
    plain = train_step(copy.deepcopy(model), x)
    attach(model, exact=True)
    assert_same_bits(train_step(model, x), plain)

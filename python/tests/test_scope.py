# SPDX-License-Identifier: Apache-2.0
"""Hooks are active while the model's forward pass runs, in its thread, and only then: whatever happens in it.

That nothing is left active at the end is checked behind every test (conftest.py).
"""
import copy
import io
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import libcomet.torch as comet
from conftest import (CAN_ASK_FOR_HOOKS, Program, SMALL, active_hooks, activation, assert_same_bits, attach, in_thread,
                      same_bits, total,
                      train_step)


def network(width=64):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())


def test_active_inside_alone(device):
    inside = []
    model = Program(lambda layer, x: (inside.append(active_hooks()), layer(x))[1], nn.Linear(64, 64)).to(device)
    session = attach(model)
    y = model(activation(64, 64, device=device))
    assert active_hooks() is None
    if CAN_ASK_FOR_HOOKS:
        assert inside[0] is not None
    assert total(session, "saves") == 1
    kept, saves = session.stats()["kept_tensors"], total(session, "saves")
    F.relu(y * y).sum().backward()
    assert (session.stats()["kept_tensors"], total(session, "saves")) == (kept, saves)


def test_context_manager(device):
    model = network().to(device)
    with comet.compress(model, min_bytes=SMALL) as session:
        model(activation(64, 64, device=device)).sum().backward()
    saves = total(session, "saves")
    assert saves > 0
    with pytest.raises(ZeroDivisionError), comet.compress(model):
        1 / 0
    model(activation(64, 64, device=device)).sum().backward()
    assert total(session, "saves") == saves


# ---- exceptions ----


class Stop(BaseException):
    """As KeyboardInterrupt is: not an Exception, so that PyTorch's own clean-up does not see it."""


@pytest.mark.parametrize("where", ["inside", "in an operation", "in a hook"])
@pytest.mark.parametrize("kind", [ValueError, Stop])
def test_exception(kind, where, device):
    def fail(*_):
        if failing:
            raise kind

    def program(layers, x):
        y = layers(x)
        if where == "inside":
            fail()
        elif where == "in an operation" and failing:
            try:
                F.conv2d(y, y)
            except RuntimeError:
                fail()
        return y

    model = Program(program, network()).to(device)
    x = torch.randn(64, 64, device=device)
    failing = False
    plain = train_step(copy.deepcopy(model), x)
    session = attach(model, exact=True)
    if where == "in a hook":
        model.parts[0].register_forward_pre_hook(fail, prepend=True)
    failing = True
    with pytest.raises(kind):
        model(x)
    assert active_hooks() is None and torch._C._len_torch_function_stack() == 0
    assert total(session, "entries") == 0
    failing = False
    assert_same_bits(train_step(model, x), plain)


def test_exception_that_the_model_catches(device):
    """Inside of an inner session's model: the outer one goes on."""
    def fail(layer, x):
        layer(x)
        raise ValueError

    def program(inner, layer, x):
        with pytest.raises(ValueError):
            inner(x)
        return F.relu(layer(x))

    inner = Program(fail, nn.Linear(64, 64))
    outer = Program(program, inner, nn.Linear(64, 64)).to(device)
    sessions = [attach(model) for model in (inner, outer)]
    y = outer(activation(64, 64, device=device))
    assert [total(session, "entries") for session in sessions] == [0, 2], y


def test_torch_func_says_that_it_cannot(device):
    """Transforms allow no hooks. The message is PyTorch's; nothing stays active."""
    model = nn.Linear(8, 8).to(device)
    attach(model)
    with pytest.raises(RuntimeError, match="saved tensor hooks"):
        torch.func.grad(lambda x: model(x).sum())(torch.randn(8, device=device))


# ---- several sessions ----


def test_two_sessions_on_one_model(device):
    model = network().to(device)
    x = torch.randn(64, 64, device=device)
    plain = train_step(copy.deepcopy(model), x)
    attributes = {name for name, value in model.__dict__.items() if value is not None}
    sessions = [attach(model, exact=True) for _ in range(2)]
    assert_same_bits(train_step(model, x), plain)
    assert sum(total(session, "saves") > 0 for session in sessions) == 1  # only the innermost pair of hooks runs
    innermost = 0 if total(sessions[0], "saves") else 1
    sessions[innermost].detach()
    assert_same_bits(train_step(model, x), plain)
    sessions[1 - innermost].detach()
    before = [total(session, "saves") for session in sessions]
    assert_same_bits(train_step(model, x), plain)
    assert [total(session, "saves") for session in sessions] == before and min(before) > 0
    assert {name for name, value in model.__dict__.items() if value is not None} == attributes


def test_sessions_nested_with_forms_of_their_own(device):
    """The outer one's forms are not the inner one's, though the numbers of forms may be."""
    inner = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    outer = nn.Sequential(inner, nn.Linear(64, 64)).to(device)
    first = attach(outer, forms={"0.0": "eb:0.05", "1": "eb:0.01"})
    second = attach(inner, error_rel=0.3)
    x = activation(64, 64, device=device)
    y = outer(x)
    # [1] has an entry of its own, finer than the inner session's; inside, the inner session's bound is used
    assert (total(first, "entries"), total(second, "entries")) == (1, 2)
    assert 0 < (y.grad_fn._saved_mat1 - inner(x)).abs().max() <= 0.01
    y.sum().backward()
    assert (total(first, "entries"), total(second, "entries")) == (0, 0)


# ---- threads ----


@pytest.mark.parametrize("exact", [True, False])
def test_four_threads(exact, device):
    """One model, one session; in each thread forward and backward passes of its own."""
    model = network().to(device)
    inputs = [torch.randn(64, 64, device=device) for _ in range(4)]

    def all_gradients(x):
        return torch.autograd.grad(model(x).square().sum(), list(model.parameters()))

    expected = [all_gradients(x) for x in inputs]
    session = attach(model, exact=exact)
    failures = []

    def work(index):
        try:
            for _ in range(20):
                for result, plain in zip(all_gradients(inputs[index]), expected[index]):
                    right = same_bits(result, plain) if exact else (result - plain).norm() < 0.5 * plain.norm()
                    if not right:
                        failures.append(f"thread {index}: another gradient")
        except Exception as error:
            failures.append(f"thread {index}: {error!r}")

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert total(session, "entries") == 0 and total(session, "saves") > 0


def test_backward_in_another_thread(device):
    model = network().to(device)
    x = torch.randn(64, 64, device=device)
    plain = train_step(copy.deepcopy(model), x)
    session = attach(model, exact=True)
    loss = model(x).square().mean()
    in_thread(loss.backward)
    assert all(same_bits(parameter.grad, plain[name]) for name, parameter in model.named_parameters())
    del loss
    assert total(session, "entries") == 0


def test_thread_that_the_model_starts(device):
    """Hooks are the thread's own: what another thread saves stays as it is."""
    def program(layers, x):
        return layers(in_thread(layers, x))

    model = Program(program, network()).to(device)
    x = torch.randn(64, 64, device=device)
    plain = train_step(copy.deepcopy(model), x)
    attach(model, exact=True)
    assert_same_bits(train_step(model, x), plain)


# ---- copies of the model ----


@pytest.mark.parametrize("attached", [True, False])
def test_copies(attached, device):
    """deepcopy, pickle and state_dict, while a session is attached and after. A copy has no session."""
    model = network().to(device)
    x = torch.randn(64, 64, device=device)
    plain = train_step(copy.deepcopy(model), x)
    session = attach(model)
    if not attached:
        session.detach()
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    other = network().to(device)
    other.load_state_dict(model.state_dict())
    for copied in (copy.deepcopy(model), loaded, other):
        assert_same_bits(train_step(copied, x), plain)
    assert total(session, "saves") == 0


def test_replica(device):
    """nn.DataParallel copies the attributes of a module and gives the copy other parameters. Around one is refused."""
    layer = nn.Linear(64, 64).to(device)
    session = attach(layer)
    replica = layer._replicate_for_data_parallel()
    replica.weight, replica.bias = layer.weight.detach() * 2, layer.bias.detach() * 2
    x = activation(64, 64, device=device)
    assert torch.allclose(replica(x), 2 * layer(x), atol=1e-5)
    session.detach()
    for model in (nn.DataParallel(layer), nn.Sequential(nn.DataParallel(layer))):
        with pytest.raises(ValueError, match="DataParallel"):
            attach(model)
    assert layer.__dict__.get("_compiled_call_impl") is None


# ---- torch.compile ----


def compile_or_skip(model):
    """Without the C++ compiler and Triton of the default backend; what is compiled is the same."""
    pytest.importorskip("filelock", reason="torch.compile needs filelock")
    torch._dynamo.reset()
    return torch.compile(model, backend="aot_eager")


@pytest.mark.parametrize("order", ["attached first", "compiled first", "inside", "in place"])
def test_compiled_model(order, device):
    """Hooks do not reach into compiled code: its results are plain PyTorch's."""
    model = network().to(device)
    x = torch.randn(64, 64, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = train_step(compile_or_skip(copy.deepcopy(model)), x)
        if order == "attached first":
            attach(model)
            result = train_step(compile_or_skip(model), x)
        elif order == "compiled first":
            compiled = compile_or_skip(model)
            attach(compiled)
            result = train_step(compiled, x)
        elif order == "inside":
            outer = nn.Sequential(compile_or_skip(model))
            attach(outer)
            result = train_step(outer, x)
        else:
            model.compile(backend="aot_eager")
            attach(model)
            result = train_step(model, x)
    for name, value in result.items():
        assert same_bits(value, expected["_orig_mod." + name.split("_orig_mod.")[-1] if name != "loss" else name]), name

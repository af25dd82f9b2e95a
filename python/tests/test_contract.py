# SPDX-License-Identifier: Apache-2.0
"""Graphs as without hooks: gone through twice, in any order, twice differentiated, given up, longer than a session."""
import copy
import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from conftest import Program, activation, assert_same_bits, attach, gradients, same_bits, total, train_step


def network(width=8):
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(True), nn.MaxPool2d(2),
                         nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(),
                         nn.Linear(width * 64, 16), nn.GELU(), nn.Linear(16, 4))


def images(device, seed=0):
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(seed)).to(device)


def both(device, run, **options):
    """What `run(model)` returns without a session and with one that is exact, which must be the same."""
    model = network().to(device)
    plain, compressed = copy.deepcopy(model), model
    session = attach(compressed, **{"exact": True, **options})
    torch.manual_seed(1)
    expected = run(plain)
    torch.manual_seed(1)
    result = run(compressed)
    assert total(session, "saves") > 0
    assert total(session, "entries") == 0
    return result, expected


# ---- one graph ----


@pytest.mark.parametrize("exact", [True, False])
def test_going_through_a_graph_twice(exact, device):
    """Nothing is given up when it is read for the first time. In default mode too both gradients are the same."""
    model = network().to(device)
    session = attach(model, exact=exact)
    loss = model(images(device)).square().sum()
    loss.backward(retain_graph=True)
    first = gradients(model)
    assert total(session, "entries") > 0
    model.zero_grad()
    loss.backward()
    assert_same_bits(gradients(model), first)
    assert total(session, "entries") == 0
    with pytest.raises(RuntimeError, match="a second time"):
        loss.backward()


@pytest.mark.parametrize("exact", [True, False])
def test_double_backward(exact, device):
    """Connected as it was: a gradient's gradient reaches the weights. Values carry the error, or none."""
    def program(first, second, x):
        return second(F.silu(first(x)))

    def second_gradient(model):
        model.zero_grad()
        (dx,) = torch.autograd.grad(model(x * 1).square().sum(), x, create_graph=True)
        dx.square().sum().backward()
        return gradients(model)

    model = Program(program, nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3)).to(device)
    x = torch.randn(4, 4, 12, 12, device=device, requires_grad=True)
    plain = second_gradient(model)
    session = attach(model, exact=exact, error_rel=0.1)
    compressed = second_gradient(model)
    if exact:
        assert_same_bits(compressed, plain)
        return
    assert total(session, "saves") > 0
    for name, gradient in plain.items():
        if gradient is not None:
            assert (compressed[name] - gradient).norm() < 0.1 * gradient.norm(), name


def test_penalty_on_the_gradient(device):
    """As in a Wasserstein GAN: first and second derivatives in one loss, through ReLUs and a pooling."""
    def run(model):
        x = images(device).requires_grad_()
        y = model(x).square().sum()
        (dx,) = torch.autograd.grad(y, x, create_graph=True)
        (y + (dx.flatten(1).norm(dim=1) - 1).square().sum()).backward()
        return gradients(model, x)

    assert_same_bits(*both(device, run))


# ---- several graphs ----


def test_graphs_in_another_order(device):
    """Three are alive; backward comes for the second, the first, the third."""
    def run(model):
        losses = [model(images(device, seed)).square().sum() for seed in range(3)]
        results = {}
        for index in (1, 0, 2):
            model.zero_grad()
            losses[index].backward()
            results.update({f"{index} {name}": value for name, value in gradients(model).items()})
        return results

    assert_same_bits(*both(device, run))


def test_accumulated_gradients(device):
    def run(model):
        for seed in range(3):
            model(images(device, seed)).square().sum().backward()
        return gradients(model)

    assert_same_bits(*both(device, run))


def test_two_models_in_turn(device):
    """A GAN: the second's loss goes through the first; each has a session and a step of its own."""
    def run(attached):
        torch.manual_seed(2)
        generator = nn.Sequential(nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.BatchNorm2d(8), nn.ReLU(True),
                                  nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh()).to(device)
        critic = network().to(device)
        sessions = [attach(model, exact=True) for model in (generator, critic)] if attached else []
        steps = [torch.optim.SGD(model.parameters(), 0.01) for model in (generator, critic)]
        for _ in range(3):
            fake = generator(torch.randn(4, 8, 4, 4, device=device))
            critic.zero_grad()
            (critic(images(device)).mean() - critic(fake.detach()).mean()).backward()
            steps[1].step()
            generator.zero_grad()
            critic(fake).mean().backward()
            steps[0].step()
        assert all(total(session, "saves") > 0 and total(session, "entries") == 0 for session in sessions)
        return {**gradients(generator), **{f"critic {name}": value for name, value in gradients(critic).items()}}

    assert_same_bits(run(True), run(False))


def test_branches_that_nobody_uses(device):
    model = Program(lambda a, b, x: (F.relu(a(x)), F.relu(b(x))), nn.Linear(64, 64), nn.Linear(64, 64)).to(device)
    session = attach(model)
    used, unused = model(activation(64, 64, device=device))
    used.sum().backward()
    assert total(session, "entries") == 2  # what nobody went through: the ReLU, and the input that both layers share
    del unused, used
    assert total(session, "entries") == 0
    assert model.parts[1].weight.grad is None


def test_graph_that_is_given_up(device):
    model = network().to(device)
    session = attach(model)
    output = model(images(device))
    assert total(session, "entries") > 0
    del output
    assert total(session, "entries") == 0


# ---- in place ----


@pytest.mark.parametrize("exact", [True, False])
def test_what_was_saved_is_written_to(exact, device):
    """What is kept as it is raises, as in plain PyTorch. What is held has its own values: it may also be right."""
    programs = {
        "kept": lambda x: torch.sigmoid(x),  # saves its result, which no session holds
        "held in default mode": lambda x: F.linear(x, weight),
    }
    weight = torch.randn(64, 64, device=device, requires_grad=True)
    for name, function in programs.items():
        def program(x):
            y = x * 1
            z = function(y)
            (z if name == "kept" else y).add_(1)
            return z

        values = torch.randn(64, 64, device=device)
        model = Program(program)
        attach(model, exact=exact)
        output = model(values.clone().requires_grad_())
        if name == "kept" or exact:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                output.sum().backward()
            continue
        try:
            output.sum().backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
        else:
            expected = values.sum(0).expand(64, 64)
            assert (weight.grad - expected).norm() < 0.3 * expected.norm()
        weight.grad = None


# ---- beside other things of PyTorch's ----


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("exact", [True, False])
def test_checkpoint_inside(reentrant, exact, device):
    """What is inside is computed again, by PyTorch; what is outside is held."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.body, self.tail = nn.Conv2d(3, 8, 3), network(8)[4:7], nn.Linear(8 * 14 * 14, 4)

        def forward(self, x):
            x = F.relu(self.head(x))
            return self.tail(checkpoint(self.body, x, use_reentrant=reentrant).flatten(1))

    model = Model().to(device)
    plain = train_step(copy.deepcopy(model), images(device))
    session = attach(model, exact=exact)
    compressed = train_step(model, images(device))
    assert total(session, "saves") > 0 and total(session, "entries") == 0
    if exact:
        assert_same_bits(compressed, plain)
    for name, value in plain.items():
        assert (compressed[name] - value).norm() <= 0.5 * value.norm(), name


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_around(reentrant, device):
    """The attached model is what is checkpointed."""
    model = network().to(device)
    x = images(device).requires_grad_()
    torch.manual_seed(1)
    model(x).square().sum().backward()
    plain = gradients(model, x)
    model.zero_grad(), x.grad.zero_()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
    session = attach(model, exact=True)
    torch.manual_seed(1)
    checkpoint(model, x, use_reentrant=reentrant).square().sum().backward()
    assert_same_bits(gradients(model, x), plain)
    assert total(session, "entries") == 0


def test_evaluation_and_no_grad(device):
    """Nothing is saved where nothing can go back; a layer in eval() that can is held as ever."""
    model = network().to(device)
    session = attach(model)
    with torch.no_grad():
        model(images(device))
    with torch.inference_mode():
        model(images(device))
    model.eval()(images(device).requires_grad_(False)).detach()
    assert total(session, "entries") == 0
    saves = total(session, "saves")
    partly = Program(lambda part, x: part(x).detach() + x, network().to(device))
    inner = attach(partly)

    def without(part, x):
        with torch.no_grad():
            return part(x)

    partly.function = without
    partly(images(device).requires_grad_())
    assert total(inner, "saves") == 0 and total(session, "saves") == saves


def test_hooks_of_the_user_inside(device):
    """Innermost hooks are the ones that run: PyTorch's own offloading keeps what it is asked to keep."""
    def program(first, second, x):
        with torch.autograd.graph.save_on_cpu():
            x = torch.relu(first(x))
        return torch.relu(second(x))

    model = Program(program, nn.Linear(64, 64), nn.Linear(64, 64)).to(device)
    x = torch.randn(64, 64, device=device)
    plain = train_step(copy.deepcopy(model), x)
    session = attach(model, exact=True)
    assert_same_bits(train_step(model, x), plain)
    assert total(session, "saves") == 1  # the ReLU outside


# ---- the session goes ----


def test_detached_while_a_graph_is_alive(device):
    def run(model, detach):
        loss = model(images(device)).square().sum()
        detach()
        gc.collect()
        loss.backward()
        return gradients(model)

    model = network().to(device)
    torch.manual_seed(1)
    plain = run(copy.deepcopy(model), lambda: None)
    session = attach(model, exact=True)
    torch.manual_seed(1)
    assert_same_bits(run(model, session.detach), plain)
    assert total(session, "saves") > 0 and total(session, "entries") == 0


def test_session_that_nobody_holds(device):
    """A graph needs no more than itself."""
    model = network().to(device)
    session = attach(model)
    loss = model(images(device)).square().sum()
    session.detach()
    del session
    gc.collect()
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_detach_leaves_the_model_as_it_was(device):
    model = network().to(device)
    before, attributes = copy.deepcopy(model.state_dict()), dict(model.__dict__)
    session = attach(model)
    assert list(model.state_dict()) == list(before)
    session.detach()
    session.detach()  # once more does nothing
    assert {name: value for name, value in model.__dict__.items() if value is not None} == \
        {name: value for name, value in attributes.items() if value is not None}
    assert all(same_bits(value, before[name]) for name, value in model.state_dict().items())
    saves = session.stats()
    model(images(device)).sum().backward()
    assert session.stats() == saves

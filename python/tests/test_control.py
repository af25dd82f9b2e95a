# SPDX-License-Identifier: Apache-2.0
"""Controllers: statistics are what libcomet's formulas say of the tensors, bounds follow from them, and nothing is
looked at in ordinary steps."""
import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import libcomet.torch as comet
from conftest import NO_GPU, Program, attach
from libcomet.torch.control import Control

ALWAYS = {"every": 1, "warmup": 10**6}  # statistics of every iteration, bounds as they are without a controller


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(Control, "strict", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def network(act=nn.ReLU):
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), act(), nn.Conv2d(16, 24, 3, 2, 1),
                         nn.BatchNorm2d(24), act(), nn.Conv2d(24, 24, 3, padding=1, groups=2), nn.BatchNorm2d(24),
                         act(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(96, 10))


def batch(device, count=32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, 16, 16, generator=generator)
    labels = torch.randint(10, (count,), generator=generator)
    return images.to(device), labels.to(device)


def sgd(model, momentum=0.9, **options):
    return torch.optim.SGD(model.parameters(), 0.05, momentum=momentum, **options)


def step(model, optimizer, images, labels, scaler=None, parts=1):
    optimizer.zero_grad()
    for some, theirs in zip(images.chunk(parts), labels.chunk(parts)):
        loss = F.cross_entropy(model(some), theirs) / parts
        (loss if scaler is None else scaler.scale(loss)).backward()
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    return loss.item() * parts


def observed(session):
    """{site: {kind: statistics}} of what was observed last. On a GPU that is told an iteration later."""
    if session.control._pending:
        session.control._observe()
    return {row["site"]: {use["kind"]: use for use in row["uses"]} for row in session.control.native.tensors()
            if row["observed"]}


def statistics(model, images, labels, optimizer=sgd, iterations=2, error_rel=1e-3, **how):
    """What is observed in the second iteration, of weights that do not move. The first one learns what there is."""
    steps = {key: how.pop(key) for key in ("scaler", "parts") if key in how}
    optimizer = optimizer(model)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    session = attach(model, optimizer=optimizer, error_rel=error_rel, control_options=ALWAYS, **how)
    for _ in range(iterations):
        step(model, optimizer, images, labels, **steps)
    found = observed(session)
    session.detach()
    return found


def seen_by_hand(model, images, labels):
    """Inputs, outputs and their gradients of all modules, of a step without a session."""
    seen = {}

    def note(name):
        def hook(module, inputs, output):
            seen[name] = x, y = inputs[0].detach().clone(), output  # a ReLU may work in place
            output.register_hook(lambda gradient: seen.__setitem__(name, (x.double(), gradient.double())))
        return hook

    handles = [module.register_forward_hook(note(name)) for name, module in model.named_children()]
    model.zero_grad()
    F.cross_entropy(model(images), labels).backward()
    for handle in handles:
        handle.remove()
    return seen


def inside(size, kernel=3, padding=1, stride=1):
    """The share of taps along an axis that are not in the padding."""
    positions = range(-padding, size + padding - kernel + 1, stride)
    taps = [0 <= first + tap < size for first in positions for tap in range(kernel)]
    return sum(taps) / len(taps)


CLOSE = {"rel": 0.02}  # a bound of 1e-3 leaves errors of that order in gradients behind batch norms


def test_statistics_of_layers(device):
    model = network().to(device)
    images, labels = batch(device)
    seen = seen_by_hand(copy.deepcopy(model), images, labels)
    found = statistics(model, images, labels)
    for site, name, kind, stride in (("1 > relu", "3", "conv_weights", 2), ("4 > relu", "6", "conv_weights", 1),
                                     ("11.input", "11", "linear_weights", 0)):
        x, dy = seen[name]
        use = found[site][kind]
        share = (x != 0).double().mean().item() * (inside(x.shape[-1], stride=stride) ** 2 if stride else 1)
        assert use["derivative_squares"] == pytest.approx(share, rel=1e-6)
        assert use["gradient_squares"] == pytest.approx((dy.square().sum() / dy.shape[1]).item(), **CLOSE)
        assert use["gradient_mean"] == pytest.approx(dy.abs().mean().item(), **CLOSE)
        assert use["positions"] == dy.numel() / dy.shape[1]


def test_statistics_of_batch_norms(device):
    model = network().to(device)
    for module in (model[1], model[4]):
        nn.init.uniform_(module.weight, 0.5, 2), nn.init.uniform_(module.bias, -1, 1)
    images, labels = batch(device)
    seen = seen_by_hand(copy.deepcopy(model), images, labels)
    found = statistics(model, images, labels)
    for name, before, stride in (("1", "0", 1), ("4", "3", 2)):
        x, dy = seen[name]
        scale, of_input = found[f"{name}.input"]["norm_scale"], found[f"{name}.input"]["norm_input"]
        variance, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
        u = (x - mean) / (variance + 1e-5).sqrt()
        count = x.numel() / x.shape[1]
        assert scale["derivative_squares"] == 1
        assert scale["gradient_squares"] == pytest.approx((dy.square().sum() / dy.shape[1]).item(), **CLOSE)
        slope = (model.get_submodule(name).weight.double().view(1, -1, 1, 1) / (variance + 1e-5).sqrt()).square()
        own = (slope * ((dy * u).sum((0, 2, 3), keepdim=True) / count).square()).mean().item()
        common = (slope * dy.square().mean((0, 2, 3), keepdim=True)).mean().item()  # if all inputs were the same
        assert 0.98 * own < of_input["error_gain"] < own + common
        inputs = seen[before][0]
        positions = count * inside(inputs.shape[-1], stride=stride) ** 2
        assert of_input["input_squares"] == pytest.approx(inputs.square().mean().item() * positions, **CLOSE)


def same(found, expected, but=(), **close):
    assert found.keys() == expected.keys() and found
    for site, uses in expected.items():
        for kind, use in uses.items():
            for key, value in use.items():
                if key not in ("kind", "gradient", *but):
                    assert found[site][kind][key] == pytest.approx(value, **close), (site, kind, key)


@pytest.mark.parametrize("own_norms", [False, True])
def test_fused_norms(own_norms, device):
    """Batch norms in one call, alone or with their ReLUs: the statistics of their uses are the same."""
    if device.type == "cpu":
        pytest.skip("nothing is fused on a CPU")
    model = network().to(device)
    images, labels = batch(device)
    expected = statistics(copy.deepcopy(model), images, labels)
    fused = model if own_norms else comet.fuse(model)
    found = statistics(fused, images, labels, own_norms=own_norms)
    for name in ("1", "4", "7"):
        for kind, key in (("norm_scale", "gradient_squares"), ("norm_input", "error_gain"),
                          ("norm_input", "input_squares"), ("norm_scale", "correction")):
            expected_value = expected[f"{name}.input"][kind][key]
            assert found[f"{name}.input"][kind][key] == pytest.approx(expected_value, rel=0.05), (name, kind, key)
    if not own_norms:  # what layers read is rebuilt from the norm's input
        for name in ("1", "4"):
            one, other = found[f"{name}.input"]["conv_weights"], expected[f"{name} > relu"]["conv_weights"]
            assert one["derivative_squares"] == pytest.approx(other["derivative_squares"], rel=0.05)
            assert one["gradient_squares"] == pytest.approx(other["gradient_squares"], rel=0.05)


def test_statistics_with_bf16(device):
    """Autocast: the same within rounding."""
    model = network().to(device)
    images, labels = batch(device)
    expected = statistics(copy.deepcopy(model), images, labels)
    with torch.autocast(device.type, torch.bfloat16):
        found = statistics(model, images, labels)
    assert found.keys() - expected.keys() == {"0.input"}  # a copy of the images
    same({site: found[site] for site in expected}, expected, but=("correction", "sensitivity"), rel=0.1)


@pytest.mark.skipif(bool(NO_GPU), reason=f"no GPU: {NO_GPU}")
def test_a_gpu_observes_what_a_cpu_does():
    model, (images, labels) = network(), batch(torch.device("cpu"))
    on_cpu = statistics(copy.deepcopy(model), images, labels)
    on_gpu = statistics(model.cuda(), images.cuda(), labels.cuda())
    assert on_cpu.keys() == on_gpu.keys() and on_cpu
    for site, uses in on_cpu.items():
        assert uses.keys() == on_gpu[site].keys() and uses
        for kind, use in uses.items():
            assert on_gpu[site][kind] == pytest.approx(use, rel=1e-3, abs=1e-9), f"{site}, {kind}"


def test_two_half_batches_are_one(device):
    """Without batch norms, which would normalise each half on its own."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(),
                          nn.Linear(16 * 14 * 14, 10)).to(device)
    images, labels = batch(device)
    whole, halves = (statistics(copy.deepcopy(model), images, labels, parts=parts) for parts in (1, 2))
    same(halves, whole, but=("correction", "sensitivity"), rel=1e-3)  # neighbours are of the last batch alone
    assert len(whole) == 2


def test_scaled_gradients(device):
    """With a GradScaler, given or found, statistics are those of gradients that are not scaled."""
    model = network().to(device)
    images, labels = batch(device)
    expected = statistics(copy.deepcopy(model), images, labels)
    for given in (False, True):
        scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
        found = statistics(copy.deepcopy(model), images, labels, scaler=scaler,
                           **{"iterations": 2} if not given else {"control": "comet"})
        same(found, expected, rel=1e-3)
        assert "step" not in scaler.__dict__  # detached
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    optimizer = sgd(model)
    session = attach(model, optimizer=optimizer, scaler=scaler, control_options=ALWAYS)
    assert session.control.scaler is scaler


def test_a_skipped_step_is_not_observed(device):
    model = network().to(device)
    optimizer, scaler = sgd(model), torch.amp.GradScaler(device.type, init_scale=1024.0)
    session = attach(model, optimizer=optimizer, control_options=ALWAYS, scaler=scaler)
    images, labels = batch(device)
    counts = []
    for index in range(6):
        broken = images * float("inf") if index == 3 else images
        weights = [parameter.detach().clone() for parameter in model.parameters()]
        buffers = [buffer.clone() for buffer in model.buffers()]
        step(model, optimizer, broken, labels, scaler)
        if index == 3:
            assert all(torch.equal(one, other) for one, other in zip(weights, model.parameters()))
            for buffer, before in zip(model.buffers(), buffers):
                buffer.copy_(before)
        assert session.control.iteration == index + 1
        observed(session)
        counts.append(session.control.native.tensors()[0]["observed"])
    assert counts == [0, 1, 2, 2, 3, 4]


OPTIMIZERS = {
    "sgd": sgd,
    "nesterov": lambda model: sgd(model, nesterov=True),
    "no momentum": lambda model: sgd(model, momentum=0),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), 1e-3),
    "rmsprop": lambda model: torch.optim.RMSprop(model.parameters(), 1e-3),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_momentum_is_a_mean_of_gradients(name, device):
    """Gradients that do not change: under every optimizer it is their mean size."""
    model = network().to(device)
    images, labels = batch(device)
    found = statistics(model, images, labels, OPTIMIZERS[name], iterations=3)
    model.zero_grad()  # Nesterov's changes gradients when it is done for many tensors at once
    F.cross_entropy(model(images), labels).backward()
    for site, module, kind in (("1 > relu", 3, "conv_weights"), ("4.input", 4, "norm_scale"),
                               ("4.input", 3, "norm_input"), ("11.input", 11, "linear_weights")):
        expected = model[module].weight.grad.abs().mean().item()
        assert found[site][kind]["momentum"] == pytest.approx(expected, rel=0.02)


def predicted(session):
    """sigma of the gradient of each parameter, from all uses that reach it."""
    variances = {}
    for row in session.control.native.tensors():
        for use in row["uses"]:
            sigma = use["sensitivity"] * 0.3 * row["rms"]
            variances[use["gradient"]] = variances.get(use["gradient"], 0) + sigma**2
    names = {id(parameter): name for name, parameter in session.model.named_parameters()}
    return {names[id(session.control.parameters[at])]: math.sqrt(value) for at, value in variances.items()}


def test_predicted_errors_of_gradients(device):
    """
    conv - batch norm - ReLU three times over and a linear layer, all held at 0.3, over 6 draws. Predicted over measured
    on a CPU: 0.97 to 1.02 for the last four parameters, 0.9 and 1.0 for the second pair, 0.88 and 0.82 for the first
    one, which errors of batch norms farther behind reach, too: the model ends at the next layer.
    """
    ratios = {}
    for seed in range(6):
        torch.manual_seed(seed)
        model = network().to(device)
        plain = copy.deepcopy(model)
        images, labels = batch(device, seed=seed)
        optimizer = sgd(model)
        optimizer.param_groups[0]["lr"] = 0.0
        session = attach(model, optimizer=optimizer, error_rel=0.3, control_options=ALWAYS)
        for _ in range(3):
            step(model, optimizer, images, labels)
        observed(session)
        F.cross_entropy(plain(images), labels).backward()
        foreseen, exact = predicted(session), dict(plain.named_parameters())
        for name, parameter in model.named_parameters():
            if name in foreseen:
                error = (parameter.grad - exact[name].grad).square().mean().item()
                ratios.setdefault(name, []).append((foreseen[name]**2, error))
    result = {name: math.sqrt(sum(one for one, _ in pairs) / sum(other for _, other in pairs))
              for name, pairs in ratios.items()}
    print({name: round(ratio, 2) for name, ratio in result.items()})
    assert len(result) == 7
    assert all(0.6 < ratio < 1.6 for ratio in result.values()), result


@pytest.mark.parametrize("method", ["comet", "comet:mean", "acgc", "budget"])
def test_bounds_follow(method, device):
    """They change when warm-up has ended, and stay between floor and ceiling."""
    model = network().to(device)
    optimizer = sgd(model)
    session = attach(model, optimizer=optimizer, control=method, control_options={"every": 2, "warmup": 4})
    for index in range(16):
        step(model, optimizer, *batch(device, seed=index))
        rows = {row["site"]: row for row in session.control.rows()}
        bounds = {site["name"]: site["bound"] for site in session.native.sites()}
        assert all(0.009 < bound <= 0.42 for bound in bounds.values())
        if index < 4:
            assert all(bound == pytest.approx(0.3) for bound in bounds.values())
    assert session.control.method == method and session.control.iteration == 16
    assert set(rows) == {"1.input", "1 > relu", "4.input", "4 > relu", "7.input", "7 > relu", "11.input"}
    assert rows["7 > relu"]["limit"] == "fixed (no layer reads it)"
    changed = [event for event in session.control.events if event["cause"] == "warm-up has ended"]
    assert {event["site"] for event in changed} == {name for name, row in rows.items() if row["observed"]}
    assert all(event["iteration"] >= 4 and event["before"] != event["after"] for event in changed)
    assert any(abs(bound - 0.3) > 0.01 for bound in bounds.values())


def test_nothing_is_looked_at_in_ordinary_steps(device):
    model = network().to(device)
    optimizer = sgd(model)
    session = attach(model, optimizer=optimizer)  # every 10th
    images, labels = batch(device)
    calls = []
    for _ in range(22):
        step(model, optimizer, images, labels)
        calls.append(session.control.native.calls)
    changes = [index for index in range(1, 22) if calls[index] != calls[index - 1]]
    assert calls[0] == 0 and changes == [10, 20]  # the first one learns what there is
    session.detach()
    before = session.control.native.calls
    step(model, optimizer, images, labels)
    assert session.control.native.calls == before


def test_statistics_become_rare_where_bounds_stay(device):
    """At first as often as the controller asks for them, then less and less; a jump of the loss brings them back."""
    model = network().to(device)
    optimizer = sgd(model)
    optimizer.param_groups[0]["lr"] = 0.0  # nothing moves
    session = attach(model, optimizer=optimizer, control_options={"every": 2, "warmup": 0, "recover": 10**6})
    images, labels = batch(device)
    collected = []
    for iteration in range(120):
        before = session.control.native.calls
        step(model, optimizer, images, labels)
        session.step(loss=1.0 if iteration < 100 else 100.0)
        if session.control.native.calls > before:
            collected.append(iteration)
    assert [at for at in collected if at < 100] == [2, 4, 6, 8, 10, 12, 14, 18, 26, 42, 62, 82]
    assert len([at for at in collected if at >= 100]) > 2  # without the jump: one


def test_without_an_optimizer_bounds_are_fixed(device):
    model = network().to(device)
    session = attach(model)
    F.cross_entropy(model(batch(device)[0]), batch(device)[1]).backward()
    assert session.control.method == "fixed" and session.control.native is None
    assert all(row["limit"] == "fixed" for row in session.control.rows())
    assert attach(network(), optimizer=sgd(network()), exact=True).control.method == "fixed"
    with pytest.raises(ValueError, match="no 'pid'"):
        attach(network(), control="pid")


def test_steps_by_hand(device):
    """A controller without an optimizer: session.step ends an iteration, and gradients stand for the momentum."""
    model = network().to(device)
    session = attach(model, control="comet", control_options=ALWAYS)
    images, labels = batch(device)
    for _ in range(3):
        model.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        session.step(loss)
    found = observed(session)
    assert found["1 > relu"]["conv_weights"]["momentum"] == pytest.approx(model[3].weight.grad.abs().mean().item(),
                                                                          rel=1e-3)


def test_a_loss_that_jumps_tightens_bounds(device):
    model = network().to(device)
    optimizer = sgd(model)
    session = attach(model, optimizer=optimizer, control_options={"every": 1, "warmup": 0})
    for index in range(32):
        step(model, optimizer, *batch(device, 8))
        session.step(100.0 if index == 28 else 2.0)
    causes = [event["cause"] for event in session.control.events if event["site"] == "*"]
    assert causes and "jumped" in causes[0]
    assert all(row["bound"] < 0.2 for row in session.control.rows() if row["observed"])


def test_what_has_no_model_keeps_its_bound(device):
    """Curves, row norms, transposed convolutions, a batch norm behind a sum, forms of modules' own."""
    def function(conv, norm, up, rows, other, x):
        y = F.relu(conv(x))
        return other(rows(F.silu(up(norm(y + conv(x)))))).mean()

    model = Program(function, nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ConvTranspose2d(8, 8, 3),
                    nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3)).to(device)
    optimizer = sgd(model)
    session = attach(model, optimizer=optimizer, forms={"parts.4": "eb:0.05"},
                     control_options={"every": 1, "warmup": 0})
    for _ in range(5):
        optimizer.zero_grad()
        model(batch(device)[0]).backward()
        optimizer.step()
    rows = {row["site"]: row for row in session.control.rows()}
    assert all(row["limit"].startswith("fixed (") and row["observed"] == 0 for row in rows.values())
    assert "no trained layer is right before it" in rows["parts.1.input"]["limit"]
    assert rows["parts.4.input"]["bound"] == pytest.approx(0.05)


def test_another_batch_size(device):
    """The last batch of an epoch is smaller: the same places in the network, with the same bounds."""
    model = network().to(device)
    optimizer = sgd(model)
    session = attach(model, optimizer=optimizer, control_options={"every": 1, "warmup": 2})
    for count in (32, 32, 32, 32, 20, 20):
        step(model, optimizer, *batch(device, count))
    bounds = {}
    for site in session.native.sites():
        bounds.setdefault(site["name"], []).append(site["bound"])
    assert all(len(both) == 2 for both in bounds.values())
    assert all(max(both) <= 1.5 * min(both) for name, both in bounds.items() if name != "11.input"), bounds


def test_a_network_that_changes(device):
    """A layer that is used from some step on: the controller is made anew, and goes on with what was observed."""
    def function(first, second, third, x):
        y = F.relu(first(x))
        return third(second(y) if model.deep else y).mean()

    model = Program(function, nn.Conv2d(3, 8, 3), nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU()),
                    nn.Conv2d(8, 8, 3)).to(device)
    optimizer = sgd(model)
    session = attach(model, optimizer=optimizer, control_options={"every": 1, "warmup": 2})
    for index in range(8):
        model.deep = index >= 4
        optimizer.zero_grad()
        model(batch(device)[0]).backward()
        optimizer.step()
        if index == 3:
            before = {row["site"] for row in session.control.rows()}
    observed(session)
    after = {row["site"]: row for row in session.control.rows()}
    assert before < set(after)
    assert all(row["observed"] > 0 for name, row in after.items())


def test_state(device):
    """A run that goes on with a saved state decides as the one that was not interrupted."""
    def run(model, optimizer, session, first, last):
        for index in range(first, last):
            step(model, optimizer, *batch(device, seed=index))
        if session.control._pending:
            session.control._observe()
        return {row["site"]: row["bound"] for row in session.control.rows()}

    options = {"control_options": {"every": 2, "warmup": 4}}
    model = network().to(device)
    optimizer = sgd(model)
    session = attach(model, optimizer=optimizer, **options)
    run(model, optimizer, session, 0, 9)
    state = session.control.state_dict()
    copied = copy.deepcopy(model)
    other = sgd(copied)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    expected = run(model, optimizer, session, 9, 16)
    again = attach(copied, optimizer=other, **options)
    again.control.load_state_dict(state)
    assert again.control.iteration == 9
    found = run(copied, other, again, 9, 16)
    assert found.keys() == expected.keys()
    assert all(found[name] == pytest.approx(expected[name], rel=0.05) for name in found)
    with pytest.raises(ValueError, match="controller 'comet'"):
        attach(network(), optimizer=other, control="acgc").control.load_state_dict(state)
    other_model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).to(device)
    strange = attach(other_model, control="comet")
    strange.control.load_state_dict(state)
    strange.model(batch(device)[0]).mean().backward()
    with pytest.warns(UserWarning, match="starts anew"):
        strange.step()


def test_report_has_the_controller(device):
    model = network(nn.SiLU).to(device)
    optimizer = sgd(model)
    session = attach(model, optimizer=optimizer)
    step(model, optimizer, *batch(device))
    assert "Controller 'comet'" in session.report() and "curve: no model" in session.report()


def test_a_failure_does_not_end_the_training(device, monkeypatch):
    monkeypatch.setattr(Control, "strict", False)
    model = network().to(device)
    optimizer = sgd(model)
    session = attach(model, optimizer=optimizer, control_options=ALWAYS)
    images, labels = batch(device)
    step(model, optimizer, images, labels)
    monkeypatch.setattr("libcomet.torch.control._moment", lambda *_: 1 / 0)
    with pytest.warns(UserWarning, match="the controller has stopped"):
        step(model, optimizer, images, labels)
    step(model, optimizer, images, labels)
    assert session.control.native is None


def test_gone_when_detached(device):
    model = network().to(device)
    optimizer = sgd(model)
    with comet.compress(model, optimizer, min_bytes=256):
        step(model, optimizer, *batch(device))
        assert len(optimizer._optimizer_step_post_hooks) == 1
    assert len(optimizer._optimizer_step_post_hooks) == 0

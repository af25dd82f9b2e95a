# SPDX-License-Identifier: Apache-2.0
"""Measured errors: what is computed of a few channels is what PyTorch says of all of them, factors put wrong predictions
right, and nothing else changes because something is measured."""
import copy
import json
import math
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import Program, assert_same_bits, attach, nodes, total
from libcomet.torch import control_measure, measure
from libcomet.torch.control import Control

ALWAYS = {"every": 1, "warmup": 10**6}  # statistics of every iteration, bounds as they are without a controller


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(Control, "strict", True)
    monkeypatch.setattr(Control, "_rest_longer", lambda *_: None)  # in every iteration, also where nothing moves
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


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


def sides(module):
    return (module.in_features, module.out_features) if isinstance(module, nn.Linear) else \
        (module.in_channels, module.out_channels)


def groups_of(module):
    return getattr(module, "groups", 1)


def layer_of(module):
    def two(value):
        return (0, *value) if len(value) == 1 else tuple(value)
    if isinstance(module, nn.Linear):
        return measure.Layer(0, (1, 1, 1, 1, 0, 0, 1, 1, 1))
    shape = [tuple(module.kernel_size), module.stride, module.padding, module.dilation]
    if len(module.kernel_size) == 1:
        shape = [(1, *shape[0]), (1, *shape[1]), (0, *shape[2]), (1, *shape[3])]
    return measure.Layer(len(module.kernel_size), (*shape[0], *shape[1], *shape[2], *shape[3], module.groups))


def weights_that_are_looked_at(module, difference, pairs, is_input):
    """(taps, count, others) of (outputs, inputs / groups, taps)."""
    inputs, outputs = (size // groups_of(module) for size in sides(module))
    result = torch.zeros(difference.shape[2], pairs.count, pairs.others, dtype=torch.float64, device=difference.device)
    for i in range(pairs.count):
        for j in range(pairs.others):
            of_input, of_output = (pairs.first + i, pairs.other + j)[::1 if is_input else -1]
            if of_input // inputs == of_output // outputs:
                result[:, i, j] = difference[of_output, of_input % inputs]
    return result


def check_measured(session, model, x, graph, tolerance):
    """All that has been measured, sum by sum. Returns the names of sites and uses."""
    measuring, exact = session.control.measuring, exact_inputs(copy.deepcopy(model), x)
    names, seen = {id(parameter): name for name, parameter in model.named_parameters()}, set()
    parameters = [names[id(parameter)].rpartition(".")[0] for parameter in session.control.parameters]
    layers = {layer.number: parameters[layer.gradient] for layer in session.control.layers.values()}
    for (kin, index), (sums, values, batches) in measuring.weights.items():
        kind, gradient, number, _ = measuring.uses[kin][index]
        name, (first, width) = parameters[gradient], measuring.parts[kin]
        module = model.get_submodule(name)
        came_back, dy = graph.of(module)
        seed = measuring.seed(number)
        if kind <= 1:
            was = exact[name].double().reshape(came_back.shape)
            difference = weight_gradient(module, came_back, dy) - weight_gradient(module, was, dy)
            pairs = measure.Pairs(layer_of(module), first, width, *sides(module), seed)
            expected = weights_that_are_looked_at(module, difference, pairs, True)
        elif kind == 2:
            was = exact[name].double()
            expected = (norm_gradients(module, came_back, dy, was)[1] -
                        norm_gradients(module, was, dy, was)[1])[first:first + width]
        else:
            site = session.native.sites()[kin]["name"].rpartition(".")[0]
            norm, was = model.get_submodule(site), exact[site].double()
            x_norm, dy_norm = graph.of(norm)
            error = norm_gradients(norm, x_norm, dy_norm, was)[0] - norm_gradients(norm, was, dy_norm, was)[0]
            assert layers[number] == name
            difference = weight_gradient(module, came_back, error)
            pairs = measure.Pairs(layer_of(module), first, width, *sides(module)[::-1], seed)
            expected = weights_that_are_looked_at(module, difference, pairs, False)
        assert batches == 1 and values == max(1, (expected != 0).sum().item())
        size = expected.square().mean().sqrt().item()
        assert size > 0
        assert (sums.double() - expected).abs().max().item() < tolerance * size, (name, kind)
        seen.add((name, kind))
    return seen


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


CASES = {"convolutions": (network, 8), "depthwise": (depthwise, 11), "rows": (conv1d, 6), "linear": (linear, 5),
         "blocks": (Blocks, 12)}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_it_is_what_pytorch_computes(case, channels_last, device):
    """Backward with what comes back less backward with what was there, for every weight that is looked at."""
    make, least = CASES[case]
    model = make().to(device)
    images = batch(device, 24)[0]
    images = images[:, :, 0] if case == "rows" else images
    if channels_last:
        if images.dim() < 4:
            pytest.skip("a row has one order")
        images, model = (it.to(memory_format=torch.channels_last) for it in (images, model))
    session, optimizer = learn(model, images, error_rel=0.2)
    seen = set()
    for _ in range(12):
        loss = loss_of(model, images)
        graph = Graph(loss)
        loss.backward()
        seen |= check_measured(session, model, images, graph, 1e-3)
        optimizer.step()
        optimizer.zero_grad()
    assert len(seen) >= least, seen


# ---- operations without a model ----


def doubled(function, x, dy):
    x = x.detach().double().requires_grad_()
    function(x).backward(dy.double())
    return x.grad


class Alone(nn.Module):
    """A SiLU that works in place, squeeze-excite, a group norm, a layer norm, GELU, and factors of channels."""

    def __init__(self):
        super().__init__()
        self.conv, self.silu = nn.Conv2d(3, 32, 3, padding=1), nn.SiLU(inplace=True)
        self.squeeze, self.norm = nn.Conv2d(32, 32, 1), nn.GroupNorm(4, 32)
        self.rows, self.gelu, self.up = nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 64)
        self.factors = nn.Parameter(torch.rand(64) + 0.5)
        for norm in (self.norm, self.rows):
            nn.init.uniform_(norm.weight, 0.5, 2)

    def forward(self, x):
        x = self.silu(self.conv(x) + 0)
        x = x * self.squeeze(F.adaptive_avg_pool2d(x, 1)).sigmoid()
        x = self.rows((self.norm(x) * 1).flatten(2).transpose(1, 2).contiguous())
        return self.gelu(self.up(x)) * self.factors


OPERATIONS = {"SiluBackward": (F.silu, "curve", "_saved_self"), "GeluBackward": (F.gelu, "curve", "_saved_self"),
              "NativeLayerNormBackward": (None, "row norm", "_saved_input"),
              "NativeGroupNormBackward": (None, "row norm", "_saved_input")}


def saved_operations(loss):
    """name -> [what comes back, gradient]"""
    found = {}
    for node in nodes(loss):
        key = node.name().rstrip("0123456789")
        if key in OPERATIONS:
            found[key] = [getattr(node, OPERATIONS[key][2]).detach().clone(), None]
            node.register_prehook(lambda grads, key=key: found[key].__setitem__(1, grads[0].detach().clone()))
    return found


# site -> its operation, and the part of its tensor that a pair (first, how many) is
PLACES = {"conv > curve": ("SiluBackward", lambda x, part: x.narrow(1, *part)),
          "up > curve": ("GeluBackward", lambda x, part: x.narrow(2, *part)),
          "rows.input": ("NativeLayerNormBackward", lambda x, part: x.reshape(-1, 32).narrow(0, *part)),
          "norm.input": ("NativeGroupNormBackward", lambda x, part: x.narrow(0, *part))}


def test_operations_without_a_model(device):
    """The error of what a part passes on, by autograd and formulas, for all of the tensor."""
    model = Alone().to(device)
    images = batch(device, 32)[0]
    session, optimizer = learn(model, images)
    exact, seen = exact_operations(model, images), set()
    for _ in range(24):
        loss = loss_of(model, images)
        saved = saved_operations(loss)
        loss.backward()
        measuring, sites = session.control.measuring, session.native.sites()
        for (kin, _), (error, whole) in measuring.operations.items():
            site = sites[kin]["name"]
            seen.add(site)
            if site not in PLACES:
                continue
            key, part_of = PLACES[site]
            x, dy = saved[key]
            function = OPERATIONS[key][0] or (lambda x, key=key: row_norm(model, key, x, exact[key]))
            was, now = (part_of(doubled(function, one, dy), measuring.parts[kin]) for one in (exact[key], x))
            assert whole.item() == pytest.approx(was.square().sum().item(), rel=1e-3), site
            assert error.item() == pytest.approx((now - was).square().sum().item(), rel=2e-3), site
            assert error.item() > 0
        optimizer.step()
        optimizer.zero_grad()
    assert seen == {*PLACES, "squeeze > scaled", " > scaled"}
    rows = [row for row in session.control.measured() if row["site"] in seen]
    assert {row["site"] for row in rows} == seen and {row["use"] for row in rows} == {"curve", "row norm", "gate"}
    assert all(row["predicted"] is None and row["factor"] is None and row["times"] > 1 for row in rows)
    assert all(0.0005 < row["measured"] < 0.2 for row in rows), rows


def exact_operations(model, images):
    """What the four operations read."""
    with torch.no_grad():
        x = model.conv(images)
        found = {"SiluBackward": x.clone()}
        x = F.silu(x)
        found["NativeGroupNormBackward"] = x = x * model.squeeze(F.adaptive_avg_pool2d(x, 1)).sigmoid()
        found["NativeLayerNormBackward"] = x = model.norm(x).flatten(2).transpose(1, 2).contiguous()
        found["GeluBackward"] = model.up(model.rows(x))
    return found


def row_norm(model, key, x, exact):
    """With the statistics of what was read, which PyTorch keeps exactly: x moves in its numerator alone."""
    norm = model.rows if "Layer" in key else model.norm
    return _Normalise.apply(x, exact.double(), norm)


class _Normalise(torch.autograd.Function):
    """A row norm whose backward pass has statistics of its own, by the formula."""

    @staticmethod
    def forward(ctx, x, exact, norm):
        rows, groups = isinstance(norm, nn.LayerNorm), getattr(norm, "num_groups", 1)
        shape = (-1, exact.shape[-1]) if rows else (exact.shape[0], groups, -1)
        was = exact.reshape(shape)
        mean, inverse = was.mean(-1, keepdim=True), (was.var(-1, correction=0, keepdim=True) + norm.eps).rsqrt()
        ctx.u, ctx.inverse, ctx.shape, ctx.norm = (x.reshape(shape) - mean) * inverse, inverse, shape, norm
        return torch.zeros_like(x)

    @staticmethod
    def backward(ctx, dy):
        weight = ctx.norm.weight.detach().double()
        g = (dy * (weight if isinstance(ctx.norm, nn.LayerNorm) else weight.view(1, -1, 1, 1))).reshape(ctx.shape)
        means = g.mean(-1, keepdim=True), (g * ctx.u).mean(-1, keepdim=True)
        return (ctx.inverse * (g - means[0] - ctx.u * means[1])).reshape(dy.shape), None, None


# ---- factors ----


def even(count, seed, device):
    """Images with an even background, the same in all of them: all of it has the same error."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.tensor([0.7, -0.4, 0.2]).view(1, 3, 1, 1).expand(count, 3, 16, 16).clone()
    images[:, :, 6:10, 6:10] = torch.randn(count, 3, 4, 4, generator=generator)
    return images.to(device)


def away(model, x):
    """All gradients point one way."""
    return (model(x).float() - 3).square().mean()


def predictions(session, bound=0.3):
    """sigma of each use by the model, by its site and kind: (without, with its factor). Nothing moves."""
    factors = {(kin, kind): factor for kin, _, kind, factor, _ in session.control.native.factors()}
    return {(row["site"], use["kind"]): (use["sensitivity"] * bound * row["rms"],
                                         use["sensitivity"] * bound * row["rms"] * factors[row["kin"], use["kind"]])
            for row in session.control.native.tensors() for use in row["uses"]}


def test_factors_put_predictions_right(device):
    """An even background, its errors alike in all images and its gradients, too: the model says a quarter of what the
    errors of all weights are, by PyTorch's own backward passes. With factors, 0.8 to 1.25 times."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(384, 10)).to(device)
    optimizer = still(model)
    session = attach(model, optimizer=optimizer, control_options=ALWAYS)
    found, errors, models = {}, {}, {}
    for index in range(60):
        images = even(32, index, device)
        loss = away(model, images)
        graph = Graph(loss) if index >= 48 else None
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if graph is None:
            continue
        exact = exact_inputs(copy.deepcopy(model), images)
        for name, key in (("2", ("0 > relu", "conv_weights")), ("6", ("6.input", "linear_weights"))):
            module, (x, dy) = model.get_submodule(name), graph.of(model.get_submodule(name))
            error = weight_gradient(module, x, dy) - weight_gradient(module, exact[name].double(), dy)
            errors.setdefault(key, []).append(error.square().mean().item())
        for key, (without, factored) in predictions(session).items():
            models.setdefault(key, []).append(without**2)
            found.setdefault(key, []).append(factored**2)
    for key, seen in errors.items():
        wrong, right = (math.sqrt(sum(some[key]) / sum(seen)) for some in (models, found))
        print(key, round(wrong, 3), round(right, 3))
        assert wrong < 0.5 and 0.8 < right < 1.25, (key, wrong, right)


def test_factors_stay_near_one_where_the_model_is_right(device):
    """Noise, convolutions, batch norms and ReLUs."""
    model = network().to(device)
    optimizer = still(model)
    session = attach(model, optimizer=optimizer, control_options=ALWAYS)
    for index in range(60):
        images, labels = batch(device, 64, index)
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    rows = session.control.measured()
    assert len(rows) == 9 and all(row["times"] >= 4 for row in rows)
    assert all(0.6 < row["factor"] < 1.5 for row in rows), rows
    assert math.prod(row["factor"] for row in rows) ** (1 / 9) == pytest.approx(1, abs=0.15)


def test_blocks(device):
    """A transformer's linear layers behind layer norms and GELU, by PyTorch's own backward passes. At 'down' the model
    is wrong: all positions have one gradient, and GELU's small values errors that are not 0 in the mean."""
    model = Blocks().to(device)
    optimizer = still(model)
    session = attach(model, optimizer=optimizer, control_options=ALWAYS)
    layers = {f"{name}.input": model.get_submodule(name) for name in ("up.0", "down.0", "up.1", "down.1", "head")}
    errors, models = {}, {}
    for index in range(110):
        images, labels = batch(device, 32, index)
        loss = F.cross_entropy(model(images), labels)
        graph = Graph(loss) if index >= 100 else None
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if graph is None:
            continue
        exact, foreseen = exact_inputs(copy.deepcopy(model), images), predictions(session)
        for site, module in layers.items():
            x, dy = graph.of(module)
            was = exact[site.removesuffix(".input")].double().reshape(x.shape)
            error = weight_gradient(module, x, dy) - weight_gradient(module, was, dy)
            errors.setdefault(site, []).append(error.square().mean().item())
            models.setdefault(site, []).append([sigma**2 for sigma in foreseen[site, "linear_weights"]])
    for site, seen in errors.items():
        wrong, right = (math.sqrt(sum(some) / sum(seen)) for some in zip(*models[site]))
        print(site, round(wrong, 3), round(right, 3))
        assert 0.75 < right < 1.33 and (wrong < 0.75 or "down" not in site), (site, wrong, right)
    rows = session.control.measured()
    assert {row["use"] for row in rows} == {"conv weights", "linear weights", "norm scale", "norm input", "curve",
                                            "gate", "row norm"}
    assert all(row["measured"] > 0 and row["times"] > 8 for row in rows)


# ---- units ----


def measured(session):
    if session.control._pending:
        session.control._observe()
    return {(row["site"], row["use"]): row for row in session.control.measured()}


def run(model, images, labels, steps=8, scaler=None, parts=1, precision=None, **options):
    """What is measured of a model that does not move."""
    optimizer = still(model)
    session = attach(model, optimizer=optimizer, control_options=ALWAYS, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        for some, theirs in zip(images.chunk(parts), labels.chunk(parts)):
            with torch.autocast(images.device.type, precision or torch.bfloat16, enabled=precision is not None):
                loss = F.cross_entropy(model(some), theirs) / parts
                (loss if scaler is None else scaler.scale(loss)).backward()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
    result = measured(session)
    assert session.control.measures and session.stats()["measuring_bytes"] == 0
    session.detach()
    return result


def same(found, expected, keys=("predicted", "measured", "factor"), **close):
    assert found.keys() == expected.keys() and found
    for key, row in expected.items():
        assert found[key]["times"] == row["times"], key
        for name in keys:
            assert found[key][name] == pytest.approx(row[name], **close), (key, name)


def test_scaled_gradients(device):
    model = network().to(device)
    images, labels = batch(device)
    expected = run(copy.deepcopy(model), images, labels)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    same(run(copy.deepcopy(model), images, labels, scaler=scaler), expected, rel=1e-3)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_autocast(precision, device):
    """What is measured is the same but for rounding: it is not the difference of a cast."""
    if device.type == "cpu" and precision == torch.float16:
        pytest.skip("convolutions of a CPU in half precision")
    model = network().to(device)
    images, labels = batch(device, 64)
    expected, found = run(copy.deepcopy(model), images, labels, 12), {}
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**14) if precision == torch.float16 else None
    found = run(copy.deepcopy(model), images, labels, 12, precision=precision, error_rel=0.3, scaler=scaler)
    assert found.keys() - expected.keys() <= {("0.input", "conv weights")}  # a copy of the images
    both = [(found[key], row) for key, row in expected.items()]
    ratios = [one["measured"] / one["predicted"] / (other["measured"] / other["predicted"]) for one, other in both]
    assert math.exp(sum(map(math.log, ratios)) / len(ratios)) == pytest.approx(1, abs=0.35), ratios


def test_two_half_batches_are_one(device):
    """Without batch norms, which would normalise each half on its own. Errors of both add up as gradients do."""
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(),
                          nn.Linear(16 * 14 * 14, 10)).to(device)
    images, labels = batch(device)
    whole, halves = (run(copy.deepcopy(model), images, labels, parts=parts) for parts in (1, 2))
    same(halves, whole, ("predicted", "measured"), rel=0.01)


# ---- what users do ----


def test_losses_and_gradients_are_those_without(device):
    """Bit by bit, while bounds are what they are: that something is measured changes nothing else."""
    def train(control):
        torch.manual_seed(3)
        model = Blocks().to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
        session = attach(model, optimizer=optimizer, control=control, control_options=ALWAYS)
        result = {}
        for index in range(10):
            images, labels = batch(device, 16, index)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            result[f"loss {index}"] = loss.detach()
            result.update({f"{name} {index}": parameter.grad.clone() for name, parameter in model.named_parameters()})
        result.update({name: value.clone() for name, value in model.state_dict().items()})
        times = sum(row["times"] for row in measured(session).values())
        session.detach()
        return result, times

    without, none = train("comet:measured=0")
    with_it, some = train("comet")
    assert none == 0 and some > 10
    assert_same_bits(with_it, without)


def test_a_graph_that_is_gone_through_twice(device):
    """It is measured once; what is predicted is of both times, so there is no factor of it."""
    model = network().to(device)
    images = batch(device)[0]
    session, optimizer = learn(model, images)
    loss = loss_of(model, images)
    loss.backward(retain_graph=True)
    once = {key: (sums.clone(), batches) for key, (sums, _, batches) in session.control.measuring.weights.items()}
    loss.backward()
    assert once and session.control.room.used == 0
    for key, (sums, _, batches) in session.control.measuring.weights.items():
        assert batches == 1 and torch.equal(sums, once[key][0])
    optimizer.step()
    rows = measured(session)
    assert rows and all(use in ("norm scale", "norm input") for _, use in rows)  # batch norms are looked at once, too


def test_graphs_that_live_on(device):
    """There is room for one at a time; the others are not measured. What comes late is not counted."""
    model = network().to(device)
    images = batch(device)[0]
    session = attach(model, control="comet", control_options=ALWAYS)  # an optimizer would change weights of live graphs
    loss_of(model, images).backward()
    session.step()
    for _ in range(3):
        losses = [loss_of(model, images) for _ in range(4)]
        assert 0 < session.control.room.used <= session.control.room.limit
        for loss in losses[:-1]:
            loss.backward()
        measuring = session.control.measuring
        before = {key: batches for key, (_, _, batches) in measuring.weights.items()}
        assert before and max(before.values()) < 3
        session.step()
        losses[-1].backward()
        assert before == {key: batches for key, (_, _, batches) in measuring.weights.items()}
        assert session.control.room.used == 0
    assert not measured(session)  # predictions were of three
    loss_of(model, images).backward()
    session.step()
    assert measured(session)


def raise_error(*_):
    raise ValueError


def test_exceptions(device):
    """Within the forward pass, and within the backward pass: nothing stays, and the next step is as any other."""
    model = network().to(device)
    images = batch(device)[0]
    session, optimizer = learn(model, images)
    for index in range(6):
        handle = model[8].register_forward_hook(raise_error) if index % 2 else \
            model[3].weight.register_hook(raise_error)
        with pytest.raises(ValueError):
            loss_of(model, images).backward()
        handle.remove()
        assert session.control.room.used == 0
    optimizer.zero_grad()
    optimizer.step()
    before = sum(row["times"] for row in measured(session).values())
    for _ in range(3):
        loss_of(model, images).backward()
        optimizer.step()
    assert sum(row["times"] for row in measured(session).values()) > before
    assert session.control.measures


def test_a_failure_ends_the_measuring_alone(device, monkeypatch):
    monkeypatch.setattr(Control, "strict", False)
    model = network().to(device)
    images = batch(device)[0]
    session, optimizer = learn(model, images)
    monkeypatch.setattr(measure.Layer, "weight_sums", lambda *_: 1 / 0)
    with pytest.warns(UserWarning, match="errors are not measured any more"):
        loss_of(model, images).backward()
    optimizer.step()
    calls = session.control.native.calls
    loss_of(model, images).backward()
    optimizer.step()
    assert session.control.native is not None and session.control.native.calls > calls
    assert session.control.room.used == 0 and session.control.measuring_bytes == 0
    assert session.control.measuring is None


def test_nothing_stays(device):
    """A thousand tensors of a few hundred steps, without the garbage collector."""
    import gc
    model = Blocks().to(device)
    images = batch(device, 8)[0]
    session, optimizer = learn(model, images)
    for index in range(150):
        if index % 3 < 2:
            loss_of(model, images).backward()
        else:
            model(images)  # a graph that nobody wants
        optimizer.step()
        optimizer.zero_grad()
        if index == 60:
            gc.collect()
            gc.disable()
            before, bytes_before = len(gc.get_objects()), resident()
    after = len(gc.get_objects())
    gc.enable()
    assert after - before < 200, after - before  # decisions are remembered
    assert resident() - bytes_before < 4 << 20
    assert session.control.room.used == 0 and total(session, "entries") == 0


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


# ---- whose turn it is ----


def sizes_of(count):
    return {kin: control_measure.Size(64 << kin % 3, 4 << 16 - kin % 3, 1 + kin % 2, 2) for kin in range(count)}


@pytest.mark.parametrize("stride", range(1, 11))
def test_all_take_their_turns(stride):
    """Whether statistics come with every turn or every tenth: all tensors, in blocks of channels that differ."""
    sizes, seen, blocks = sizes_of(70), {}, {}
    for turn in range(0, 60 * stride, stride):
        parts, room = control_measure.choose(sizes, 10 * turn, 10)
        assert 0 < len(parts) <= 10
        taken = 0
        for kin, (first, width) in parts.items():
            assert first >= 0 and first + width <= sizes[kin].channels and 2 <= width <= 8
            taken += width * sizes[kin].bytes * sizes[kin].copies
            seen[kin] = seen.get(kin, 0) + 1
            blocks.setdefault(kin, set()).add(first)
        assert taken <= room <= sum(size.channels * size.bytes for size in sizes.values()) // 192
    assert len(seen) == 70 and max(seen.values()) <= 2 * min(seen.values()) + 2
    assert sum(map(len, blocks.values())) > 0.6 * sum(seen.values())
    assert control_measure.choose(sizes, 120, 10) == control_measure.choose(dict(reversed(sizes.items())), 120, 10)
    assert control_measure.choose({}, 120, 10) == ({}, 0)


def test_a_run_that_goes_on(device):
    """From a state: the same parts are measured, and the same factors follow."""
    def steps(model, optimizer, session, first, last):
        parts = []
        for index in range(first, last):
            F.cross_entropy(model(batch(device, 32, index)[0]), batch(device, 32, index)[1]).backward()
            if session.control.measuring:
                parts.append(session.control.measuring.parts)
            optimizer.step()
            optimizer.zero_grad()
        return parts, measured(session)

    options = {"control_options": {"every": 2, "warmup": 4}}
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    session = attach(model, optimizer=optimizer, **options)
    steps(model, optimizer, session, 0, 21)
    state = json.loads(json.dumps({key: value.hex() if isinstance(value, bytes) else value
                                   for key, value in session.control.state_dict().items()}))
    state["native"] = bytes.fromhex(state["native"])
    copied = copy.deepcopy(model)
    other = torch.optim.SGD(copied.parameters(), 0.01, momentum=0.9)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    expected_parts, expected = steps(model, optimizer, session, 21, 33)
    again = attach(copied, optimizer=other, **options)
    again.control.load_state_dict(state)
    parts, found = steps(copied, other, again, 21, 33)
    assert parts == expected_parts and len(parts) == 6
    same(found, expected, ("factor",), rel=0.1)  # bounds are nearly the same: sites have seen no rms yet
    assert all(row["times"] > 0 for row in found.values())


def test_a_network_that_grows(device):
    """The controller is made anew: factors of tensors that stay are kept, and how often they were measured."""
    def function(first, second, third, last, x):
        y = F.relu(second(F.relu(first(x))))
        return last(F.relu(third(y)) if model.deep else y)

    model = Program(function, *(nn.Conv2d(channels, 16, 3) for channels in (3, 16, 16, 16))).to(device)
    model.deep = False
    session, optimizer = learn(model, batch(device)[0])

    def step(index):
        away(model, even(32, index, device)).backward()
        optimizer.step()
        optimizer.zero_grad()
        measured(session)
        return {session.native.sites()[kin]["name"]: (factor, times)
                for kin, _, _, factor, times in session.control.native.factors()}

    for index in range(8):
        before = step(index)
    model.deep = True
    session.control.measures = False  # what there is afterwards is what was handed on
    for index in range(3):
        after = step(index)
    assert set(after) - set(before) == {"parts.2 > relu"} and after["parts.2 > relu"] == (1, 0)
    assert after["parts.0 > relu"] == before["parts.0 > relu"] and before["parts.0 > relu"][1] > 1
    assert before["parts.0 > relu"][0] > 1.5


# ---- options, and what is told ----


def test_switched_off(device):
    model = network().to(device)
    images, labels = batch(device)
    assert run(copy.deepcopy(model), images, labels, 3)
    for options in ({"control": "comet:measured=0"}, {"control": "fixed"}, {"exact": True}, {"control": "comet:mean"}):
        assert run(copy.deepcopy(model), images, labels, 3, **options) == {}, options
    session = attach(model, optimizer=still(model), control="comet:mean:floor=0.02:warmup-bound=0.1:every=7")
    assert session.control.method == "comet:mean" and session.control._every == 7
    with pytest.raises(ValueError, match="a number is wanted"):
        attach(network(), optimizer=still(model), control="comet:every=often")
    with pytest.raises(ValueError, match="no option 'sometimes'"):
        attach(network(), optimizer=still(model), control="comet:sometimes=1")


def test_report(device, tmp_path):
    model = Blocks().to(device)
    images, labels = batch(device)
    optimizer = still(model)
    session = attach(model, optimizer=optimizer, control_options=ALWAYS)
    for _ in range(30):
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    measured(session)
    data = session.report("dict", tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == data
    assert {row["use"] for row in data["measured"]} >= {"conv weights", "linear weights", "norm input", "curve"}
    section = next(one for one in data["sections"] if one["title"] == "Measured errors")
    assert section["columns"] == ["site", "use", "bound", "predicted", "measured", "factor", "times"]
    assert len(section["rows"]) == len(data["measured"])
    row = next(row for row in section["rows"] if row[1] == "linear weights")
    assert all(isinstance(value, float) and value > 0 for value in row[2:6]) and row[6] > 0
    assert next(row for row in section["rows"] if row[1] == "curve")[3] == "-"
    text, page = session.report(), session.report("html")
    assert "Measured errors" in text and "norm input" in text and "Measured errors" in page


def test_memory(device):
    """What is kept is a small part of what is held, and counted."""
    model = Blocks().to(device)
    images = batch(device, 64)[0]
    session, optimizer = learn(model, images)
    room = session.control.measuring_bytes
    raw = sum(site["raw_bytes"] for site in session.native.sites())
    largest = max(site["raw_bytes"] for site in session.native.sites())
    assert 0 < room <= max(raw / 192, 2 * 2 * largest / 24)
    for _ in range(12):
        loss = loss_of(model, images)
        assert session.stats()["measuring_bytes"] == session.control.room.used <= room
        loss.backward()
        optimizer.step()
    assert 0.2 * room < session.control.room.peak <= room
    budget = types.SimpleNamespace(plan=types.SimpleNamespace(sites=[], needs=lambda *_: ([], [])), session=session)
    assert budget.session.control.measuring_bytes == room

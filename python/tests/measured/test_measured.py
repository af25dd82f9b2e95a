# SPDX-License-Identifier: Apache-2.0
"""Measured errors: what is computed of a few channels is what PyTorch says of all of them, and factors put wrong
predictions right."""
import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from conftest import attach, nodes
from libcomet.torch import measure
from measured_case import (ALWAYS, Blocks, Graph, away, batch, conv1d, depthwise, even, exact_inputs, learn, linear,
                           loss_of, network, norm_gradients, still, strict, weight_gradient)  # noqa: F401 (strict)


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

# SPDX-License-Identifier: Apache-2.0
"""fuse and unfuse: names, state and results stay; on a GPU a session then stores a norm and its activation once."""
import copy
import io

import pytest
import torch
from torch import nn
from torchvision import models

import libcomet.torch as comet
from conftest import assert_same_bits, attach, total, train_step, without_overlaps

CLASSES = 5


def sequential(activation=nn.ReLU):
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), activation(), nn.MaxPool2d(2),
                         nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), activation(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(16, CLASSES))


def timm_model(name):
    return pytest.importorskip("timm").create_model(name, num_classes=CLASSES)


MODELS = {
    "resnet18": (lambda: models.resnet18(num_classes=CLASSES), 9),   # stem and 8 blocks
    "resnet50": (lambda: models.resnet50(num_classes=CLASSES), 17),  # stem and 16 blocks
    "mobilenet_v3": (lambda: models.mobilenet_v3_small(num_classes=CLASSES), None),
    "relu": (sequential, 1),
    "silu": (lambda: sequential(nn.SiLU), 1),
    "gelu": (lambda: sequential(nn.GELU), 1),
    "timm resnet18": (lambda: timm_model("resnet18"), 9),
    "timm resnet50d": (lambda: timm_model("resnet50d"), 18),  # stem, in which two norms more are, and blocks
    "timm seresnet50": (lambda: timm_model("seresnet50"), 1),  # the stem; none of its blocks is plain
    "none": (lambda: nn.Sequential(nn.Linear(12, 4), nn.ReLU()), 0),
}


def images(device, size=32, seed=1):
    return torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(seed)).to(device)


def check_same_state(fused, plain):
    assert list(fused.state_dict()) == list(plain.state_dict())
    assert [name for name, _ in fused.named_modules()] == [name for name, _ in plain.named_modules()]
    assert_same_bits(fused.state_dict(), plain.state_dict())


@pytest.mark.parametrize("name", MODELS)
def test_names_and_state_stay(name):
    make, count = MODELS[name]
    plain = make()
    fused = copy.deepcopy(plain)
    assert comet.fuse(fused) is fused
    assert count is None or fused.comet_fused == count
    check_same_state(fused, plain)
    assert comet.fuse(fused).comet_fused == fused.comet_fused  # once more changes nothing
    comet.unfuse(fused)
    check_same_state(fused, plain)
    assert not hasattr(fused, "comet_fused")
    assert all("forward" not in module.__dict__ for module in fused.modules())


@pytest.mark.parametrize("how", ["without a session", "exact", "evaluated"])
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v3", "relu", "silu", "gelu", "timm resnet18",
                                  "timm resnet50d"])
def test_same_results_where_nothing_is_fused(name, how, device):
    """Without a session, in exact mode, and where a model does not train: layer by layer, bit-equal."""
    plain = without_overlaps(MODELS[name][0](), device)
    fused = comet.fuse(copy.deepcopy(plain))
    if how == "exact":
        attach(fused, exact=True)
    if how == "evaluated":
        attach(fused)
        with torch.no_grad():
            assert torch.equal(fused.eval()(images(device)), plain.eval()(images(device)))
        return
    assert_same_bits(train_step(fused, images(device)), train_step(plain, images(device)))


@pytest.mark.parametrize("name", ["resnet18", "relu", "silu"])
def test_default_mode_on_the_cpu(name):
    """There nothing is fused: what a session does is what it does without."""
    plain = MODELS[name][0]()
    fused = comet.fuse(copy.deepcopy(plain))
    sessions = [attach(model) for model in (plain, fused)]
    assert_same_bits(train_step(fused, images("cpu")), train_step(plain, images("cpu")))
    assert total(sessions[0], "saves") == total(sessions[1], "saves") > 0


def test_hooks_of_the_parts_are_called(device):
    """A norm or an activation that somebody listens to is called as a module, and not in one call with others."""
    model = comet.fuse(sequential()).to(device)
    parts = [module for module in model.modules() if isinstance(module, (nn.BatchNorm2d, nn.ReLU))]
    called = []
    for part in parts:
        part.register_forward_hook(lambda module, args, output: called.append(module))
    attach(model, own_norms=True)
    train_step(model, images(device))
    assert len(parts) > 1 and [parts.index(module) for module in called] == list(range(len(parts)))


def test_copies_and_files():
    """A copy is fused and its own; a file can be loaded."""
    fused = comet.fuse(sequential())
    x = images("cpu")
    file = io.BytesIO()
    torch.save(fused, file)
    file.seek(0)
    copies = [copy.deepcopy(fused), torch.load(file, weights_only=False)]
    expected = train_step(comet.unfuse(copy.deepcopy(fused)), x)
    for copied in copies:
        assert_same_bits(train_step(copied, x), expected)
    assert all(parameter.grad is None for parameter in fused.parameters())


# ---- on a GPU ----


def relative_error(result, truth, names):
    """Of all these together: what one tensor has by chance does not count."""
    error = sum((result[name].double() - truth[name].double()).square().sum() for name in names)
    return (error / sum(truth[name].double().square().sum() for name in names)).sqrt().item()


@pytest.fixture
def gpu(device):
    if device.type != "cuda":
        pytest.skip("nothing is fused on a CPU")
    return device


def check_against_truth(plain, changed, precision, seeds=4):
    """
    Both round, in another order, and networks amplify it. So they are compared with the truth, in double precision,
    over several batches: what `changed` makes of a plain model is no further from it than two or three times what the
    plain one is, but for what a small bound adds to gradients.
    """
    for module in plain.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # other types draw other masks
    buffers = list(dict(plain.named_buffers()))
    groups = {"loss": (["loss"], 3, 1e-5), "running": ([name for name in buffers if "running" in name], 2, 1e-5),
              "gradients": (list(dict(plain.named_parameters())), 2, 2e-2)}
    squares = {group: [0.0, 0.0] for group in groups}
    device = next(plain.parameters()).device
    layout = torch.channels_last if is_channels_last(plain) else torch.contiguous_format
    for seed in range(seeds):
        x = images(device, 64, seed).to(memory_format=layout)
        truth = train_step(copy.deepcopy(plain).double(), x.double())
        results = [train_step(model, x, precision=precision) for model in (changed(plain), copy.deepcopy(plain))]
        assert all(torch.equal(results[0][name], results[1][name]) for name in buffers if "num_batches" in name)
        for group, (names, _, _) in groups.items():
            for index, result in enumerate(results):
                squares[group][index] += relative_error(result, truth, names) ** 2 / seeds
    for group, (_, factor, allowed) in groups.items():
        error, plain_error = (square**0.5 for square in squares[group])
        assert error <= factor * plain_error + allowed, f"{group}: {error}, {plain_error} without"


def is_channels_last(model):
    weights = [parameter for parameter in model.parameters() if parameter.dim() == 4 and min(parameter.shape[1:]) > 1]
    return all(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "relu", "silu", "gelu", "timm resnet18", "timm resnet50d"])
def test_fused(name, precision, layout, gpu):
    def changed(model):
        model = comet.fuse(copy.deepcopy(model))
        sessions.append(attach(model, error_rel=1e-3))
        return model

    sessions, plain = [], MODELS[name][0]().to(gpu, memory_format=layout)
    check_against_truth(plain, changed, precision)
    unfused = copy.deepcopy(plain)
    session = attach(unfused, error_rel=1e-3)
    train_step(unfused, images(gpu, 64).to(memory_format=layout), precision=precision)
    assert 0 < total(sessions[0], "saves") < total(session, "saves")
    assert all(total(one, "entries") == 0 for one in sessions)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3", "relu", "silu"])
def test_own_norms(name, precision, gpu):
    """Without fuse, batch norms of a model that trains are computed by libcomet too, unless that is switched off."""
    def changed(model):
        model = copy.deepcopy(model)
        attach(model, error_rel=1e-3, own_norms=True)
        return model

    plain = MODELS[name][0]().to(gpu)
    check_against_truth(plain, changed, precision)
    other = copy.deepcopy(plain)
    attach(other, error_rel=1e-3, own_norms=False)
    expected, result = (train_step(model, images(gpu, 64)) for model in (plain, other))
    assert torch.equal(result["loss"], expected["loss"])


@pytest.mark.parametrize("activation", [None, nn.ReLU, nn.SiLU, nn.GELU], ids=["none", "relu", "silu", "gelu"])
@pytest.mark.parametrize("added", [False, True])
def test_output_of_one_layer(activation, added, gpu):
    """fp32: within 1e-5 of the largest value; zeros of a ReLU are zeros."""
    from libcomet.torch.fuse import norm_act
    if added and activation in (nn.SiLU, nn.GELU):
        pytest.skip("not fused")
    norm = nn.BatchNorm2d(16).to(gpu)
    torch.nn.init.normal_(norm.weight), torch.nn.init.normal_(norm.bias)
    x, z = (torch.randn(8, 16, 20, 20, device=gpu).requires_grad_() for _ in range(2))
    act = activation() if activation else None

    class Layer(nn.Module):
        def __init__(self, norm):
            super().__init__()
            self.norm = norm

        def forward(self, x, z):
            return norm_act(self.norm, act, x * 1, z * 1 if added else None)

    plain, fused = Layer(copy.deepcopy(norm)), Layer(norm)
    session = attach(fused, error_rel=1e-4)
    outputs = []
    for layer in (plain, fused):
        x.grad = z.grad = None
        y = layer(x, z)
        y.backward(torch.arange(y.numel(), device=gpu).view_as(y).sin())
        outputs.append([y.detach(), x.grad, layer.norm.weight.grad, layer.norm.bias.grad, z.grad if added else x.grad])
    assert total(session, "saves") > 0
    expected, result = outputs
    assert (result[0] - expected[0]).abs().max() <= 1e-5 * expected[0].abs().max()
    assert all(relative_error([one], [other], [0]) < 1e-3 for one, other in zip(result[1:], expected[1:]))
    buffers = [dict(layer.named_buffers()) for layer in (fused, plain)]
    assert relative_error(*buffers, ["norm.running_mean", "norm.running_var"]) < 1e-5
    assert torch.equal(*(layer["norm.num_batches_tracked"] for layer in buffers))


def test_unfused_again(gpu):
    """After unfuse the session does what it would have done before."""
    plain = without_overlaps(MODELS["resnet18"][0](), gpu)
    model = comet.unfuse(comet.fuse(copy.deepcopy(plain)))
    for one in (plain, model):
        attach(one)
    assert_same_bits(train_step(model, images(gpu)), train_step(plain, images(gpu)))


def test_graph_twice_and_given_up(gpu):
    model = comet.fuse(sequential()).to(gpu)
    session = attach(model)
    loss = model(images(gpu)).square().sum()
    loss.backward(retain_graph=True)
    first = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    loss.backward()
    assert all(torch.equal(one, parameter.grad) for one, parameter in zip(first, model.parameters()))
    del loss
    model(images(gpu))
    assert total(session, "entries") == 0

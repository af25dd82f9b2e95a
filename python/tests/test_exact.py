# SPDX-License-Identifier: Apache-2.0
"""exact=True: losses, gradients and running statistics are those of plain PyTorch, bit by bit."""
import copy

import pytest
import torch
from torch import nn
from torchvision import models

from conftest import assert_same_bits, attach, total, train_step, without_overlaps

CLASSES, BATCH, STEPS = 5, 4, 2


def vgg():
    model = models.vgg11_bn(num_classes=CLASSES)
    model.avgpool = nn.AdaptiveAvgPool2d(1)  # its own makes 7 x 7 out of 1 x 1, and a head of 100 million weights
    model.classifier = nn.Sequential(nn.Linear(512, 64), nn.ReLU(True), nn.Dropout(), nn.Linear(64, CLASSES))
    return model


def transformer():
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.1, batch_first=True, activation="gelu")
    return nn.Sequential(nn.Flatten(2), nn.Linear(1024, 64), layer, nn.Linear(64, CLASSES))  # a token for each colour


MODELS = {
    "resnet18": lambda: models.resnet18(num_classes=CLASSES),
    "vgg11_bn": vgg,
    "mobilenet_v2": lambda: models.mobilenet_v2(num_classes=CLASSES),
    "efficientnet_b0": lambda: models.efficientnet_b0(num_classes=CLASSES),
    "transformer": transformer,
}
HOLDS_SOMETHING = ("resnet18", "vgg11_bn", "transformer")  # the others have neither ReLUs nor large masks of dropouts


def train(model, images, precision):
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    results = {}
    for step in range(STEPS):
        result = train_step(model, images, seed=step, precision=precision)
        optimizer.step()
        results.update({f"step {step}: {name}": value for name, value in result.items()})
    return results


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("name", MODELS)
def test_training_is_bit_equal(name, layout, precision, device):
    model = without_overlaps(MODELS[name](), device).to(memory_format=layout)
    images = torch.randn(BATCH, 3, 32, 32, device=device).to(memory_format=layout)
    plain = train(copy.deepcopy(model), images, precision)
    session = attach(model, exact=True)
    assert_same_bits(train(model, images, precision), plain)
    assert total(session, "entries") == 0
    assert total(session, "saves") > 0 or name not in HOLDS_SOMETHING


def test_exact_form_of_every_module_is_bit_equal(device):
    """The same through forms=: 'exact' leaves tensors as they are, 'lossless' holds them without loss."""
    model = without_overlaps(models.resnet18(num_classes=CLASSES), device)
    images = torch.randn(BATCH, 3, 32, 32, device=device)
    plain = train_step(copy.deepcopy(model), images)
    for form in ("exact", "lossless"):
        compressed = copy.deepcopy(model)
        session = attach(compressed, forms={"*": form})
        assert_same_bits(train_step(compressed, images), plain)
        session.detach()

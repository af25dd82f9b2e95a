#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saved tensors of a ResNet-50 at 224 px, one dense and one sparse of each kind and map size, for comet bench.

usage: bench/resnet50_shapes.py OUT.npz

Needs PyTorch, torchvision and a GPU. The network is trained for 60 steps on smooth random images of ten classes, so
that its activations are not those of first weights. Dense: outputs of convolutions, which batch norms read; sparse:
outputs of ReLUs, which convolutions read. 16 samples each, NCHW, fp32.
"""
import sys

import numpy
import torch
import torchvision
from torch.nn.functional import cross_entropy, interpolate

SIDE, CLASSES, STEPS = 224, 10, 60


def smooth(samples, side, size):
    return interpolate(size * torch.randn(samples, 3, side, side, device="cuda"), SIDE, mode="bicubic")


def batch(prototypes, samples):
    labels = torch.randint(0, CLASSES, (samples,), device="cuda")
    noise = smooth(samples, 7, 1.0) + smooth(samples, 28, 0.5) + smooth(samples, 112, 0.2)
    return (prototypes[labels] + noise).to(memory_format=torch.channels_last), labels


def train(model, prototypes):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(STEPS):
        images, labels = batch(prototypes, 64)
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = cross_entropy(model(images), labels)
        loss.backward()
        optimiser.step()


def watch(model, found):
    def keep(name, kind, tensor):
        shape = "x".join(str(extent) for extent in tensor.shape[1:])
        found.setdefault(f"{name}_{kind}_{shape}", tensor.detach().float().cpu().contiguous().numpy())

    def dense(module, name):
        module.register_forward_hook(lambda _, inputs, output: keep(name, "dense", output))

    def sparse(module, name):
        module.register_forward_pre_hook(lambda _, inputs: keep(name, "sparse", inputs[0]))

    dense(model.conv1, "conv1")
    for number in (1, 2, 3, 4):
        block = getattr(model, f"layer{number}")[1]
        dense(block.conv2, f"l{number}.conv2")
        dense(block.conv3, f"l{number}.conv3")
        sparse(block.conv1, f"l{number}.block")
        sparse(block.conv3, f"l{number}.conv3in")


def main(path):
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = True
    model = torchvision.models.resnet50(num_classes=CLASSES).cuda().to(memory_format=torch.channels_last).train()
    prototypes, found = smooth(CLASSES, 14, 1.0), {}
    train(model, prototypes)
    watch(model, found)
    with torch.no_grad():
        model(batch(prototypes, 16)[0])
    numpy.savez(path, **found)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

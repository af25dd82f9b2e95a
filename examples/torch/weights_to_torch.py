#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights that Comet trained, as a state_dict for PyTorch (.pth) or as an ONNX model.

  python weights_to_torch.py comet-resnet18-pets/best.safetensors pets.pth
  python weights_to_torch.py comet-resnet18-pets/best.safetensors pets.onnx

  model = torchvision.models.resnet18(num_classes=37)
  model.load_state_dict(torch.load("pets.pth"))

The ONNX model takes images of any number, channels first, with values from 0 to 1, and gives the logits: it normalises
images itself, as they were in training. It is for networks that torchvision has, and needs the package onnx (and
onnxscript, for PyTorch 2.9 and later).
"""
import argparse
import sys

import torch

import weight_file


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="a weight file or a checkpoint of Comet")
    parser.add_argument("target", help="what to write: *.pth, *.pt or *.onnx")
    parser.add_argument("--model", help="the network, where the file does not say")
    return parser.parse_args()


class Normalised(torch.nn.Module):
    """A network behind what its images go through."""

    def __init__(self, model, mean, deviation):
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.tensor(mean).reshape(1, -1, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).reshape(1, -1, 1, 1))

    def forward(self, images):
        return self.model((images - self.mean) / self.deviation)


def build(tensors, metadata, name):
    """torchvision's network with these weights, and an image for it."""
    import torchvision
    said = metadata.get("comet.model", "").split()
    name = name or (said[0] if said else sys.exit("the file does not say which network it is of: give --model"))
    if name not in torchvision.models.list_models():
        sys.exit("torchvision has no '%s': only a state_dict (.pth) can be written" % name)
    last = [t for t in tensors.values() if t.dim() == 2][-1]
    channels = next(t for t in tensors.values() if t.dim() == 4).shape[1]
    side = int(said[2].split("=")[1].split("x")[0]) if said else 224
    model = torchvision.models.get_model(name, weights=None, num_classes=last.shape[0])
    if channels != 3:
        sys.exit("torchvision's networks take RGB, this one takes %d channel" % channels)
    model.load_state_dict(tensors)
    if "comet.images" in metadata:
        _, mean, deviation, _ = weight_file.parse_images(metadata["comet.images"])
        model = Normalised(model, mean, deviation)
    return model.eval(), torch.zeros(1, channels, side, side)


def main():
    options = parse()
    tensors, metadata = weight_file.read(options.source)
    if options.target.endswith((".pth", ".pt")):
        torch.save(tensors, options.target)
    elif options.target.endswith(".onnx"):
        model, image = build(tensors, metadata, options.model)
        torch.onnx.export(model, (image,), options.target, input_names=["images"], output_names=["logits"],
                          dynamic_axes={"images": {0: "images"}, "logits": {0: "images"}}, dynamo=False)
    else:
        sys.exit("'%s' ends neither in .pth, .pt nor in .onnx" % options.target)
    print("%s: %d tensors" % (options.target, len(tensors)))


if __name__ == "__main__":
    main()

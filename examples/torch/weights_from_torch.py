#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights of PyTorch (.pth, .pt: a state_dict, or a checkpoint that has one) as a weight file for Comet.

  python weights_from_torch.py resnet18.pth resnet18.safetensors
  python weights_from_torch.py mine.pth mine.safetensors --model resnet18 --labels classes.txt
  python weights_from_torch.py --torchvision resnet50 resnet50.safetensors      downloads torchvision's own

  comet train --model resnet18 --weights resnet18.safetensors --data folder:pets
  comet predict --from mine.safetensors photo.jpg

With --model the file says which network it is of, and `comet predict` needs to be told nothing else. Networks are
torchvision's: layers must have its names.
"""
import argparse
import sys

import torch

import weight_file

IMAGENET = (0.875, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", help="the .pth or .pt file")
    parser.add_argument("target", help="the .safetensors file")
    parser.add_argument("--torchvision", metavar="MODEL", help="torchvision's weights instead of a file")
    parser.add_argument("--model", help="what Comet calls the network: resnet18, vgg16_bn, ...")
    parser.add_argument("--image", type=int, default=224, help="height and width of images (default %(default)s)")
    parser.add_argument("--labels", metavar="FILE", help="names of the classes, a line each")
    options = parser.parse_args()
    if bool(options.source) == bool(options.torchvision):
        parser.error("either a file or --torchvision MODEL")
    return options


def state_dict_of(loaded):
    """The state_dict itself, or what training scripts put around one."""
    for key in ("state_dict", "model_state_dict", "model", "net"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    tensors = {name: t for name, t in loaded.items() if isinstance(t, torch.Tensor)} if isinstance(loaded, dict) else {}
    if not tensors:
        sys.exit("there is no state_dict in the file: save one with torch.save(model.state_dict(), ...)")
    for prefix in ("module.", "_orig_mod."):  # of DataParallel, of torch.compile
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name[len(prefix):]: t for name, t in tensors.items()}
    return tensors


def describe(tensors, options):
    """The metadata by which Comet knows the network: docs/checkpoints.md."""
    if not options.model:
        return {}
    first = next(t for t in tensors.values() if t.dim() == 4)
    last = [t for t in tensors.values() if t.dim() == 2][-1]
    classes, channels = last.shape[0], first.shape[1]
    names = [str(i) for i in range(classes)]
    if options.labels:
        with open(options.labels, encoding="utf-8") as file:
            names = file.read().splitlines()
    if len(names) != classes:
        sys.exit("%d names for %d classes" % (len(names), classes))
    centre, mean, deviation = IMAGENET
    if channels == 1:
        mean, deviation = (0.449,), (0.226,)
    return {"comet.model": "%s classes=%d image=%dx%dx%d" % (options.model, classes, options.image, options.image,
                                                             channels),
            "comet.images": weight_file.format_images(centre, mean, deviation, names)}


def main():
    options = parse()
    if options.torchvision:
        import torchvision
        weights = torchvision.models.get_model_weights(options.torchvision).DEFAULT
        tensors = weights.get_state_dict()
        options.model = options.torchvision
        metadata = describe(tensors, options)
        if not options.labels:
            metadata["comet.images"] = weight_file.format_images(*IMAGENET, weights.meta["categories"])
    else:
        tensors = state_dict_of(torch.load(options.source, map_location="cpu", weights_only=True))
        metadata = describe(tensors, options)
    weight_file.write(options.target, tensors, metadata)
    print("%s: %d tensors" % (options.target, len(tensors)))


if __name__ == "__main__":
    main()

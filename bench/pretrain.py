#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a network of torchvision's on a folder of images with PyTorch on a GPU, and writes weights for
`comet ... --weights`.

usage: pretrain.py MODEL FOLDER IMAGE EPOCHS sgd|adamw RATE OUT.safetensors
       FOLDER: with train/ and test/; batches of 64

For figures of networks that have learnt something, which takes hours on a CPU. Crops and flips, the one-cycle schedule
(of the rate alone) and weight decay are much as `comet train` has them for folders. Weights are written as bf16, which
`comet` reads. Prints a line of JSON for each tenth of the run.
"""
import json
import os
import struct
import sys
import time

import torch
import torchvision
from torchvision.transforms import v2

BATCH = 64
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def loader(folder, image, train):
    cut = ([v2.RandomResizedCrop(image), v2.RandomHorizontalFlip()] if train
           else [v2.Resize(image), v2.CenterCrop(image)])
    steps = v2.Compose([v2.RGB(), *cut, v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
                        v2.Normalize(MEAN, DEVIATION)])
    data = torchvision.datasets.ImageFolder(os.path.join(folder, "train" if train else "test"), steps)
    return torch.utils.data.DataLoader(data, BATCH, shuffle=train, drop_last=train, num_workers=min(14, os.cpu_count()),
                                       persistent_workers=True, pin_memory=True)


def write(path, state):
    """A .safetensors file: the size of a JSON header, the header, the values."""
    header, offset, parts = {}, 0, []
    for name, value in state.items():
        if value.is_floating_point():
            data = value.to(torch.bfloat16).contiguous().view(torch.int16).cpu().numpy().tobytes()
            header[name] = {"dtype": "BF16", "shape": list(value.shape), "data_offsets": [offset, offset + len(data)]}
            offset += len(data)
            parts.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)


def accuracy(net, batches):
    net.eval()
    right = total = 0
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        for x, y in batches:
            right += (net(x.cuda(non_blocking=True)).argmax(1).cpu() == y).sum().item()
            total += len(y)
    net.train()
    return 100.0 * right / total


def main():
    if len(sys.argv) != 8:
        sys.exit(__doc__)
    model, folder, image, epochs, optimiser, rate, out = sys.argv[1:]
    torch.manual_seed(1)
    batches, test = loader(folder, int(image), True), loader(folder, int(image), False)
    net = getattr(torchvision.models, model)(num_classes=len(batches.dataset.classes))
    net = net.cuda().to(memory_format=torch.channels_last)
    optimiser = (torch.optim.SGD(net.parameters(), float(rate), momentum=0.9, weight_decay=1e-4) if optimiser == "sgd"
                 else torch.optim.AdamW(net.parameters(), float(rate), weight_decay=0.01))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, float(rate), int(epochs) * len(batches),
                                                   cycle_momentum=False)
    start = time.time()
    for epoch in range(1, int(epochs) + 1):
        losses = []
        for x, y in batches:
            with torch.autocast("cuda", torch.bfloat16):
                x = x.cuda(non_blocking=True).to(memory_format=torch.channels_last)
                loss = torch.nn.functional.cross_entropy(net(x), y.cuda())
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.detach())
        if epoch % max(1, int(epochs) // 10) == 0:
            print(json.dumps({"model": model, "epoch": epoch, "loss": torch.stack(losses).mean().item(),
                              "accuracy": accuracy(net, test),
                              "seconds": round(time.time() - start, 1)}), flush=True)
    write(out, net.state_dict())


if __name__ == "__main__":
    main()

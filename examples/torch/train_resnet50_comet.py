#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains torchvision's ResNet-50 on a folder of images: FOLDER/CLASS/*.jpg.

  python train_resnet50.py photographs/train --batch 128 --epochs 10
  python train_resnet50.py --fake --image 64 --batch 8 --steps 4           made-up images, also on a CPU

train_resnet50.py is plain PyTorch. train_resnet50_comet.py is the same file with two lines more, which hold what is
saved for the backward pass compressed: `diff train_resnet50.py train_resnet50_comet.py` shows them, and nothing else.
"""
import argparse
import time

import libcomet.torch as comet
import torch
import torchvision
from torchvision.transforms import v2


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="images, in a folder for each class")
    parser.add_argument("--fake", action="store_true", help="made-up images instead of a folder")
    parser.add_argument("--image", type=int, default=224, help="height and width (default %(default)s)")
    parser.add_argument("--batch", type=int, default=128, help="images of a step (default %(default)s)")
    parser.add_argument("--epochs", type=int, default=1, help="times through all images (default %(default)s)")
    parser.add_argument("--steps", type=int, help="end after as many steps")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate (default %(default)s)")
    parser.add_argument("--workers", type=int, default=4, help="processes that read images (default %(default)s)")
    options = parser.parse_args()
    if not options.fake and not options.folder:
        parser.error("give a folder of images, or --fake")
    return options


def make_data(options):
    steps = v2.Compose([v2.RGB(), v2.RandomResizedCrop(options.image), v2.RandomHorizontalFlip(), v2.ToImage(),
                        v2.ToDtype(torch.float32, scale=True),
                        v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    if options.fake:
        size = (3, options.image, options.image)
        return torchvision.datasets.FakeData(options.batch * 64, size, num_classes=10, transform=steps)
    return torchvision.datasets.ImageFolder(options.folder, steps)


def main():
    options = parse()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = make_data(options)
    classes = 10 if options.fake else len(data.classes)
    loader = torch.utils.data.DataLoader(data, options.batch, shuffle=True, drop_last=True,
                                         num_workers=0 if options.fake else options.workers,
                                         pin_memory=device.type == "cuda")

    model = torchvision.models.resnet50(num_classes=classes).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9, weight_decay=1e-4)
    comet.attach(model, optimizer)

    step, start = 0, time.time()
    for epoch in range(options.epochs):
        for images, labels in loader:
            images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
            labels = labels.to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 1 or step == options.steps:
                print(f"epoch {epoch}, step {step}, loss {loss.item():.4f}, {time.time() - start:.1f} s", flush=True)
            if step == options.steps:
                break
        if step == options.steps:
            break
    if device.type == "cuda":
        print(f"peak of GPU memory: {torch.cuda.max_memory_allocated() / 2 ** 20:,.0f} MiB")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether a network trained with Comet's plug-in for PyTorch is as good as one trained without: accuracy on images that
were not trained on, seed by seed.

  torch_accuracy.py cifar --data cifar10                               ResNet-18 for CIFAR-10, three seeds, 15 epochs
  torch_accuracy.py dogs --data dogs28.tar --model resnet34            photographs of dogs, 160 px
  torch_accuracy.py dogs --data dogs-1.npz dogs-2.npz --minutes 4      as many epochs as fit into the time
  torch_accuracy.py cifar --device cpu --data cifar10 --images 64 --epochs 2 --batch 16 --seeds 0,1
                                                                       tries the logic; nothing of it is a result

cifar   --data: the binary batches of CIFAR-10 (data_batch_*.bin, test_batch.bin, as they are or with .xz), files or
        folders of them. ResNet-18 with a first layer of 3x3 and no max-pool; images move by up to 4 pixels, half of
        them are mirrored; SGD with Nesterov's momentum, weight decay, one cycle of the rate
dogs    --data: .tar or folder with train/CLASS/*.jpg and test/CLASS/*.jpg, or .npz of torch_images.py. A ResNet of
        torchvision's; random cuts, half of them mirrored; the same optimiser

Data lies on the device as bytes and is cut there. A seed decides weights, order and cuts, and is the same for each
variant: differences to plain PyTorch are taken seed by seed, with the 95 % interval of their mean. Variants: plain,
hooks (comet.attach), fuse (comet.fuse and attach); all that torch_plugin.py has can be named.

  s/epoch    the median, without the test
  held MiB   what was there between forward and backward in one of the last steps, less what is there between steps in
             plain PyTorch (weights, gradients, momentum, data), and what plain PyTorch holds as a multiple of it; on a
             CPU, where no allocator is asked: what Comet stored
"""
import argparse
import json
import lzma
import pathlib
import statistics
import sys
import time

import numpy as np
import pictures
import torch
import torchvision
from common import (Progress, add_comet_options, comet_options, mib, number, numbers, open_device, ratio, say, tables,
                    words)
from pictures import DataError, Pictures
from variants import OF_COMET, VARIANTS, Applied, SavedBytes, out_of, set_precision, store_of

DEFAULTS = {"cifar": {"epochs": 15, "batch": 512, "rate": 0.4, "decay": 5e-4, "model": "resnet18", "image": 32},
            "dogs": {"epochs": 20, "batch": 64, "rate": 0.1, "decay": 5e-4, "model": "resnet18", "image": 160}}


# ---- data ----


def cifar_files(paths):
    found = []
    for path in map(pathlib.Path, paths):
        if not path.exists():
            raise DataError(f"there is no '{path}'")
        found += [path] if path.is_file() else sorted([*path.glob("*_batch*.bin*")])
    chosen = {}
    for path in found:  # of a batch that is there twice, the one that need not be unpacked
        name = path.name.removesuffix(".xz")
        if name not in chosen or chosen[name].suffix == ".xz":
            chosen[name] = path
    if not any("test" in name for name in chosen) or not any("data" in name for name in chosen):
        raise DataError(f"data_batch_*.bin and test_batch.bin of CIFAR-10 are wanted (or .bin.xz), found: "
                        f"{', '.join(chosen) or 'none'}")
    return chosen


def read_cifar(paths, most):
    """Records of one byte for the class and 3,072 for pixels, colour by colour."""
    parts = []
    for name, path in sorted(cifar_files(paths).items()):
        data = lzma.open(path).read() if path.suffix == ".xz" else path.read_bytes()
        if not data or len(data) % 3073:
            raise DataError(f"'{path}' is not of records of 3,073 bytes")
        records = np.frombuffer(data, np.uint8).reshape(-1, 3073)[:most]
        pixels = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        parts.append(Pictures(pixels, records[:, 0].astype(np.int64), np.full(len(pixels), "test" in name), "CIFAR-10"))
    return Pictures(*(np.concatenate([getattr(part, field) for part in parts])
                      for field in ("pixels", "labels", "is_test")), "CIFAR-10")


def read_data(options):
    data = (read_cifar(options.data, options.images) if options.task == "cifar"
            else pictures.read(options.data, options.image, options.images))
    if data.labels is None or not data.is_test.any() or data.is_test.all():
        raise DataError("labels, and images of both 'train' and 'test', are wanted")
    return data


# ---- a training ----


def make_model(options, classes):
    model = torchvision.models.get_model(options.model, weights=None, num_classes=classes)
    if options.task == "cifar":  # for images of 32 pixels
        model.conv1, model.maxpool = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False), torch.nn.Identity()
    return model


def make_batch(feed, chosen, options):
    if options.task == "cifar":
        return feed.shift(chosen, 4, options.edges == "black")
    return feed.cut(feed.normalise(feed.pixels[chosen]), options.least_area)


class Run:
    """One seed with one variant."""

    def __init__(self, options, data, variant, seed, device, epochs):
        torch.manual_seed(seed)
        set_precision(options.precision)
        self.options, self.variant, self.device = options, variant, device
        self.train_feed = pictures.Feed(data.part(~data.is_test), device.device, seed=seed)
        self.test_feed = pictures.Feed(data.part(data.is_test), device.device)
        self.classes = data.classes()
        model = make_model(options, self.classes)
        self.model = model.to(device.device, memory_format=torch.channels_last).train()
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=options.rate, momentum=0.9, nesterov=True,
                                         weight_decay=options.decay, fused=device.is_gpu)
        self.steps = len(self.train_feed) // options.batch
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimiser, options.rate, total_steps=epochs * self.steps, pct_start=options.rise, cycle_momentum=False)
        self.applied = Applied(variant, self.model, self.optimiser, comet_options(options))

    def autocast(self):
        return torch.autocast(self.device.device.type, torch.bfloat16, enabled=self.options.precision == "bf16")

    def forward(self, images, labels, around=None):
        with (around or self.applied.around)(), self.autocast():
            return torch.nn.functional.cross_entropy(out_of(self.applied.call(images)), labels)

    def step(self, images, labels, around=None):
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.forward(images, labels, around)
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    def epoch(self):
        """Mean loss and seconds."""
        self.device.synchronize()
        begin, total = time.perf_counter(), 0.0
        for chosen in self.train_feed.shuffled(self.options.batch):
            total = total + self.step(make_batch(self.train_feed, chosen, self.options), self.train_feed.labels[chosen])
            self.schedule.step()
        mean = total.item() / self.steps  # waits for the device
        return mean, time.perf_counter() - begin

    def accuracy(self):
        """In per cent. The model itself is asked: what a variant does is for training."""
        self.model.eval()
        feed, right = self.test_feed, 0
        with torch.no_grad(), self.autocast():
            for chosen in torch.arange(len(feed), device=feed.pixels.device).split(512):
                right = right + (self.model(feed.normalise(feed.pixels[chosen])).argmax(1) == feed.labels[chosen]).sum()
        self.model.train()
        return 100.0 * right.item() / len(feed)

    def held(self):
        """What is held between forward and backward. The step is not finished: this comes after the last one."""
        chosen = self.train_feed.shuffled(self.options.batch)[0]
        images, labels = make_batch(self.train_feed, chosen, self.options), self.train_feed.labels[chosen]
        if self.variant == "plain":
            saved = SavedBytes(self.model)
            self.forward(images, labels, saved.around)
        self.device.synchronize()
        between = self.device.allocated()
        loss = self.forward(images, labels)
        self.device.synchronize()
        if self.applied.session:
            self.applied.session.native.poll()  # tensors whose streams have arrived go
        found = {"between": between, "allocated": self.device.allocated()}
        if self.variant == "plain":
            found["saved"] = saved.total()
        if self.applied.session:
            store = store_of(self.applied.session.stats(), self.device.device)
            found.update(raw=store.get("raw_bytes"), stored=store.get("stored_bytes"), misfits=store.get("misfits"))
        del loss
        return found

    def close(self):
        self.applied.undo()
        self.applied = self.model = self.optimiser = self.schedule = None


def train(options, data, variant, seed, device, epochs, tell):
    device.clear()
    run = Run(options, data, variant, seed, device, epochs)
    try:
        losses, seconds = [], []
        device.reset_peak()
        for epoch in range(epochs):
            loss, took = run.epoch()
            losses.append(loss)
            seconds.append(took)
            tell(epoch, loss, took)
        peak = device.peak()
        found = {"task": options.task, "variant": variant, "seed": seed, "epochs": epochs, "accuracy": run.accuracy(),
                 "loss": losses[-1], "losses": losses, "seconds per epoch": statistics.median(seconds[1:] or seconds),
                 "peak": peak, **run.held()}
    finally:
        run.close()
    return found


def epochs_that_fit(options, data, device):
    """An epoch of each variant is timed; then it is known how many fit into the time for all."""
    total = 0.0
    for variant in options.variants:
        run = Run(options, data, variant, 0, device, 1)
        took = run.epoch()[1]
        run.close()
        device.clear()
        say(f"{options.task} {variant}: an epoch took {took:.1f} s")
        total += took
    return max(2, min(300, int(60 * options.minutes / (total * len(options.seeds)))))


def train_all(options, data, device, write):
    epochs = epochs_that_fit(options, data, device) if options.minutes else options.epochs
    rows = []
    progress = Progress(len(options.seeds) * len(options.variants) * epochs)
    for seed in options.seeds:  # seeds outside: when it is stopped, what is there is complete
        for variant in options.variants:
            def tell(epoch, loss, took, seed=seed, variant=variant):
                progress.add(f"{options.task} {variant} seed {seed}: epoch {epoch + 1} of {epochs}, loss {loss:.4f}, "
                             f"{took:.1f} s", 1)

            rows.append(train(options, data, variant, seed, device, epochs, tell))
            progress.add(f"{options.task} {variant} seed {seed}: {rows[-1]['accuracy']:.2f} %", always=True)
            write(rows)
    progress.finish()
    return rows


# ---- what is printed ----


def held_bytes(row, plain):
    """Less what plain PyTorch has between steps, so that memory which Comet keeps there counts as its own."""
    if row["allocated"] is not None:
        return row["allocated"] - (plain or row)["between"]
    return row.get("stored", row.get("saved"))


def print_table(rows, options):
    print("| variant | " + " | ".join(f"seed {seed}" for seed in options.seeds) +
          " | mean | difference to plain, points | s/epoch | x plain | held MiB | plain/held | loss |")
    print("|---|" + "---:|" * (len(options.seeds) + 7))
    plain = [row for row in rows if row["variant"] == "plain"]
    for variant in options.variants:
        own = [row for row in rows if row["variant"] == variant]
        differences = [row["accuracy"] - other["accuracy"] for row, other in zip(own, plain)]
        seconds = statistics.median(row["seconds per epoch"] for row in own)
        held = held_bytes(own[0], plain[0] if plain else None)
        cells = [f"{row['accuracy']:.2f}" for row in own]
        cells += [f"{statistics.mean(row['accuracy'] for row in own):.2f}",
                  tables.interval(differences, 2) if variant != "plain" else "", f"{seconds:.2f}",
                  ratio(seconds, statistics.median(row["seconds per epoch"] for row in plain) if plain else None),
                  number(mib(held), 0), ratio(held_bytes(plain[0], plain[0]) if plain else None, held),
                  f"{statistics.mean(row['loss'] for row in own):.4f}"]
        print(f"| {variant} | {' | '.join(cells)} |")


# ---- command line ----


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("task", choices=tuple(DEFAULTS), help="what is learnt")
    add("--data", nargs="+", required=True, metavar="PATH", help="see above")
    add("--variants", type=words(VARIANTS), default=["plain", "hooks", "fuse"], metavar="NAME,...",
        help="default plain,hooks,fuse")
    add("--seeds", type=numbers, default=[0, 1, 2], metavar="N,...", help="default 0,1,2")
    add("--precision", choices=("bf16", "tf32", "fp32"), default="bf16", help="bf16 is autocast (default %(default)s)")
    add("--model", metavar="NAME", help="of torchvision's ResNets (default resnet18)")
    add("--image", type=int, metavar="PX", help="height and width, for dogs (default 160)")
    add("--epochs", type=int, help="default 15 for cifar, 20 for dogs")
    add("--minutes", type=float, metavar="M", help="instead of --epochs: as many as fit into the time of all runs")
    add("--batch", type=int, help="images of a step (default 512 for cifar, 64 for dogs)")
    add("--rate", type=float, help="the highest of the cycle (default 0.4 for cifar, 0.1 for dogs)")
    add("--decay", type=float, help="of weights (default 5e-4)")
    add("--rise", type=float, default=0.25, metavar="PART",
        help="of the run, in which the rate rises (default %(default)s; `comet train`: 0.3)")
    add("--edges", choices=("reflect", "black"), default="reflect",
        help="what is around an image of CIFAR that is moved (default %(default)s; `comet train`: black)")
    add("--least-area", type=float, default=0.35, metavar="PART", help="of an image in a cut, for dogs (default "
        "%(default)s)")
    add("--images", type=int, metavar="N", help="at most as many of each file, for trying (default: all)")
    add_comet_options(add)
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tries the logic (default %(default)s)")
    add("--json", metavar="FILE", help="everything that was found, written anew after each run")
    options = parser.parse_args(arguments)
    for name, value in DEFAULTS[options.task].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.task == "cifar" and options.image != 32:
        parser.error("--image is for dogs: images of CIFAR-10 have 32 pixels")
    if not options.model.startswith(("resnet", "resnext", "wide_resnet")):
        parser.error(f"--model {options.model}: a ResNet of torchvision's is wanted")
    if len(options.seeds) - 1 > max(tables.T95):
        parser.error(f"at most {max(tables.T95) + 1} seeds: bench/tables.py knows no interval beyond")
    if len(set(options.seeds)) < len(options.seeds) or options.epochs < 1:
        parser.error("--seeds must differ, and --epochs must be 1 or more")
    if set(options.variants) & set(OF_COMET):
        try:
            import libcomet.torch  # noqa: F401 (better to know it now)
        except ImportError as error:
            parser.error(f"the variants of Comet cannot be had: {error}; PYTHONPATH must have a built libcomet")
    return options


def main():
    options = parse(sys.argv[1:])
    device = open_device(options.device)
    data = read_data(options)
    training = int((~data.is_test).sum())
    if training < options.batch:
        raise DataError(f"{training} images to train on are less than a batch of {options.batch}")
    title = {"device": device.name, "torch": torch.__version__, "images": len(data), "classes": data.classes(),
             "source": data.source}

    def write(rows):
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"options": vars(options), **title, "runs": rows}, file, indent=1)

    rows = train_all(options, data, device, write)
    print(f"{options.task}: {training} images to train on, {len(data) - training} to test, {options.model}, "
          f"{options.precision}, {rows[0]['epochs']} epochs, batch {options.batch}, bound {options.bound:g}; "
          f"{device.name}, PyTorch {torch.__version__}. Accuracy in per cent\n")
    print_table(rows, options)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (DataError, OSError, lzma.LZMAError) as error:
        sys.exit(f"torch_accuracy.py: {error}")

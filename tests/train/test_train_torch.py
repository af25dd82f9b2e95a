# SPDX-License-Identifier: Apache-2.0
"""Whole networks against PyTorch in fp64: losses, gradients of the first step and weights after ten steps are no
further from it than twice PyTorch's own fp32 run is, from the same weights and batch. Distances are norms: of the
losses of an evaluation and all steps, of all gradients, of all weights and running statistics, and of each tensor of
these. What counts is the median over the seeds of our distance / PyTorch's.

A value next to the kink of a ReLU may come out on either side of it in any fp32 arithmetic, and then all gradients
behind it jump, by a thousand times what rounding does. That is chance, in PyTorch's runs as in ours, and a network of a
million ReLUs has some in ten steps. So networks with batch norms start from weights with which what a ReLU gets lies
four standard deviations off its kink, to either side by channel (what is added up to the upper one: sums of two signs
would meet the kink again); a few values in a hundred thousand still are on the other side. Networks without have a
small batch, "small" few ReLUs, and EfficientNet has none. What is left, and what max-pools choose, is rare: hence the
median. Means that are many deviations large also show what an arithmetic loses by cancellation. The learning rate is
one at which a difference does not grow much from step to step; with ten times that, training ResNet-18 or EfficientNet
is chaotic (distances of 1e-3 from either fp32).

A tensor may be further than twice PyTorch's if it is within twice what PyTorch's whole network is, relative to its
size: PyTorch's error in a tensor of a few values may be small by chance. A gradient that is null (a bias before a batch
norm) counts by its absolute size.

usage: test_train_torch.py TRAIN_DRIVER [--seeds N] [--threads N] [MODEL ...]
Without a MODEL it is "small", and ResNet-18 with three seeds and four steps; MODEL "all" is every network, with 9
seeds unless told. Skipped (77), with the reason, where there is no PyTorch: scripts/torch_venv.sh.
"""
import argparse
import copy
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import unittest

import with_torch  # noqa: F401  (before torch: another Python may have it)

import torch
import torchvision

from torch import nn

DRIVER = None
MODELS = {"small": 5, "resnet18": 3}  # and their seeds
FEWER_STEPS = {"resnet18": 4}  # of the models above, unless models are named: fp64 is slow
THREADS = 2
EVERY = {"small": (32, 16), "alexnet": (64, 4), "vgg16": (32, 2), "vgg16_bn": (32, 8), "resnet18": (64, 8),
         "resnet34": (64, 8),
         "resnet50": (64, 8), "efficientnet_b0": (64, 8)}  # pixels, batch
STEPS, RATE = 10, 0.001
DEVIATIONS = 4  # from what a ReLU gets to its kink
ULP = 2.0 ** -23
TYPES = {"F32": torch.float32, "F64": torch.float64}


def save(path, tensors):
    header, offset = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [offset, offset + 4 * t.numel()]}
        offset += 4 * t.numel()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            file.write(t.detach().float().contiguous().numpy().tobytes())


def load(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(bytearray(data[e["data_offsets"][0]:e["data_offsets"][1]]), dtype=TYPES[e["dtype"]])
            .reshape(e["shape"]) for name, e in header.items()}


def block(channels, out, stride=1):
    return [nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)]


class Small(nn.Module):
    """train_driver's network of that name."""

    def __init__(self, classes, image):
        super().__init__()
        self.stem, self.first = nn.Sequential(*block(3, 16)), nn.Sequential(*block(16, 16))
        self.second, self.third = nn.Sequential(*block(16, 16)), nn.Sequential(*block(16, 32, 2))
        side = ((image + 1) // 2 + 1) // 2 // 2
        self.fc = nn.Linear(32 * side * side, classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.stem(x).relu(), 3, 2, 1)
        x = (self.second(self.first(x).relu()) + x).relu()
        return self.fc(nn.functional.avg_pool2d(self.third(x).relu(), 2).flatten(1))


def shift_norms(net, adds):
    """Batch norms whose names end in `adds` are one side of a sum."""
    for name, module in net.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            side = torch.randint(0, 2, module.bias.shape) * 2 - 1
            module.bias.copy_(DEVIATIONS * module.weight * (1 if name.endswith(adds) else side))


@torch.no_grad()
def network(name, classes, image):
    net = Small(classes, image) if name == "small" else getattr(torchvision.models, name)(num_classes=classes)
    for module in net.modules():
        if isinstance(module, (nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
        if isinstance(module, nn.BatchNorm2d):  # not all the same: masks and scales are to be seen
            module.weight.uniform_(0.5, 1.5)
            module.bias.normal_(0, 0.2)
            module.running_mean.normal_(0, 0.1)
    if name.startswith("resnet"):
        shift_norms(net, ("downsample.1", "bn3" if name == "resnet50" else "bn2"))
    elif name == "vgg16_bn":
        shift_norms(net, ())
    return net


def run_torch(net, images, labels, steps):
    """Losses of an evaluation and of all steps, gradients of the first, weights after the last."""
    loss = nn.CrossEntropyLoss()
    net.eval()
    with torch.no_grad():
        losses = [loss(net(images), labels).item()]
    net.train()
    optimiser = torch.optim.SGD(net.parameters(), RATE, momentum=0.9)
    gradients = None
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss(net(images), labels)
        value.backward()
        losses.append(value.item())
        gradients = gradients or {k: p.grad.double().clone() for k, p in net.named_parameters()}
        optimiser.step()
    weights = {k: v.double() for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}
    return {"losses": {"": torch.tensor(losses, dtype=torch.float64)}, "gradients": gradients, "weights": weights}


def run_ours(name, classes, net, images, labels, steps, threads):
    with tempfile.TemporaryDirectory() as folder:
        before, after = os.path.join(folder, "in"), os.path.join(folder, "out")
        tensors = {k: v for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}
        tensors["batch.input"] = images.permute(0, 2, 3, 1)
        tensors["batch.labels"] = labels
        save(before, tensors)
        subprocess.run([DRIVER, "run", name, str(classes), str(images.shape[-1]), before, after, str(steps), str(RATE),
                        "-1",
                        str(threads)], check=True)
        ours = load(after)
    return {"losses": {"": ours["losses"]},
            "gradients": {k[9:]: v for k, v in ours.items() if k.startswith("gradient.")},
            "weights": {k[7:]: v for k, v in ours.items() if k.startswith("weight.")}}


def norm(tensors):
    return sum(v.double().norm().item() ** 2 for v in tensors.values()) ** 0.5


def distances(run, exact):
    """Of all tensors together (""), relative to their norm, and of each, relative to its norm, or if it is null to that
    of all."""
    differences = {k: run[k].double() - exact[k] for k in exact}
    whole = norm(exact)
    result = {k: d.norm().item() / (size if size > 1e-6 * whole else whole)
              for (k, d), size in zip(differences.items(), (v.norm().item() for v in exact.values()))}
    result[""] = norm(differences) / whole
    return result


class Torch(unittest.TestCase):
    def run_seed(self, name, image, batch, seed, threads, classes=10):
        """For losses, gradients and weights: our distances from fp64, and PyTorch's."""
        torch.manual_seed(seed)
        images, labels = torch.randn(batch, 3, image, image), torch.randint(0, classes, (batch,))
        net = network(name, classes, image)
        steps = FEWER_STEPS.get(name, STEPS)
        ours = run_ours(name, classes, net, images, labels, steps, threads)
        exact = run_torch(copy.deepcopy(net).double(), images.double(), labels, steps)
        theirs = run_torch(net, images, labels, steps)
        for what in exact:
            self.assertEqual(sorted(ours[what]), sorted(exact[what]))
        return {what: (distances(ours[what], exact[what]), distances(theirs[what], exact[what])) for what in exact}

    def check(self, name, what, pairs):
        """pairs: of each seed, our distances and PyTorch's."""
        floor = ULP if what == "losses" else 0.0
        ratios = [ours[""] / max(theirs[""], floor) for ours, theirs in pairs]
        middle = [statistics.median(side[""] for side in sides) for sides in zip(*pairs)]
        worst, tensor = 0.0, ""
        for k in pairs[0][0]:
            by_tensor = statistics.median(ours[k] / max(theirs[k], theirs[""], floor) for ours, theirs in pairs)
            worst, tensor = max((worst, tensor), (by_tensor, k))
        print(f"| {name} | {what} | {middle[0]:.1e} | {middle[1]:.1e} | {statistics.median(ratios):.2f} | "
              f"{min(ratios):.2f} to {max(ratios):.2f} | {worst:.2f} {tensor} |", flush=True)
        self.assertLessEqual(statistics.median(ratios), 2, f"{name}: {what}: {ratios}")
        self.assertLessEqual(worst, 2, f"{name}: {what}: {tensor}")

    def compare(self, name, image, batch, threads):
        seeds = [self.run_seed(name, image, batch, seed, threads) for seed in range(MODELS[name])]
        for what in seeds[0]:
            with self.subTest(name, what=what):
                self.check(f"{name} {image} px, batch {batch}", what, [seed[what] for seed in seeds])

    def test_models(self):
        print(f"PyTorch {torch.__version__}, seeds: {MODELS}, {STEPS} steps, of some fewer: {FEWER_STEPS}\n"
              "| network | what | ours | PyTorch | ratio | by seed | worst tensor |\n|---|---|---|---|---|---|---|",
              flush=True)
        if "small" in MODELS:
            self.compare("small", 19, 6, 1)
        for name in MODELS:
            self.compare(name, *EVERY[name], THREADS)


def main():
    global DRIVER, MODELS, THREADS
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--seeds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=THREADS)
    arguments = parser.parse_intermixed_args()
    DRIVER, THREADS = arguments.driver, arguments.threads
    if arguments.models:
        FEWER_STEPS.clear()
        MODELS = dict.fromkeys(EVERY if arguments.models == ["all"] else arguments.models, arguments.seeds)
    torch.set_num_threads(THREADS)
    unittest.main(argv=sys.argv[:1], verbosity=1)


if __name__ == "__main__":
    main()

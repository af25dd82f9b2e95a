# SPDX-License-Identifier: Apache-2.0
"""Loss, gradients and weights after some steps against PyTorch in fp64: no further from it than twice PyTorch's own fp32.

A value next to the threshold of a ReLU may come out on either side of it in any fp32 arithmetic, and then all gradients behind it
jump. It happens to PyTorch as it does to us, but not in the same runs. So there are several runs, and what is compared is the mean of
log(our distance / PyTorch's distance) over them: it must not be above log(2) by more than chance explains (one-sided t, 95 %).

usage: test_train_torch.py TRAIN_DRIVER [--seeds N] [MODEL ...]
Skipped (77), with the reason, where torchvision is not installed. On Debian: apt-get install python3-torch python3-torchvision
"""
import copy
import json
import math
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
    import torchvision
except ImportError as reason:
    system = "/usr/bin/python3"  # where Debian's packages are, if another Python comes first
    if os.path.exists(system) and os.path.realpath(system) != os.path.realpath(sys.executable):
        os.execv(system, [system, "-B"] + sys.argv)
    print(f"skipped: {reason} (Debian: python3-torch and python3-torchvision)")
    sys.exit(77)

from torch import nn

DRIVER = None
MODELS = []
SEEDS = 3
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


def network(name, classes, image, seed):
    torch.manual_seed(seed)
    net = Small(classes, image) if name == "small" else getattr(torchvision.models, name)(num_classes=classes)
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(module, torchvision.ops.StochasticDepth):
            module.p = 0.0
        if isinstance(module, nn.BatchNorm2d):  # not all the same: masks and scales are to be seen
            with torch.no_grad():
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.2)
                module.running_mean.normal_(0, 0.1)
    return net


def run_torch(net, images, labels, steps, rate):
    """Evaluation loss, training loss, gradients of the first step, weights after the last."""
    loss = nn.CrossEntropyLoss()
    net.eval()
    with torch.no_grad():
        evaluated = loss(net(images), labels).item()
    net.train()
    optimiser = torch.optim.SGD(net.parameters(), rate, momentum=0.9)
    first, gradients = None, None
    for step in range(steps):
        optimiser.zero_grad()
        value = loss(net(images), labels)
        value.backward()
        if step == 0:
            first = value.item()
            gradients = {k: p.grad.double().clone() for k, p in net.named_parameters()}
        optimiser.step()
    weights = {k: v.double() for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}
    return [first, evaluated], gradients, weights


def distance(a, b):
    """Of dictionaries of tensors: the norm of all differences, and that of each."""
    each = {k: (a[k].double() - b[k]).norm().item() for k in b}
    return sum(v * v for v in each.values()) ** 0.5, each


def size(tensors):
    return sum(v.double().norm().item() ** 2 for v in tensors.values()) ** 0.5


# Of Student's t, by degrees of freedom: what it is below with a probability of 95 %.
ONE_SIDED = {1: 6.31, 2: 2.92, 3: 2.35, 4: 2.13, 5: 2.02, 6: 1.94, 7: 1.89, 8: 1.86, 9: 1.83}


def above(logs, limit):
    """Is the mean of logs above the limit by more than chance explains?"""
    excess = statistics.mean(logs) - limit
    if len(logs) == 1:
        return excess > 0
    return excess > ONE_SIDED[len(logs) - 1] * statistics.stdev(logs) / len(logs) ** 0.5


class Torch(unittest.TestCase):
    def run_all(self, name, image, batch, seed, classes, steps, rate, threads):
        """The same run in our fp32, PyTorch's fp32 and its fp64."""
        net = network(name, classes, image, seed)
        images, labels = torch.randn(batch, 3, image, image), torch.randint(0, classes, (batch,))
        with tempfile.TemporaryDirectory() as folder:
            before, after = os.path.join(folder, "in"), os.path.join(folder, "out")
            tensors = {k: v for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}
            tensors["batch.input"] = images.permute(0, 2, 3, 1)
            tensors["batch.labels"] = labels
            save(before, tensors)
            subprocess.run([DRIVER, "run", name, str(classes), str(image), before, after, str(steps), str(rate), "-1", str(threads)],
                           check=True)
            ours = load(after)
        exact = run_torch(copy.deepcopy(net).double(), images.double(), labels, steps, rate)
        theirs = run_torch(net, images, labels, steps, rate)
        mine = ([v.item() for v in ours["loss"]], {k[9:]: v for k, v in ours.items() if k.startswith("gradient.")},
                {k[7:]: v for k, v in ours.items() if k.startswith("weight.")})
        self.assertEqual(sorted(mine[1]), sorted(exact[1]))
        self.assertEqual(sorted(mine[2]), sorted(exact[2]))
        return mine, theirs, exact

    def check_loss(self, name, mine, theirs, exact):
        for i, what in enumerate(["loss", "evaluation"]):
            error, allowed = abs(mine[0][i] - exact[0][i]), 2 * abs(theirs[0][i] - exact[0][i]) + 1e-6 * abs(exact[0][i])
            self.assertLessEqual(error, allowed, f"{name}: {what}")

    def check_logs(self, name, what, pairs):
        """pairs: of our distance and PyTorch's, for each seed."""
        logs = [math.log(max(ours, 1e-30) / max(theirs, 1e-30)) for ours, theirs in pairs]
        self.assertFalse(above(logs, math.log(2)), f"{name}: {what}: {pairs}")

    def compare(self, name, image, batch, seeds, classes=10, steps=10, rate=0.01, threads=2):
        totals, layers = {1: [], 2: []}, {1: {}, 2: {}}
        for seed in seeds:
            mine, theirs, exact = self.run_all(name, image, batch, seed, classes, steps, rate, threads)
            self.check_loss(name, mine, theirs, exact)
            for i in totals:
                error, each = distance(mine[i], exact[i])
                reference, reference_each = distance(theirs[i], exact[i])
                totals[i].append((error / size(exact[i]), reference / size(exact[i])))
                for k in each:  # what is null but for rounding counts by its absolute size
                    null = 1e-6 * exact[i][k].norm().item() + 1e-7
                    layers[i].setdefault(k, []).append((each[k] + null, reference_each[k] + null))
        for i, what in ((1, "gradients"), (2, f"weights after {steps} steps")):
            middle = [statistics.median(side) for side in zip(*totals[i])]
            print(f"{name} {image} px, batch {batch}, {len(seeds)} seeds: {what}: median distance to fp64 {middle[0]:.1e}, PyTorch fp32 {middle[1]:.1e}",
                  flush=True)
            self.check_logs(name, what, totals[i])
            for k, pairs in layers[i].items():
                self.check_logs(name, f"{what}: {k}", pairs)

    def test_models(self):
        for name in MODELS or ["small"]:
            with self.subTest(name):
                if name == "small":
                    self.compare("small", 19, 6, range(SEEDS))
                    self.compare("small", 32, 16, range(SEEDS), threads=1)
                else:
                    self.compare(name, 64 if name != "alexnet" else 96, 8, range(SEEDS))


if __name__ == "__main__":
    DRIVER, MODELS = sys.argv[1], sys.argv[2:]
    if MODELS[:1] == ["--seeds"]:
        SEEDS, MODELS = int(MODELS[1]), MODELS[2:]
    torch.set_num_threads(2)
    unittest.main(argv=sys.argv[:1], verbosity=1)

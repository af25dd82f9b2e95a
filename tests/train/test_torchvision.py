# SPDX-License-Identifier: Apache-2.0
"""Models, first values, weight files, optimisers and schedules against torchvision and PyTorch.

usage: test_torchvision.py TRAIN_PROBE
Skipped (77), with the reason, where there is no PyTorch: scripts/torch_venv.sh.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import with_torch  # noqa: F401  (before torch: another Python may have it)

import torch
import torchvision

PROBE = None
NAMES = ["alexnet", "vgg16", "vgg16_bn", "resnet18", "resnet34", "resnet50", "efficientnet_b0"]
TYPES = {torch.float32: "F32", torch.int64: "I64", torch.float16: "F16", torch.bfloat16: "BF16"}


def probe(*arguments, data=None):
    done = subprocess.run([PROBE, *map(str, arguments)], input=data, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def raw(tensor):
    if not tensor.dim():
        return struct.pack("<q", tensor.item())
    return bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy())


def save(path, tensors):
    header, offset = {}, 0
    for name, t in tensors.items():
        size = t.numel() * t.element_size()
        header[name] = {"dtype": TYPES[t.dtype], "shape": list(t.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            file.write(raw(t))


def load(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    types = {v: k for k, v in TYPES.items()}
    return {name: torch.frombuffer(bytearray(data[e["data_offsets"][0]:e["data_offsets"][1]]), dtype=types[e["dtype"]])
            .reshape(e["shape"]) for name, e in header.items()}


def model(name, classes=1000):
    return getattr(torchvision.models, name)(num_classes=classes)


def keep(tensor, *arguments, **others):
    return tensor


class Models(unittest.TestCase):
    @mock.patch.object(torch.Tensor, "uniform_", keep)  # values are not looked at, and 138 million of them take time
    @mock.patch.object(torch.Tensor, "normal_", keep)
    def test_names_shapes_and_order(self):
        for name in NAMES:
            for classes in (1000, 13):
                theirs = [f"{k} {'x'.join(map(str, v.shape))}" for k, v in model(name, classes).state_dict().items()
                          if not k.endswith("num_batches_tracked")]
                self.assertEqual(probe("parameters", name, classes, 224).decode().splitlines(), theirs, name)

    def test_first_values(self):
        """Each parameter's mean and deviation, within what so many random values allow."""
        torch.manual_seed(1)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("resnet18", "efficientnet_b0", "alexnet"):
                path = os.path.join(folder, "initial.safetensors")
                probe("initial", name, 1000, 224, 5, path)
                ours = load(path)
                for key, theirs in model(name).state_dict().items():
                    a, b = (t.flatten()[:200000].double() for t in (ours[key], theirs))
                    if b.numel() < 100 or b.std() == 0:
                        self.assertTrue(b.numel() < 100 or torch.equal(a, b), f"{name} {key}")
                        continue
                    slack = 7 / b.numel() ** 0.5
                    self.assertLess(abs(a.std() / b.std() - 1), slack, f"{name} {key}")
                    self.assertLess(abs(a.mean() - b.mean()) / b.std(), slack, f"{name} {key}")
                    uniform = b.abs().max() < 2 * b.std()  # sqrt(3) deviations; of a normal's 100 values one is above 2
                    self.assertEqual(a.abs().max() < 2 * a.std(), uniform, f"{name} {key}")


class Weights(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.source = os.path.join(self.folder.name, "in.safetensors")
        self.target = os.path.join(self.folder.name, "out.safetensors")

    def trained(self, name):
        network = model(name).train()
        with torch.no_grad():
            for _ in range(3):
                network(torch.rand(2, 3, 64, 64))
        return network.state_dict()

    def test_there_and_back(self):
        for name in ("resnet18", "efficientnet_b0"):
            state = self.trained(name)
            save(self.source, state)
            probe("weights", name, 1000, 64, self.source, self.target)
            back = load(self.target)
            self.assertEqual(set(back), set(state))
            for key, value in state.items():
                self.assertEqual(value.dtype, back[key].dtype, key)
                self.assertTrue(torch.equal(value, back[key]), key)
            model(name).load_state_dict(back)

    def test_half(self):
        for dtype in (torch.float16, torch.bfloat16):
            state = {k: v.to(dtype) if v.is_floating_point() else v for k, v in self.trained("resnet18").items()}
            save(self.source, state)
            probe("weights", "resnet18", 1000, 64, self.source, self.target)
            back = load(self.target)
            for key, value in state.items():
                self.assertTrue(torch.equal(value.float() if value.is_floating_point() else value, back[key]), key)

    def test_other_classes(self):
        save(self.source, self.trained("resnet18"))
        line = probe("weights", "resnet18", 120, 64, self.source, self.target).decode()
        self.assertIn("'fc.weight' (120 classes, of which the file has 1000)", line)
        self.assertEqual(list(load(self.target)["fc.weight"].shape), [120, 512])


class Optimisers(unittest.TestCase):
    COUNT, STEPS = 1003, 12

    def compare(self, kind, make, momentum=0.0, nesterov=0, decay=0.0, rate=0.1):
        torch.manual_seed(1)
        values, gradients = torch.randn(self.COUNT), torch.randn(self.STEPS, self.COUNT)
        out = probe("optimiser", kind, momentum, nesterov, decay, self.COUNT, self.STEPS, rate,
                    data=raw(values) + raw(gradients))
        ours = torch.frombuffer(bytearray(out), dtype=torch.float32).reshape(self.STEPS, self.COUNT)
        p = values.clone().requires_grad_()
        optimiser = make([p])
        for step in range(self.STEPS):
            optimiser.param_groups[0]["lr"] = rate / (step + 1)
            p.grad = gradients[step].clone()
            optimiser.step()
            self.assertLess((p.detach() - ours[step]).abs().max(), 1e-6, f"{kind} step {step}")

    def test_sgd(self):
        for momentum, nesterov, decay in ((0, 0, 0), (0, 0, 1e-2), (0.9, 0, 0), (0.9, 0, 5e-4), (0.9, 1, 5e-4)):
            self.compare("sgd", lambda p: torch.optim.SGD(p, lr=1, momentum=momentum, nesterov=bool(nesterov),
                                                          weight_decay=decay), momentum, nesterov, decay)

    def test_adamw(self):
        for decay in (0, 0.01, 0.3):
            self.compare("adamw", lambda p: torch.optim.AdamW(p, lr=1, weight_decay=decay), decay=decay, rate=0.01)


class Schedules(unittest.TestCase):
    def compare(self, make, name, steps, warmup=0, start=0.01, every=10, gamma=0.1, least=0.0, momentum=False):
        lines = probe("schedule", name, 0.4, steps, warmup, start, every, gamma, least).decode().split("\n")
        optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4, momentum=0.9)
        scheduler = make(optimiser)
        for step in range(steps):
            rate, ours = map(float, lines[step].split())
            group = optimiser.param_groups[0]
            self.assertAlmostEqual(rate, group["lr"], delta=1e-9, msg=f"{name} step {step} of {steps}")
            if momentum:
                self.assertAlmostEqual(ours, group["momentum"], delta=1e-9, msg=f"{name} step {step}")
            optimiser.step()
            if step + 1 < steps:
                scheduler.step()

    def test_all(self):
        s = torch.optim.lr_scheduler
        self.compare(lambda o: s.StepLR(o, 30, 0.2), "step", 100, every=30, gamma=0.2)
        self.compare(lambda o: s.CosineAnnealingLR(o, 100), "cosine", 100)
        self.compare(lambda o: s.CosineAnnealingLR(o, 77, eta_min=0.05), "cosine", 77, least=0.05)
        for steps in (7, 100, 333):
            self.compare(lambda o: s.OneCycleLR(o, 0.4, total_steps=steps), "one-cycle", steps, momentum=True)

    def test_warm_up(self):
        s = torch.optim.lr_scheduler
        self.compare(lambda o: s.SequentialLR(o, [s.LinearLR(o, 0.1, total_iters=20), s.CosineAnnealingLR(o, 80)],
                                              [20]),
                     "cosine", 100, warmup=20, start=0.1)


if __name__ == "__main__":
    PROBE = sys.argv.pop(1)
    torch.set_num_threads(2)
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}")
    unittest.main()

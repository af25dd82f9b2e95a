#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training step takes in PyTorch on the CPU, beside `comet compare`: time, what is saved for backward, resident
peak.

usage: pytorch_step.py MODEL IMAGE BATCH STEPS [THREADS]     MODEL: of torchvision, resnet8 or resnet18-cifar

Prints one JSON object: the version of PyTorch, median ms of a step for contiguous and for channels_last memory, bytes
that autograd saves (each storage once, parameters left out) and the resident high-water mark beyond what was there
before the network, as it is and less weights, gradients and momentum. The mark is taken as `comet` takes its own
(cmd/common/measure.h): everything is imported and has run once before, the mark is set back then, and pages of files
(code of libraries that is run for the first time) do not count. Each layout is measured in a process of its own.
"""
import json
import statistics
import subprocess
import sys
import time


def make(name):
    import torch
    import torchvision
    from torch import nn

    if name == "resnet18-cifar":
        net = torchvision.models.resnet18(num_classes=10)
        net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
        return net, 10
    if name != "resnet8":
        return getattr(torchvision.models, name)(num_classes=1000), 1000

    class Block(nn.Module):
        def __init__(self, channels, out, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
            self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
            self.relu, self.stride, self.more = nn.ReLU(inplace=True), stride, out - channels

        def forward(self, x):
            y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
            if self.more:
                x = nn.functional.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.more))
            return self.relu(y + x)

    blocks = [Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)), 10


def resident(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))


def begin():
    """Sets the high-water mark back. What the libraries need of their own is there by then: a small network has been
    trained."""
    import gc

    import torch
    import torchvision  # noqa: F401 (make() would import it later)

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                              torch.nn.Linear(8 * 36, 2))
    torch.nn.functional.cross_entropy(net(torch.randn(2, 3, 8, 8)), torch.tensor([0, 1])).backward()
    torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9).step()
    del net
    gc.collect()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return resident("VmRSS"), resident("RssFile")


def peak_since(mark):
    return resident("VmHWM") - mark[0] - max(0, resident("RssFile") - mark[1])


def measure(name, image, batch, steps, threads, layout):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    mark = begin()
    net, classes = make(name)
    form = getattr(torch, layout)
    net = net.to(memory_format=form)
    x = torch.randn(batch, 3, image, image).contiguous(memory_format=form)
    labels = torch.randint(0, classes, (batch,))
    optimiser = torch.optim.SGD(net.parameters(), 1e-3, momentum=0.9)
    own = {p.data_ptr() for p in net.parameters()}
    saved, ms = {}, []

    def pack(t):
        if t.data_ptr() not in own:
            storage = t.untyped_storage() if hasattr(t, "untyped_storage") else t.storage()
            saved[storage.data_ptr()] = storage.nbytes()
        return t

    for step in range(steps):
        start = time.perf_counter()
        optimiser.zero_grad()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t) if step == 0 else torch.enable_grad():
            loss = torch.nn.functional.cross_entropy(net(x), labels)
        loss.backward()
        optimiser.step()
        ms.append(1e3 * (time.perf_counter() - start))
    static = 3 * sum(p.numel() * 4 for p in net.parameters()) + sum(b.numel() * b.element_size() for b in net.buffers())
    peak = peak_since(mark)
    return {"torch": torch.__version__, "ms_per_step": statistics.median(ms[min(2, steps - 1):]),
            "saved_bytes": sum(saved.values()),
            "static_bytes": static, "measured_peak_bytes": peak, "peak_minus_static_bytes": peak - static}


def main():
    name, image, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    threads = int(sys.argv[5]) if len(sys.argv) > 5 else 2
    if len(sys.argv) > 6:
        print(json.dumps(measure(name, image, batch, steps, threads, sys.argv[6])))
        return
    answer = {"model": name, "image": image, "batch": batch, "threads": threads}
    for layout in ("contiguous_format", "channels_last"):
        run = subprocess.run([sys.executable, __file__, *sys.argv[1:5], str(threads), layout], check=True,
                             stdout=subprocess.PIPE)
        answer[layout] = json.loads(run.stdout)
    print(json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()

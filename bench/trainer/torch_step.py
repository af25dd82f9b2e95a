#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training step takes in PyTorch, measured as `comet bench step` measures its own: the same SGD, the same steps,
time and memory taken in the same way, JSON with the same names.

  torch_step.py --model resnet50 --batch 128 --data photographs.tar --json torch.json
  torch_step.py --model vgg16 --dtype bf16 --variants eager,compile --settle 20
  torch_step.py --device cpu --model resnet18 --image 32 --batch 4 --dtype fp32 --variants eager,checkpoint --settle 1
                --steps 2 --row 2                           tries the logic; nothing of it is a result

Variants: eager; checkpoint (every block); compile; compile-budget (compile with an activation memory budget of 0.5).
Types: tf32, fp32 (no TF32); bf16, fp16 (autocast, fp16 with a scaled loss). channels_last, cuDNN's benchmark on.

  peak_bytes      the most that the driver says is taken beyond what was taken before the network was there, images of
                  the --ready batches included in that: after the updates that settle, PyTorch's cache being emptied.
                  On a CPU what is resident, as bench/pytorch_step.py takes it
  allocated_peak_bytes   the most that PyTorch had allocated at once in the same steps, beyond what there was before
  static_bytes    weights, statistics, gradients and momentum, which are in both
  saved_raw_bytes what autograd saves (eager alone), each storage once, without parameters
  first_steps_ms  up to eight; the first of `compile` compiles
  images          on the device, normalised, where Comet takes bytes from the host; --images host does as Comet does
"""
import argparse
import collections
import json
import math
import pathlib
import statistics
import sys
import time

import torch
import torchvision

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "plugin"), str(HERE.parent)]
import pictures  # noqa: E402 (found by the line above)
import pytorch_step  # noqa: E402
from common import Progress, mib, number, open_device, say, words  # noqa: E402
from variants import SavedBytes, Setting, Training, out_of  # noqa: E402

VARIANTS = {"eager": "plain", "checkpoint": "checkpoint", "compile": "compile", "compile-budget": "compile-budget"}
DTYPES = ("tf32", "fp32", "bf16", "fp16")
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
NO_NORM = ("alexnet", "vgg11", "vgg13", "vgg16", "vgg19")
DECAY = 1e-4  # of `comet` for photographs
FIRST = 8  # steps whose times are told; the driver is asked after the first three, as `comet bench step` does
LOOKS = 3


class Step(Training):
    """A training of bench/plugin/variants.py with weight decay, and fp16 beside its types."""

    def __init__(self, setting, variant):
        super().__init__(setting, variant)
        self.half = HALF.get(setting.precision)
        self.scaler = torch.amp.GradScaler(setting.device.type, enabled=setting.precision == "fp16")
        for group in self.optimiser.param_groups:
            group["weight_decay"] = DECAY

    def forward(self, images, labels, around=None):
        autocast = torch.autocast(self.setting.device.type, self.half or torch.bfloat16, enabled=self.half is not None)
        with (around or self.applied.around)(), autocast:
            return torch.nn.functional.cross_entropy(out_of(self.applied.call(images)), labels)

    def step(self, images, labels, around=None):
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.forward(images, labels, around)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimiser)
        self.scaler.update()
        return loss.detach()


# ---- memory ----


class GpuMemory:
    """What the driver and PyTorch's allocator say, beyond what they said at the beginning: before the first variant,
    so that what libraries keep for themselves counts for all alike, as with `comet bench step`."""

    first = None

    def __init__(self, device):
        device.clear()
        GpuMemory.first = GpuMemory.first or (self.used(), device.allocated())
        self.device, (self.before, self.allocated) = device, GpuMemory.first
        self.most = self.before

    @staticmethod
    def used():
        free, total = torch.cuda.mem_get_info()
        return total - free

    def look(self):
        self.most = max(self.most, self.used())

    def again(self):
        self.device.clear()
        self.device.reset_peak()
        self.most = self.before

    def peak(self):
        self.look()
        return self.most - self.before

    def allocated_peak(self):
        return self.device.peak() - self.allocated


class CpuMemory:
    def __init__(self, device):
        self.mark = pytorch_step.begin()

    def look(self):
        pass

    def again(self):
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")

    def peak(self):
        return pytorch_step.peak_since(self.mark)

    def allocated_peak(self):
        return None


# ---- batches that are ready ----


def make_ready(options, photographs, device, classes):
    """Made before memory is looked at: random cuts, as bytes of the host or as numbers on the device."""
    feed = pictures.Feed(photographs, torch.device("cpu"), classes)
    ready = collections.deque()
    for _ in range(options.ready):
        images, labels = feed.batch(options.batch)
        if options.images == "host":
            pixels = ((images.permute(0, 2, 3, 1) / feed.factor) + feed.mean).clamp(0, 255).byte().contiguous()
            ready.append((pixels.pin_memory() if device.is_gpu else pixels, labels.to(device.device)))
        else:
            ready.append((images.to(device.device, memory_format=torch.channels_last), labels.to(device.device)))
    return ready


class Turn:
    """The batches one after the other, round and round."""

    def __init__(self, options, ready, device):
        self.ready, self.device, self.from_host = ready, device, options.images == "host"
        self.mean = 255 * torch.tensor(pictures.MEAN, device=device.device)
        self.factor = 1 / (255 * torch.tensor(pictures.DEVIATION, device=device.device))

    def next(self):
        self.ready.rotate(-1)
        images, labels = self.ready[-1]
        if self.from_host:
            pixels = images.to(self.device.device, non_blocking=True)
            images = ((pixels - self.mean) * self.factor).permute(0, 3, 1, 2)
        return images, labels


# ---- a variant ----


def timed_step(training, turn, device):
    """Milliseconds from the call to the end of all work, and until the host had issued it."""
    begin = time.perf_counter()
    loss = training.step(*turn.next())
    issued = time.perf_counter()
    device.synchronize()
    return 1e3 * (time.perf_counter() - begin), 1e3 * (issued - begin), loss


def settle(options, training, turn, device, memory):
    first = []
    for step in range(options.settle):
        if step < FIRST:
            first.append(timed_step(training, turn, device)[0])
        else:
            training.step(*turn.next())
        if step < LOOKS:
            memory.look()
    device.synchronize()
    return {"updates_before": options.settle, "first_steps_ms": first, "first_peak_bytes": memory.peak()}


def time_steps(options, training, turn, device, memory):
    for _ in range(3):
        training.step(*turn.next())
    device.synchronize()
    times, issued = [], []
    for _ in range(options.steps):
        ms, host, loss = timed_step(training, turn, device)
        times.append(ms)
        issued.append(host)
        memory.look()
    found = {"ms": statistics.median(times), "least_ms": min(times), "most_ms": max(times),
             "issue_ms": statistics.median(issued), "loss": loss.item()}
    begin = time.perf_counter()
    for _ in range(options.row):
        training.step(*turn.next())
    device.synchronize()
    row = 1e3 * (time.perf_counter() - begin) / max(1, options.row)
    found.update(row_ms=row, images_per_second=1e3 * options.batch / row if options.row else 0)
    return found


def count_saved(training, turn, variant):
    """Hooks of other variants would be hidden by those that count."""
    if variant != "eager":
        return None
    saved = SavedBytes(training.model)
    training.step(*turn.next(), around=saved.around)
    return saved.total()


def measure(options, dtype, variant, turn, device, classes):
    rate = options.rate or 0.1 * min(options.batch, 256) / 256 / (10 if options.model in NO_NORM else 1)
    setting = Setting(options.model, dtype, torch.channels_last, rate, device.device, classes=classes)
    memory = (GpuMemory if device.is_gpu else CpuMemory)(device)
    begin = time.perf_counter()
    training = Step(setting, VARIANTS[variant])
    device.synchronize()
    found = {"variant": variant, "dtype": dtype, "start_ms": 1e3 * (time.perf_counter() - begin)}
    try:
        found.update(settle(options, training, turn, device, memory))
        memory.again()
        found.update(time_steps(options, training, turn, device, memory))
        found.update(peak_bytes=memory.peak(), allocated_peak_bytes=memory.allocated_peak(),
                     static_bytes=training.own_bytes())
        saved = count_saved(training, turn, variant)
        found.update(saved_raw_bytes=saved, saved_stored_bytes=saved)
    finally:
        training.close()
    return found


def measure_safely(options, dtype, variant, *rest):
    """A variant that fails leaves the others to be measured."""
    try:
        found = measure(options, dtype, variant, *rest)
        return found if math.isfinite(found["loss"]) else {**found, "failed": f"the loss is {found['loss']}"}
    except Exception as error:  # noqa: BLE001 (whatever a variant raises belongs into its row)
        if options.stop:
            raise
        text = str(error).strip().split("\n")[0] or type(error).__name__
        say(f"{dtype} {variant}: {type(error).__name__}: {text}")
        return {"variant": variant, "dtype": dtype, "failed": text}


def found_before(options, title):
    """Rows of an earlier call that was cut short, if it asked for the same."""
    if not options.resume or not options.json or not pathlib.Path(options.json).exists():
        return []
    with open(options.json) as file:
        earlier = json.load(file)
    same = all(earlier.get(key) == title[key] for key in ("model", "batch", "image", "device", "data"))
    return [row for row in earlier["results"] if same and "failed" not in row]


def measure_all(options, device, photographs, write, rows):
    classes = photographs.classes() or 10  # of pictures without labels: as many as those that `comet` makes
    turn = Turn(options, make_ready(options, photographs, device, classes), device)
    wanted = [(dtype, variant) for dtype in options.dtype for variant in options.variants]
    progress = Progress(len(wanted))
    for dtype, variant in wanted:
        if any((row["dtype"], row["variant"]) == (dtype, variant) for row in rows):
            continue
        rows.append(measure_safely(options, dtype, variant, turn, device, classes))
        device.clear()
        write(rows)
        row = rows[-1]
        progress.add(f"{options.model} {dtype} {variant}: " +
                     (row.get("failed") or f"{row['ms']:.2f} ms, in a row {row['row_ms']:.2f}"), 1, always=True)
    progress.finish()


def print_rows(rows):
    print(f"{'':5} {'':15} {'median':>8} {'in a row':>8} {'issued':>8} {'images/s':>8} {'peak':>9} {'allocated':>9} "
          f"{'static':>8} {'saved':>9}")
    for row in rows:
        if "failed" in row:
            print(f"{row['dtype']:5} {row['variant']:15} failed: {row['failed']}")
            continue
        static, allocated = row["static_bytes"], row["allocated_peak_bytes"]
        print(f"{row['dtype']:5} {row['variant']:15} {row['ms']:8.2f} {row['row_ms']:8.2f} {row['issue_ms']:8.2f} "
              f"{row['images_per_second']:8.0f} {number(mib(row['peak_bytes'] - static)):>9} "
              f"{number(mib(allocated and allocated - static)):>9} {number(mib(static)):>8} "
              f"{number(mib(row['saved_raw_bytes'])):>9}")


# ---- command line ----


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", default="resnet50", help="of torchvision (default %(default)s)")
    add("--batch", type=int, default=128, help="images of a step (default %(default)s)")
    add("--image", type=int, default=224, metavar="PX", help="height and width (default %(default)s)")
    add("--dtype", type=words(DTYPES), default=["tf32", "bf16"], metavar="NAME,...",
        help="of tf32, fp32, bf16, fp16 (default tf32,bf16)")
    add("--variants", type=words(tuple(VARIANTS)), default=list(VARIANTS), metavar="NAME,...", help="default: all")
    add("--data", nargs="+", metavar="PATH",
        help="photographs: a .tar or a folder of JPEG files (default: smooth random images)")
    add("--photographs", type=int, default=1024, metavar="N", help="at most as many are read (default %(default)s)")
    add("--images", choices=("device", "host"), default="device", help="where batches lie (default %(default)s)")
    add("--rate", type=float, help="of SGD with momentum 0.9 (default: that of `comet` for photographs)")
    add("--settle", type=int, default=30, metavar="N", help="updates before it is measured (default %(default)s)")
    add("--steps", type=int, default=20, metavar="N", help="timed one by one (default %(default)s)")
    add("--row", type=int, default=100, metavar="N", help="timed in a row (default %(default)s)")
    add("--ready", type=int, default=8, metavar="N", help="batches that go round (default %(default)s)")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tries the logic (default %(default)s)")
    add("--stop", action="store_true", help="end with the traceback where a variant fails, instead of going on")
    add("--resume", action="store_true", help="what is in the --json file already is not measured again")
    add("--json", metavar="FILE", help="everything that was found, written anew after each variant")
    options = parser.parse_args(arguments)
    if options.model not in torchvision.models.list_models(module=torchvision.models):
        parser.error(f"torchvision has no network '{options.model}' for images")
    if min(options.batch, options.steps, options.ready) < 1 or min(options.settle, options.row) < 0:
        parser.error("--batch, --steps and --ready must be 1 or more, --settle and --row 0 or more")
    return options


def main():
    options = parse(sys.argv[1:])
    device = open_device(options.device)
    photographs = (pictures.read(options.data, options.image, options.photographs) if options.data
                   else pictures.make_smooth(options.image, 64))
    title = {"torch": torch.__version__, "machine": device.name, "device": options.device, "model": options.model,
             "data": photographs.source, "images": options.images, "batch": options.batch, "image": options.image}
    rows = found_before(options, title)

    def write(rows):
        if options.json:
            with open(options.json, "w") as file:
                json.dump({**title, "results": rows}, file, indent=1)

    measure_all(options, device, photographs, write, rows)
    print(f"{options.model}, batch {options.batch}, {photographs.source}, {options.settle} updates before; ms of a "
          f"step, MiB\n")
    print_rows(rows)
    return 1 if any("failed" in row for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (pictures.DataError, OSError) as error:
        sys.exit(f"torch_step.py: {error}")

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The largest batch that PyTorch trains inside a memory cap, and how many images a second go through there: what
comet_caps.py finds for Comet.

  torch_caps.py --data photographs.tar --caps 4GiB,8GiB,16GiB --variants eager,checkpoint --json found.json
  torch_caps.py --device cpu --caps 24 --model resnet18 --image 32 --dtype fp32 --plans 2,4 --multiple 4 --steps 1
                --timed 1                               tries the logic: a batch of more than 24 'fails'

The cap is torch.cuda.set_per_process_memory_fraction, the same for all variants: PyTorch's allocator takes no more from
the driver. Two batches are trained without it, and what they took gives the batch to begin with. From there batches
change by --multiple, or by 3 % where that is more, until one fits and the next one does not; a batch fits if --steps
steps of a fresh training can be run. `torch.compile` compiles anew for each batch, with its size known.
"""
import argparse
import json
import pathlib
import sys
import time

import torch
import torchvision

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "plugin"), str(HERE.parent), str(HERE)]
import pictures  # noqa: E402 (found by the line above)
from common import numbers, open_device, say, words  # noqa: E402
from torch_batch import Images, is_out_of_memory, size  # noqa: E402
from torch_step import DTYPES, VARIANTS, Step  # noqa: E402
from variants import Setting  # noqa: E402


class CpuCap(Exception):
    """'Out of memory' on a CPU, to try the search."""


class Search:
    def __init__(self, options, model, dtype, variant, images, device):
        self.options, self.variant, self.images, self.device = options, variant, images, device
        self.setting = Setting(model, dtype, torch.channels_last, 0.01, device.device)

    def train(self, batch, steps, timed=0, cap=None):
        """Seconds of a step in a row, and what the allocator took. Raises what the training raises."""
        if cap and not self.device.is_gpu and batch > cap:
            raise CpuCap("out of memory")
        torch._dynamo.reset()
        training = Step(self.setting, VARIANTS[self.variant])
        try:
            images, labels = (tensor.to(self.setting.device) for tensor in self.images.first(batch))
            self.device.reset_peak()
            for _ in range(steps):
                training.step(images, labels)
            self.device.synchronize()
            begin = time.perf_counter()
            for _ in range(timed):
                training.step(images, labels)
            self.device.synchronize()
            row = (time.perf_counter() - begin) / max(1, timed)
            return {"row_ms": 1e3 * row, "images_per_second": batch / row if timed else None,
                    "allocated_peak_bytes": self.device.peak(), "reserved_peak_bytes": self.device.peak_reserved(),
                    "outside_bytes": self.device.outside()}
        finally:
            training.close()

    def try_batch(self, batch, cap, timed):
        """What it took; None if it does not fit."""
        found = None
        try:
            found = self.train(batch, self.options.steps, timed, cap)
        except Exception as error:  # noqa: BLE001 (of all kinds: a library may have its own for 'no memory')
            if not isinstance(error, CpuCap) and not is_out_of_memory(error):
                raise
        self.device.clear()  # outside of `except`: by now no traceback holds the tensors of the step that failed
        return found

    def line(self):
        """Bytes of an image, and what there is without any. A CPU is not asked: 1 and 0."""
        self.limit(None)
        took = []
        for batch in self.options.plans:
            found = self.try_batch(batch, None, 0)
            if found is None:
                raise RuntimeError(f"batch {batch} does not fit without any cap")
            took.append(found["allocated_peak_bytes"] or batch)
        low, high = self.options.plans
        slope = (took[1] - took[0]) / (high - low)
        if slope <= 0:  # workspaces outweigh images
            raise RuntimeError(f"batches of {low} and {high} take as much: --plans larger ones")
        return slope, took[0] - slope * low

    def limit(self, cap):
        if self.device.is_gpu:
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, cap / total) if cap else 1.0)

    def largest(self, cap, line):
        """The largest batch that was seen to fit, what was measured with it, and the smallest seen not to."""
        unit, (slope, start) = self.options.multiple, line
        at = max(1, min(int((cap - start) / slope), self.options.most) // unit) * unit
        step = max(unit, int(0.03 * at) // unit * unit)
        good, found, bad = 0, None, None
        self.limit(cap)
        for _ in range(self.options.tries):
            answer = self.try_batch(at, cap, self.options.timed)
            say(f"{self.setting.model} {self.setting.precision} {self.variant}: batch {at} " + (
                f"{answer['images_per_second']:,.0f} images/s" if answer else "does not fit"))
            if answer:
                good, found = at, answer
            else:
                bad = at
            at = at + step if answer else at - step
            if at < unit or at > self.options.most or at == bad or at == good:
                break
        return good, found, bad

    def run(self, write):
        line = self.line()
        for name, cap in self.options.caps.items():
            good, found, bad = self.largest(cap, line)
            row = {"tool": "torch", "model": self.setting.model, "dtype": self.setting.precision,
                   "variant": self.variant, "cap": name, "image": self.options.image, "batch": good, "too_large": bad,
                   **(found or {})}
            write(row if good else {**row, "failed": "no batch was found that fits"})


def caps(text):
    return {word: int(word) if word.isdigit() else size(word) for word in text.split(",")}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--caps", type=caps, default=caps("4GiB,8GiB,16GiB"), metavar="SIZE,...",
        help="default 4GiB,8GiB,16GiB; on a CPU: images")
    add("--model", type=words(), default=["resnet50"], metavar="NAME,...", help="of torchvision (default resnet50)")
    add("--dtype", type=words(DTYPES), default=["bf16"], metavar="NAME,...", help="default bf16")
    add("--variants", type=words(tuple(VARIANTS)), default=["eager", "checkpoint"], metavar="NAME,...",
        help="default eager,checkpoint")
    add("--data", nargs="+", metavar="PATH", help="photographs: a .tar or a folder (default: smooth random images)")
    add("--photographs", type=int, default=512, metavar="N", help="at most as many are read (default %(default)s)")
    add("--image", type=int, default=224, metavar="PX", help="height and width (default %(default)s)")
    add("--plans", type=numbers, default=[32, 64], metavar="B,B", help="trained without a cap (default 32,64)")
    add("--multiple", type=int, default=16, metavar="N", help="batches are multiples of it (default %(default)s)")
    add("--most", type=int, default=3072, metavar="N", help="no batch above is tried (default %(default)s)")
    add("--tries", type=int, default=6, metavar="N", help="of batches, for each cap (default %(default)s)")
    add("--steps", type=int, default=4, help="that must go well (default %(default)s)")
    add("--timed", type=int, default=10, metavar="STEPS", help="for images a second (default %(default)s)")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tries the logic (default %(default)s)")
    add("--json", metavar="FILE", help="everything that was found, written anew after each cap")
    options = parser.parse_args(arguments)
    known = torchvision.models.list_models(module=torchvision.models)
    for model in options.model:
        if model not in known:
            parser.error(f"torchvision has no network '{model}' for images")
    if len(options.plans) != 2 or options.plans[0] >= options.plans[1] or options.plans[0] < 1:
        parser.error("--plans: two batches, the smaller one first")
    return options


def main():
    options = parse(sys.argv[1:])
    device, rows, failed = open_device(options.device), [], 0
    photographs = (pictures.read(options.data, options.image, options.photographs) if options.data
                   else pictures.make_smooth(options.image, 64))
    images = Images(pictures.Feed(photographs, torch.device("cpu")), torch.channels_last)

    def write(row):
        rows.append(row)
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"torch": torch.__version__, "machine": device.name, "runs": rows}, file, indent=1)

    for model in options.model:
        for dtype in options.dtype:
            for variant in options.variants:
                try:
                    Search(options, model, dtype, variant, images, device).run(write)
                except Exception as error:  # noqa: BLE001 (the others go on)
                    text = str(error).strip().split("\n")[0] or type(error).__name__
                    say(f"{model} {dtype} {variant}: {text}")
                    write({"tool": "torch", "model": model, "dtype": dtype, "variant": variant, "cap": "",
                           "batch": 0, "failed": text})
                    failed = 1
                device.clear()
    return failed


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (pictures.DataError, OSError) as error:
        sys.exit(f"torch_caps.py: {error}")

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The largest batch that can be trained inside a memory cap, and how many images a second go through there: plain
PyTorch, checkpoints, and Comet.

  torch_batch.py --data photographs.tar --cap 8GiB                      ResNet-50 in bf16
  torch_batch.py --data photographs.tar --cap 8GiB --precisions tf32,bf16 --json found.json
  torch_batch.py --device cpu --cap 40 --models resnet18 --image 32 --steps-before 2 --photographs 8
                                                                        tries the logic: a batch of more than 40 'fails'

The cap is torch.cuda.set_per_process_memory_fraction: PyTorch's allocator takes no more than that from the driver, and
what is asked for beyond it ends in 'CUDA out of memory'. It is the same for all variants. The CUDA context and the code
of libraries are outside of it for all; 'outside' is the memory beside PyTorch's allocator, so that it can be seen
whether a variant escapes the cap.

A batch is good if --steps steps of a fresh training can be run with it, the first included, in which sizes are not
known yet. Weights are those of --steps-before steps of plain training, without the cap. Batches are multiples of
--multiple: doubled until one fails, then halved between the last good and the first bad one. With --from the search
begins where an earlier one ended, and goes on in steps of --multiple. Then the largest good batch is timed. 'retries'
are the times in a step that the allocator gave back its cache and asked again: more than 0 makes steps slow.
"""
import argparse
import json
import os
import re
import statistics
import sys
import time

import pictures
import torch
import torchvision
from common import (Progress, add_comet_options, comet_options, mib, number, open_device, ratio, say, words)
from variants import OF_COMET, VARIANTS, Setting, Training, train_before


def size(text):
    """Bytes of 8GiB, 500MiB or 2e9."""
    match = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?) *([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 8GiB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** " KMGT".index(match[2].upper() or " "))


class CapOfCpu(Exception):
    """There is no cap on a CPU: batches of more images than it says fail with this, to try the search."""


def is_out_of_memory(error):
    return (isinstance(error, (torch.cuda.OutOfMemoryError, MemoryError, CapOfCpu)) or
            type(error).__name__ == "BudgetError" or "out of memory" in str(error).lower())


# ---- one batch ----

LEAST_LEFT = 64 << 20  # libraries keep a workspace


class Images:
    """The first ones of always the same images, on the host: what the cap leaves is for training alone. Each is made
    once."""

    def __init__(self, feed, layout):
        self.feed, self.layout = feed, layout
        self.feed.order.manual_seed(1), self.feed.chance.manual_seed(1)
        self.images, self.labels = feed.batch(1, layout)

    def first(self, count):
        missing = count - len(self.images)
        if missing > 0:
            images, labels = self.feed.batch(missing, self.layout)
            self.images, self.labels = torch.cat([self.images, images]), torch.cat([self.labels, labels])
        return self.images[:count], self.labels[:count]


class Search:
    def __init__(self, options, setting, variant, state, images, device, tell):
        self.options, self.setting, self.variant, self.state = options, setting, variant, state
        self.images, self.device, self.tell, self.tries = images, device, tell, 0
        self.left = device.allocated()

    def train(self, batch, steps, timed=0):
        """Runs steps with that batch and times some more. Raises what the training raises."""
        if not self.device.is_gpu and batch > self.options.cap:
            raise CapOfCpu()
        training = Training(self.setting, self.variant, self.state, comet_options(self.options))
        try:
            images, labels = (tensor.to(self.setting.device) for tensor in self.images.first(batch))
            for _ in range(steps):
                training.step(images, labels)
            self.device.synchronize()
            retries, ms = self.device.retries(), []
            self.device.reset_peak()
            for _ in range(timed):
                start = time.perf_counter()
                loss = training.step(images, labels)
                self.device.synchronize()
                ms.append(1e3 * (time.perf_counter() - start))
            if not timed:
                return {}
            begin = time.perf_counter()
            for _ in range(timed):
                training.step(images, labels)
            self.device.synchronize()
            row = (time.perf_counter() - begin) / timed
            now = self.device.retries()
            return {"images per s": batch / row, "ms": statistics.median(ms), "ms in a row": 1e3 * row,
                    "loss": loss.item(), "peak MiB": mib(self.device.peak()),
                    "reserved MiB": mib(self.device.peak_reserved()), "outside MiB": mib(self.device.outside()),
                    "retries": None if now is None else (now - retries) / (2 * timed)}
        finally:
            training.close()

    def is_good(self, batch):
        self.tries += 1
        self.tell(f"batch {batch}")
        good = False
        try:
            self.train(batch, self.options.steps)
            good = True
        except Exception as error:  # noqa: BLE001 (of all kinds: a library may have its own for 'no memory')
            if not is_out_of_memory(error):
                raise
        # outside of `except`: by now no traceback holds the tensors of the step that failed
        self.device.clear()
        self.check_left(batch)
        return good

    def check_left(self, batch):
        """What a try leaves behind would make the next one fail early."""
        left = self.device.allocated()
        if self.left is not None and left is not None and left > self.left + LEAST_LEFT:
            say(f"{self.variant}: {mib(left - self.left):,.0f} MiB were not given back after batch {batch}")

    def largest(self):
        """The largest good batch; 0: not even the smallest."""
        unit, most = self.options.multiple, self.options.most // self.options.multiple
        good, bad = 0, None
        known = self.options.known.get((self.setting.model, self.setting.precision, self.variant))
        at = max(1, min((known or self.options.start) // unit, most))
        while bad is None and good < most:
            if self.is_good(at * unit):
                good, at = at, min(at + 1 if known else 2 * at, most)
            else:
                bad = at
        if known and bad and not good:  # less than it was: downwards in the same way
            good = bad - 1
            while good and not self.is_good(good * unit):
                bad, good = good, good - 1
        while bad is not None and bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self.is_good(middle * unit) else (good, middle)
        return good * unit

    def run(self):
        found = {"model": self.setting.model, "precision": self.setting.precision, "variant": self.variant,
                 "batch": self.largest()}
        while found["batch"] and self.options.timed:
            self.tell(f"batch {found['batch']}: time")
            try:
                found.update(self.train(found["batch"], self.options.steps, self.options.timed))
                break
            except Exception as error:  # noqa: BLE001
                if not is_out_of_memory(error):
                    raise
            self.device.clear()
            say(f"{self.variant}: batch {found['batch']} failed in a longer run; the next smaller one is taken")
            found["batch"] -= self.options.multiple
        found["tries"] = self.tries
        self.device.clear()
        return found


# ---- all of them ----


def search_all(options, photographs, device, write):
    layout = torch.channels_last if options.layout == "nhwc" else torch.contiguous_format
    rows, images = [], Images(pictures.Feed(photographs, torch.device("cpu")), layout)
    settings = [Setting(model, precision, layout, options.rate, device.device, tries_kernels=not options.cudnn_rules)
                for model in options.models for precision in options.precisions]
    progress = Progress(len(settings) * len(options.variants))
    for setting in settings:
        name = f"{setting.model} {setting.precision}"

        def tell_step(step, loss, name=name):
            progress.add(f"{name}: training, step {step + 1} of {options.steps_before}")

        if device.is_gpu:
            torch.cuda.set_per_process_memory_fraction(1.0)
        state = train_before(setting, pictures.Feed(photographs, device.device), options.before_batch,
                             options.steps_before, tell_step)
        device.clear()
        if device.is_gpu:
            torch.cuda.set_per_process_memory_fraction(options.cap / torch.cuda.get_device_properties(0).total_memory)
        for variant in options.variants:
            def tell(text, variant=variant):
                progress.add(f"{name} {variant}: {text}")

            try:
                rows.append(Search(options, setting, variant, state, images, device, tell).run())
            except Exception as error:  # noqa: BLE001 (whatever a variant raises belongs into its row)
                if options.stop:
                    raise
                text = str(error).strip().split("\n")[0] or type(error).__name__
                say(f"{name} {variant}: {type(error).__name__}: {text}")
                rows.append({"model": setting.model, "precision": setting.precision, "variant": variant, "error": text})
            device.clear()
            progress.add(f"{name} {variant}: batch {rows[-1].get('batch', '-')}", 1, always=True)
            write(rows)
    progress.finish()
    return rows


def print_table(rows):
    columns = ("model", "precision", "variant", "batch", "x plain", "images/s", "x plain", "ms", "peak MiB", "reserved",
               "outside", "retries")
    print(f"| {' | '.join(columns)} |\n|{'---|' * 3}{'---:|' * (len(columns) - 3)}")
    for row in rows:
        start = [row["model"], row["precision"], row["variant"]]
        if "error" in row:
            print(f"| {' | '.join(start)} | {row['error'].replace('|', '/')} |{' |' * (len(columns) - 4)}")
            continue
        plain = next((other for other in rows if other["variant"] == "plain" and "error" not in other
                      and (other["model"], other["precision"]) == (row["model"], row["precision"])), {})
        cells = [str(row["batch"]), ratio(row["batch"], plain.get("batch")), number(row.get("images per s"), 0),
                 ratio(row.get("images per s"), plain.get("images per s")), number(row.get("ms")),
                 number(row.get("peak MiB"), 0), number(row.get("reserved MiB"), 0), number(row.get("outside MiB"), 0),
                 number(row.get("retries"), 1)]
        print(f"| {' | '.join(start + cells)} |")


def read_found(path):
    with open(path) as file:
        return {(run["model"], run["precision"], run["variant"]): run.get("batch") for run in json.load(file)["runs"]}


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--cap", type=size, required=True, metavar="SIZE", help="8GiB, 500MiB; on a CPU: images of the largest batch")
    add("--data", nargs="+", metavar="PATH",
        help="photographs: a .tar or a folder of JPEG files, .npy or .npz of torch_images.py (default: smooth random "
             "images)")
    add("--photographs", type=int, default=1024, metavar="N", help="at most as many are read (default %(default)s)")
    add("--models", type=words(), default=["resnet50"], metavar="NAME,...", help="of torchvision (default resnet50)")
    add("--precisions", type=words(("tf32", "bf16", "fp32")), default=["bf16"], metavar="NAME,...",
        help="of tf32, bf16 (autocast), fp32 (default bf16)")
    add("--variants", type=words(VARIANTS), default=["plain", "checkpoint", "hooks", "fuse"], metavar="NAME,...",
        help="of torch_plugin.py (default plain,checkpoint,hooks,fuse)")
    add("--image", type=int, default=224, metavar="PX", help="height and width (default %(default)s)")
    add("--layout", choices=("nhwc", "nchw"), default="nhwc", help="nhwc is channels_last (default %(default)s)")
    add("--cudnn-rules", action="store_true",
        help="torch.backends.cudnn.benchmark is off: no kernels are tried in first steps, with workspaces of gigabytes")
    add("--rate", type=float, default=0.02, help="of SGD with momentum (default %(default)s)")
    add("--multiple", type=int, default=8, metavar="N", help="batches are multiples of it (default %(default)s)")
    add("--start", type=int, default=64, metavar="N", help="the batch that is tried first (default %(default)s)")
    add("--most", type=int, default=8192, metavar="N", help="no batch above is tried (default %(default)s)")
    add("--steps", type=int, default=5, help="that must go well (default %(default)s)")
    add("--timed", type=int, default=10, metavar="STEPS", help="for images a second; 0: none (default %(default)s)")
    add("--from", dest="found", metavar="FILE", help="the --json of an earlier search")
    add("--steps-before", type=int, default=200, metavar="STEPS", help="of plain training (default %(default)s)")
    add("--before-batch", type=int, default=64, metavar="N", help="the batch of these (default %(default)s)")
    add_comet_options(add)
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tries the logic (default %(default)s)")
    add("--stop", action="store_true", help="end with the traceback where a variant fails, instead of going on")
    add("--json", metavar="FILE", help="everything that was found, written anew after each variant")
    options = parser.parse_args(arguments)
    known = torchvision.models.list_models(module=torchvision.models)
    for model in options.models:
        if model not in known:
            parser.error(f"torchvision has no network '{model}' for images")
    if options.most < options.multiple or min(options.multiple, options.steps) < 1 or options.timed < 0:
        parser.error("--most must be at least --multiple, --multiple and --steps at least 1, --timed at least 0")
    try:
        options.known = read_found(options.found) if options.found else {}
    except (OSError, ValueError, KeyError) as error:
        parser.error(f"--from: '{options.found}' is no result of this program: {error}")
    if set(options.variants) & set(OF_COMET):
        try:
            import libcomet.torch  # noqa: F401 (better to know it now)
        except ImportError as error:
            parser.error(f"the variants of Comet cannot be had: {error}; PYTHONPATH must have a built libcomet")
    return options


def main():
    options = parse(sys.argv[1:])
    device = open_device(options.device)
    if device.is_gpu and options.cap > torch.cuda.get_device_properties(0).total_memory:
        sys.exit(f"torch_batch.py: --cap is more than {device.name} has")
    photographs = (pictures.read(options.data, options.image, options.photographs) if options.data
                   else pictures.make_smooth(options.image, min(options.photographs, 64)))
    if not options.data:
        say("no --data: smooth random images instead of photographs")
    title = {"device": device.name, "torch": torch.__version__,
             "images": f"{len(photographs)} of {photographs.source}" if options.data else photographs.source,
             "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")}

    def write(rows):
        if options.json:
            with open(options.json, "w") as file:
                chosen = {name: value for name, value in vars(options).items() if name != "known"}
                json.dump({"options": chosen, **title, "runs": rows}, file, indent=1)

    rows = search_all(options, photographs, device, write)
    cap = f"{mib(options.cap):,.0f} MiB" if device.is_gpu else f"{options.cap} images (no memory is measured)"
    print(f"cap {cap}, {options.image} px, {options.layout}, bound {options.bound:g}; {title['images']}; "
          f"{device.name}, PyTorch {torch.__version__}\n")
    print_table(rows)
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (pictures.DataError, OSError) as error:
        sys.exit(f"torch_batch.py: {error}")

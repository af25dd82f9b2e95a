#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training step of torchvision's ResNet takes on a GPU, in plain PyTorch and with Comet's kernels in it: time by
kind of kernel, wall time, memory.

  bench/gpu_step.py --library build/release/lib/libcomet.so                 the measurement, a table
  bench/gpu_step.py --library build/release/lib/libcomet.so --check         whether gradients are right

The library is that of a build with -DBUILD_SHARED_LIBS=ON and CUDA. PyTorch and torchvision are needed.

The measurement trains on random images (channels-last, SGD with momentum, fused) in TF32 and in bf16 autocast, as
PyTorch does it ('eager') and with activations kept as streams of libcomet ('comet': batch norm, ReLU, addition and
compression in one kernel, convolutions rebuild their inputs; bench/comet_resnet.py). Its lines:

  wall ms           of a step, the median, the device awaited at its end
  host ms           until the host had issued the step
  GPU busy ms       the sum of all kernels' times in the profiler, and below it the kinds
  torch MiB         the most that PyTorch had allocated in a step, less what it has between steps (weights, gradients,
                    momentum, images)
  arenas MiB        what the two arenas had mapped for streams; they keep it between steps
  workspace MiB     of libcomet; it is there between steps, too
  peak MiB          the sum of the three
  first step MiB    what the arenas had mapped in the steps that gather: room for every stream's worst case
  stored MiB        the streams of a step; eager: tensors that autograd saved, each storage once, without parameters
  raw MiB           the tensors that these streams stand for

Random images are noise, which compresses worse than photographs do.

The check (bench/gpu_step_check.py) compares gradients and running statistics of small networks with PyTorch's, at a
tiny bound; the exit code is 1 where they differ. `--device cpu` does that with a libcomet whose kernels are emulated
(tests/emulation).
"""
import argparse
import gc
import json
import re
import statistics
import sys
import time

import torch
import torchvision
from comet_ctypes import CometError, Library
from comet_resnet import Session, attach, forward_and_backward, set_precision
from gpu_step_check import check
from torch.autograd import DeviceType

MIB = 1 << 20
MODELS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")

# The first that matches. Comet's kernels have whole names, parts of which others have as well.
KINDS = [
    ("comet norm statistics", r"\bnorm_(statistics|prepare)_kernel\b"),
    ("comet norm forward", r"\bnorm_(forward|residual|striped|linear)_kernel\b"),
    ("comet norm backward", r"\bnorm_(backward_kernel|totals_last|totals_maps)\b"),
    ("comet decompress", r"\b(eb|exact)_decompress_kernel\b"),
    ("comet compress", r"\b(eb_compress|eb_survey|exact_compress)_kernel\b"),
    ("torch batch norm", r"batch_?norm|\bbn_"),
    ("convolution, matmul", r"conv|gemm|gemv|sm80_|sm90_|sm100_|cutlass|xmma|nvjet|wgrad|dgrad|nchwToNhwc|nhwcToNchw"
                            r"|cudnn"),
    ("elementwise", r"elementwise"),
]
OTHER = "other"
PARTS_OF_PEAK = ("torch MiB", "arenas MiB", "workspace MiB")


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- a step ----


class SavedBytes:
    """Counts what autograd saves, each storage once, without parameters and their copies in another type."""

    def __init__(self, model):
        self.parameters = {parameter.shape for parameter in model.parameters()}
        self.storages = {}

    def pack(self, tensor):
        if tensor.shape not in self.parameters:
            storage = tensor.untyped_storage()
            self.storages[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    def hooks(self):
        return torch.autograd.graph.saved_tensors_hooks(self.pack, lambda tensor: tensor)

    def total(self):
        return sum(self.storages.values())


class Training:
    """A network in training, with Comet where there is a library."""

    def __init__(self, options, precision, library=None):
        torch.manual_seed(0)
        device = torch.device("cuda", 0)
        self.precision = precision
        model = getattr(torchvision.models, options.model)()
        self.model = model.to(device, memory_format=torch.channels_last).train()
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9, fused=True)
        images = torch.randn(options.batch, 3, options.image, options.image, device=device)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 1000, (options.batch,), device=device)
        self.session = library and Session(library, device, options.bound, options.arena_gib << 30)
        if library:
            attach(self.model, self.session)

    def step(self, hooks=None):
        self.optimiser.zero_grad(set_to_none=True)
        forward_and_backward(self.model, self.images, self.labels, self.precision, self.session, hooks)
        self.optimiser.step()

    def finish(self):
        """Waits for the step, and raises if streams were lost in it."""
        torch.cuda.synchronize()
        if self.session:
            self.session.check()

    def free(self):
        torch.cuda.synchronize()
        if self.session:
            self.session.free()


# ---- measuring ----


def warm_up(training, steps):
    """Sizes and statistics are gathered in all steps but the last, in which memory is mapped as the measured steps
    will need it."""
    session, found = training.session, {}
    for step in range(steps):
        if session:
            session.gathering = step < steps - 1
        saved = SavedBytes(training.model) if step == 0 and not session else None
        training.step(saved and saved.hooks())
        training.finish()
        if saved:
            found["stored MiB"] = saved.total() / MIB
        if session and step == steps - 2:
            found["first step MiB"] = session.arena_total("peak_mapped_bytes") / MIB
            session.trim()
    return found


def time_steps(training, steps):
    wall, host = [], []
    for _ in range(steps):
        start = time.perf_counter()
        training.step()
        issued = time.perf_counter()
        torch.cuda.synchronize()
        wall.append(1e3 * (time.perf_counter() - start))
        host.append(1e3 * (issued - start))
        training.finish()
    return {"wall ms": statistics.median(wall), "host ms": statistics.median(host)}


def time_and_memory(training, steps):
    session = training.session
    torch.cuda.reset_peak_memory_stats()
    between = torch.cuda.memory_allocated()
    found = time_steps(training, steps)
    found["torch MiB"] = (torch.cuda.max_memory_allocated() - between) / MIB
    if session:  # mapped memory only grows between two trims
        found["arenas MiB"] = (session.arena_total("mapped_bytes") + session.arena_total("overhead_bytes")) / MIB
        found["workspace MiB"] = session.workspace.numel() / MIB
    found["peak MiB"] = sum(found.get(part, 0) for part in PARTS_OF_PEAK)
    return found


def kind_of(kernel):
    return next((kind for kind, pattern in KINDS if re.search(pattern, kernel, re.IGNORECASE)), OTHER)


def profile_steps(training, steps):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            training.step()
            torch.cuda.synchronize()
    training.finish()
    kernels, kinds = {}, dict.fromkeys([kind for kind, _ in KINDS] + [OTHER], 0.0)
    for event in profile.key_averages():
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation:
            ms = event.self_device_time_total / 1e3 / steps
            kernels[event.key] = kernels.get(event.key, 0.0) + ms
            kinds[kind_of(event.key)] += ms
    longest = sorted(kernels.items(), key=lambda item: -item[1])[:40]
    return {"GPU busy ms": sum(kinds.values()), "kinds": kinds, "kernels": dict(longest)}


def count_streams(training):
    """In a step of its own: the copies of results are none of what is measured."""
    session = training.session
    if not session:
        return {}
    session.gathering = True
    training.step()
    training.finish()
    stats = {name: session.arena_total(name) for name in ("waits", "overflows", "saves_in_holes")}
    return {"stored MiB": session.stored_bytes() / MIB, "raw MiB": session.raw_bytes() / MIB,
            "streams": len(session.sources), "arenas": stats}


def measure(options, precision, library):
    variant = "comet" if library else "eager"
    say(f"{precision} {variant}: warm-up")
    set_precision(precision)
    training = Training(options, precision, library)
    found = {"precision": precision, "variant": variant, **warm_up(training, options.warm_up)}
    say(f"{precision} {variant}: time")
    found.update(time_and_memory(training, options.steps))
    say(f"{precision} {variant}: profile")
    found.update(profile_steps(training, options.profile))
    found.update(count_streams(training))
    training.free()
    return found


def measure_all(options, library):
    torch.backends.cudnn.benchmark = True
    rows = []
    for precision in options.precisions:
        for variant in options.variants:
            rows.append(measure(options, precision, library if variant == "comet" else None))
            gc.collect()
            torch.cuda.empty_cache()
    return rows


def print_table(rows):
    """A column for each run."""
    lines = [("", [f"{row['precision']} {row['variant']}" for row in rows])]

    def add(name, digits, values, indent=""):
        lines.append((indent + name, ["-" if value is None else f"{value:.{digits}f}" for value in values]))

    for name in ("wall ms", "host ms", "GPU busy ms"):
        add(name, 1, [row[name] for row in rows])
    for kind in rows[0]["kinds"]:
        add(kind, 2, [row["kinds"][kind] for row in rows], "  ")
    for name in ("peak MiB", *PARTS_OF_PEAK, "first step MiB", "stored MiB", "raw MiB"):
        add(name, 0, [row.get(name) for row in rows], "  " if name in PARTS_OF_PEAK else "")
    width = max(len(name) for name, _ in lines)
    for name, cells in lines:
        print(name.ljust(width) + "".join(cell.rjust(13) for cell in cells))


# ---- command line ----


def words(allowed):
    def split(text):
        chosen = text.split(",")
        if not set(chosen) <= set(allowed):
            raise argparse.ArgumentTypeError(f"{text}: must be of {','.join(allowed)}")
        return chosen
    return split


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--library", required=True, metavar="PATH", help="libcomet.so, built with CUDA")
    add("--check", action="store_true", help="check gradients; nothing is measured")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: for --check with an emulated library")
    add("--model", choices=MODELS, default="resnet50", metavar="NAME",
        help=f"of torchvision: {', '.join(MODELS)} (default %(default)s)")
    add("--batch", type=int, default=128, help="images of a step (default %(default)s)")
    add("--image", type=int, default=224, help="height and width (default %(default)s)")
    add("--bound", type=float, default=0.3, help="error bound, in units of the root mean square (default %(default)s)")
    add("--precisions", type=words(("tf32", "bf16")), default=["tf32", "bf16"], help="default tf32,bf16")
    add("--variants", type=words(("eager", "comet")), default=["eager", "comet"], help="default eager,comet")
    add("--warm-up", type=int, default=4, metavar="STEPS", help="at least 3 (default %(default)s)")
    add("--steps", type=int, default=8, help="that are timed (default %(default)s)")
    add("--profile", type=int, default=3, metavar="STEPS", help="in the profiler (default %(default)s)")
    add("--arena-gib", type=int, default=16, metavar="GIB", help="limit of each of two arenas (default %(default)s)")
    add("--json", metavar="FILE", help="write everything, with the longest kernels, to a file")
    options = parser.parse_args(arguments)
    if options.device == "cpu" and not options.check:
        parser.error("--device cpu is for --check alone: an emulated kernel's time says nothing")
    if options.warm_up < 3:
        parser.error("--warm-up must be 3 or more: two steps to learn sizes, one to map memory for them")
    return options


def main():
    options = parse(sys.argv[1:])
    library = Library(options.library)
    library.cuda_check(0)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise CometError("PyTorch finds no GPU")
    if options.check:
        return 0 if check(library, options.device, options.bound) else 1
    rows = measure_all(options, library)
    print(f"{options.model}, batch {options.batch}, {options.image} px, bound {options.bound:g}, "
          f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}\n")
    print_table(rows)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "device": torch.cuda.get_device_name(0), "torch": torch.__version__,
                       "runs": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (CometError, OSError, torch.cuda.OutOfMemoryError) as error:
        sys.exit(f"gpu_step.py: {error}")

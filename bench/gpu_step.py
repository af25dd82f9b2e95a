#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training step of torchvision's ResNet takes on a GPU, in plain PyTorch and with Comet's kernels in it: time by
kind of kernel, wall time, memory.

  bench/gpu_step.py --library build/release/src/libcomet.so                 the measurement, a table
  bench/gpu_step.py --library build/release/src/libcomet.so --check         whether gradients are right

The measurement trains on random images (channels-last, SGD with momentum, fused) in TF32 and in bf16 autocast, as
PyTorch does it ('eager') and with activations kept as streams of libcomet ('comet': batch norm, ReLU, addition and
compression in one kernel, convolutions rebuild their inputs; bench/comet_resnet.py). Its lines:

  wall ms           of a step, the median, the device awaited at its end
  host ms           until the host had issued the step
  GPU busy ms       the sum of all kernels' times in the profiler, and below it the kinds
  torch MiB         the most that PyTorch had allocated in a step, less what it has between steps
  arenas MiB        what the two arenas had mapped for streams; they keep it between steps
  workspace MiB     of libcomet; it is there between steps, too
  peak MiB          the sum of the three
  first step MiB    what the arenas had mapped in the steps that gather: room for every stream's worst case
  stored MiB        the streams of a step; eager: tensors that autograd saved, each storage once, without parameters
  raw MiB           the tensors that these streams stand for

Random images are noise, which compresses worse than photographs do.

The check runs small networks with both kinds of block three times forwards and backwards, in fp32 without TF32 and in
bf16: at a tiny bound the loss, every gradient and every running statistic must be PyTorch's, else the exit code is 1.
At --bound the error of the gradients is printed. `--device cpu` does that with a libcomet whose kernels are emulated.
"""
import argparse
import contextlib
import copy
import gc
import json
import re
import statistics
import sys
import time

import torch
import torchvision
from comet_ctypes import CometError, Library
from comet_resnet import NormLayer, Session, attach, fuse
from torch.nn.functional import cross_entropy
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

MIB = 1 << 20

# The first that matches. Comet's kernels have whole names, parts of which others have as well.
KINDS = [
    ("comet norm statistics", r"\bnorm_(statistics|prepare)_kernel\b"),
    ("comet norm forward", r"\bnorm_(forward|residual|striped|linear)_kernel\b"),
    ("comet norm backward", r"\bnorm_(backward_kernel|totals_last|totals_maps)\b"),
    ("comet decompress", r"\b(eb|exact)_decompress_kernel\b"),
    ("comet compress", r"\b(eb_compress|eb_survey|exact_compress)_kernel\b"),
    ("torch batch norm", r"batch_?norm|\bbn_"),
    ("convolution, matmul", r"conv|gemm|gemv|sm80_|sm90_|sm100_|cutlass|xmma|wgrad|dgrad|nchwToNhwc|nhwcToNchw|cudnn"),
    ("elementwise", r"elementwise"),
]
OTHER = "other"


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- a step ----


def set_precision(name):
    """'fp32', 'tf32' or 'bf16', which is autocast."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name != "fp32"


def forward_and_backward(model, images, labels, precision, hooks):
    with hooks, torch.autocast(images.device.type, torch.bfloat16, enabled=precision == "bf16"):
        loss = cross_entropy(model(images), labels)
    loss.backward()
    return loss


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
        if hooks is None:
            hooks = self.session.hooks() if self.session else contextlib.nullcontext()
        self.optimiser.zero_grad(set_to_none=True)
        forward_and_backward(self.model, self.images, self.labels, self.precision, hooks)
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


def with_peak(training, measure, *arguments):
    """What `measure` answers and the memory of the steps that it does."""
    session = training.session
    torch.cuda.reset_peak_memory_stats()
    between = torch.cuda.memory_allocated()
    found = measure(training, *arguments)
    found["torch MiB"] = (torch.cuda.max_memory_allocated() - between) / MIB
    if session:  # mapped memory only grows between two trims
        found["arenas MiB"] = (session.arena_total("mapped_bytes") + session.arena_total("overhead_bytes")) / MIB
        found["workspace MiB"] = session.workspace.numel() / MIB
    found["peak MiB"] = sum(found.get(part, 0) for part in ("torch MiB", "arenas MiB", "workspace MiB"))
    return found


def kind_of(kernel):
    return next((kind for kind, pattern in KINDS if re.search(pattern, kernel, re.IGNORECASE)), OTHER)


def profile_steps(training, steps):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            training.step()
            torch.cuda.synchronize()
    training.finish()
    kernels = {event.key: event.self_device_time_total / 1e3 / steps for event in profile.key_averages()}
    kinds = dict.fromkeys([kind for kind, _ in KINDS] + [OTHER], 0.0)
    for kernel, ms in kernels.items():
        kinds[kind_of(kernel)] += ms
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
    found.update(with_peak(training, time_steps, options.steps))
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
    for name in ("peak MiB", "torch MiB", "arenas MiB", "workspace MiB", "first step MiB", "stored MiB", "raw MiB"):
        add(name, 0, [row.get(name) for row in rows], "  " if name.split()[0] in ("torch", "arenas", "workspace") else "")
    width = max(len(name) for name, _ in lines)
    for name, cells in lines:
        print(name.ljust(width) + "".join(cell.rjust(13) for cell in cells))


# ---- checking ----

PASSES = 3  # the first gathers with a bound that is a guess, the second with the true one, the third relies on both


def small_network(block, device):
    """With scales of both signs, so that masks lie on either side of their threshold."""
    torch.manual_seed(1)
    model = ResNet(block, [2, 1, 1, 1], num_classes=10)
    for name, parameter in model.named_parameters():
        if "bn" in name or "downsample.1" in name:
            torch.nn.init.normal_(parameter, 0.1, 0.7)
    return model.to(device, memory_format=torch.channels_last).train()


def run_passes(model, images, labels, precision, session=None):
    """Loss, gradients and running statistics, by name."""
    for number in range(PASSES):
        model.zero_grad(set_to_none=True)
        if session:
            session.gathering = number < PASSES - 1
        hooks = session.hooks() if session else contextlib.nullcontext()
        loss = forward_and_backward(model, images, labels, precision, hooks)
        if session:
            session.check()
    found = {"loss": loss.detach()}
    found.update((name, parameter.grad) for name, parameter in model.named_parameters())
    found.update((name, buffer.double()) for name, buffer in model.named_buffers())
    return found


class RecordingNorm(NormLayer):
    def __call__(self, x, z=None):
        y = super().__call__(x, z)
        self.output = y.detach()
        return y


class ReplayedNorm:
    """PyTorch's batch norm, with what follows it, computed in fp32 and rounded once, as Comet's is. Gradients are its
    own; the output is one that was recorded."""

    def __init__(self, module, relu, adds):
        self.module, self.relu = module, relu

    def __call__(self, x, z=None):
        y = torch.nn.BatchNorm2d.forward(self.module, x.float())
        y = y if z is None else y + z
        y = (y.relu() if self.relu else y).to(x.dtype)
        self.output = y.detach()
        return self.recorded + (y - self.output)


def run_with_comet(options, library, model, images, labels, precision, bound):
    session = Session(library, images.device, bound, options.check_arena_mib * MIB)
    layers = attach(model, session, RecordingNorm)
    found = run_passes(model, images, labels, precision, session)
    found.update((f"output {number}", layer.output) for number, layer in enumerate(layers))
    if images.device.type == "cuda":
        torch.cuda.synchronize()
    say(f"  bound {bound:g}: {session.raw_bytes()} bytes stored in {session.stored_bytes()}")
    session.free()
    return found


def run_replayed(model, images, labels, precision, recorded):
    """In bf16 two runs of PyTorch's own that round differently have gradients that differ by tenths: a mask flips here
    and there. So outputs are taken from the run that is checked, and compared with what they should be."""
    layers = fuse(model, ReplayedNorm)
    for number, layer in enumerate(layers):
        layer.recorded = recorded[f"output {number}"]
    found = run_passes(model, images, labels, precision)
    found.update((f"output {number}", layer.output) for number, layer in enumerate(layers))
    return found


def relative_error(found, expected):
    return ((found.double() - expected.double()).norm() / expected.double().norm().clamp_min(1e-30)).item()


def whole_error(found, expected, model):
    """Of all gradients as one vector."""
    names = [name for name, _ in model.named_parameters()]
    return relative_error(*(torch.cat([values[name].flatten() for name in names]) for values in (found, expected)))


# Relative, of each value's L2 norm. A factor of two anywhere is off by tenths. What is left in fp32 is the bound and
# rounding, 1e-5 or less; in bf16 what rounding gradients leaves, some 1e-2.
TOLERANCES = {"fp32": 2e-3, "bf16": 1e-1}


def check_precision(options, library, model, images, labels, precision):
    """Whether all is right, and a line that says so."""
    found, lossy = (run_with_comet(options, library, copy.deepcopy(model), images, labels, precision, bound)
                    for bound in (options.tiny_bound, options.bound))
    expected = (run_passes(copy.deepcopy(model), images, labels, precision) if precision == "fp32" else
                run_replayed(copy.deepcopy(model), images, labels, precision, found))
    errors = {name: relative_error(found[name], expected[name]) for name in expected}
    worst = max(errors, key=errors.get)
    right = errors[worst] <= TOLERANCES[precision]
    text = (f"{'ok' if right else 'WRONG'}: of {len(errors)} values the worst, {worst}, is off by {errors[worst]:.2g} "
            f"({TOLERANCES[precision]:g} is allowed), all gradients are by {whole_error(found, expected, model):.2g}; "
            f"at bound {options.bound:g} by {whole_error(lossy, expected, model):.2g}")
    return right, text


def check_network(options, library, block, device):
    """True if all is right."""
    model = small_network(block, device)
    images = torch.randn(options.check_batch, 3, options.check_image, options.check_image, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.arange(options.check_batch, device=device) % 10
    all_right = True
    for precision in ("fp32", "bf16"):
        right, text = check_precision(options, library, model, images, labels, precision)
        print(f"{block.__name__} {precision}: {text}", flush=True)
        all_right &= right
    return all_right


def check(options, library):
    set_precision("fp32")
    device = torch.device(options.device, 0) if options.device == "cuda" else torch.device("cpu")
    return all([check_network(options, library, block, device) for block in (Bottleneck, BasicBlock)])


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
    add("--library", required=True, metavar="PATH", help="libcomet.so")
    add("--check", action="store_true", help="check gradients; nothing is measured")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: for --check with an emulated library")
    add("--model", default="resnet50", help="a ResNet of torchvision (default %(default)s)")
    add("--batch", type=int, default=128, help="images of a step (default %(default)s)")
    add("--image", type=int, default=224, help="height and width (default %(default)s)")
    add("--bound", type=float, default=0.3, help="error bound, in units of the root mean square (default %(default)s)")
    add("--precisions", type=words(("tf32", "bf16")), default=["tf32", "bf16"], help="default tf32,bf16")
    add("--variants", type=words(("eager", "comet")), default=["eager", "comet"], help="default eager,comet")
    add("--warm-up", type=int, default=4, metavar="STEPS", help="at least 3 (default %(default)s)")
    add("--steps", type=int, default=8, help="that are timed (default %(default)s)")
    add("--profile", type=int, default=3, metavar="STEPS", help="in the profiler (default %(default)s)")
    add("--arena-gib", type=int, default=16, metavar="GIB", help="limit of each of the two arenas (default %(default)s)")
    add("--json", metavar="FILE", help="write everything, with the longest kernels, to a file")
    add("--check-batch", type=int, default=4, help="images of the check (default %(default)s)")
    add("--check-image", type=int, default=64, help="height and width in the check (default %(default)s)")
    add("--check-arena-mib", type=int, default=64, help="limit of each arena in the check (default %(default)s)")
    add("--tiny-bound", type=float, default=1e-5, help="bound of the check (default %(default)s)")
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
        return 0 if check(options, library) else 1
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

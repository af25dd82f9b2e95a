#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a training step of torchvision's networks takes on a GPU with Comet's plug-in for PyTorch, and with other ways
to save memory: time, what the host does, memory.

  torch_plugin.py --data photographs.tar                               ResNet-50, TF32 and bf16, four variants
  torch_plugin.py --data photographs.npy --variants plain,hooks,fuse,fp8 --precisions bf16 --json found.json
  torch_plugin.py --device cpu --models resnet18 --batch 4 --image 64 --steps-before 2 --steps 2 --row 2 --settle 0
                                                                       tries the logic; nothing of it is a result

libcomet must be importable (PYTHONPATH), for 'hooks' and 'fuse'. Variants:

  plain            PyTorch as it is
  hooks            comet.attach(model)
  fuse             comet.fuse(model), then comet.attach(model)
  checkpoint       torch.utils.checkpoint, not reentrant, every block
  compile          torch.compile(model)
  compile-budget   the same with activation_memory_budget = 0.5
  save_on_cpu      torch.autograd.graph.save_on_cpu(pin_memory=True)
  fp8              saved tensors as float8_e4m3fn, each once, parameters excepted

Sizes of streams are those of a network in training: PyTorch trains --steps-before steps on photographs first, and every
variant begins with the weights and the momentum of that. Then come --warm-up steps, of which the first is looked at,
and the measurements, each in steps of its own:

  ms               of a step, the median: CUDA events around it, the device awaited after each
  ms in a row      of a step in a run of 100 in which nothing is awaited; in these the controller looks at statistics,
                   as it does for the rest of a training
  host ms          until the host had issued a step, the device idle before, and how much of that it waited for the
                   device, so that memory stays low. In the file, too: 'host CPU ms' is the processor time of the thread
                   that called (the forward pass and the optimiser; backward has a thread of its own), 'process CPU ms'
                   that of all threads. Hosts change their speed from minute to minute: with --alternate plain PyTorch
                   and Comet's variants take turns, step by step, and these are the figures to compare
  GPU busy         the sum of all kernels' times in the profiler; their kinds with --kinds and in the file
  peak MiB         the most that PyTorch had allocated in a step, less what is static: weights, gradients, momentum,
                   images. zero_grad(set_to_none=True) begins a step, so gradients are there between steps and count as
                   static. Memory that a variant keeps between steps is not static, and counts
  first MiB        the same for a variant's first step, in which it has not learnt any size yet
  reserved MiB     the most that PyTorch had taken from the driver, all included
  held MiB         what was there between forward and backward, less what is static
  loss             of the last step; plain and Comet's variants saw the same images in the same order
"""
import argparse
import collections
import contextlib
import json
import os
import re
import statistics
import sys
import time

import pictures
import torch
import torchvision
import variants
from common import (Progress, add_comet_options, comet_options, mib, number, open_device, ratio, say, words)
from gpu_step import KINDS as STEP_KINDS, OTHER
from torch.autograd import DeviceType
from variants import OF_COMET, VARIANTS, Setting, Training, store_of, train_before

# The first that matches. Kernels of Comet that bench/gpu_step.py does not meet come first.
KINDS = [
    ("comet indices", r"(?<!\w)(un)?pack_kernel\b"),
    ("comet tables", r"(?<!\w)(head|norm_head|norm_tables|silu_tables|stored|found|clear)_kernel\b"),
    *STEP_KINDS,
    ("comet other codecs", r"(?<!\w)(de)?compress_kernel\b"),
    ("copies", r"^mem(cpy|set)\b"),
]
SETTLED = ("plain", *OF_COMET)  # so that their losses can be compared


# ---- one measurement each ----


def next_batch(ready):
    ready.rotate(-1)
    return ready[-1]


def time_steps(training, ready, steps, device):
    """Each step alone: by events, by the clock, until it was issued, and the time of the processor."""
    found = {name: [] for name in ("ms", "wall ms", "host ms", "waited ms", "host CPU ms", "process CPU ms")}
    for _ in range(steps):
        batch = next_batch(ready)
        device.synchronize()
        waited = training.waited_ms()
        begin, thread, process, event = time.perf_counter(), time.thread_time(), time.process_time(), device.event()
        training.step(*batch)
        issued, thread = time.perf_counter(), time.thread_time() - thread
        end = device.event()
        device.synchronize()
        now = time.perf_counter()
        found["process CPU ms"].append(1e3 * (time.process_time() - process))
        found["wall ms"].append(1e3 * (now - begin))
        found["ms"].append(event.elapsed_time(end) if event else 1e3 * (now - begin))
        found["host ms"].append(1e3 * (issued - begin))
        found["waited ms"].append(training.waited_ms() - waited)
        found["host CPU ms"].append(1e3 * thread)
    return {name: statistics.median(values) for name, values in found.items()}


def time_alternately(setting, names, state, comet, ready, rounds, device, warm_up=16):
    """What the host does in a step, with a training of each kind that take turns."""
    trainings = {name: Training(setting, name, state, comet) for name in names}
    try:
        for training in trainings.values():
            for _ in range(warm_up):
                training.step(*next_batch(ready))
        rows = {name: [] for name in names}
        for _ in range(rounds):
            for name, training in trainings.items():
                rows[name].append(time_steps(training, ready, 1, device))
        return {name: {key: statistics.median(row[key] for row in of) for key in of[0]} for name, of in rows.items()}
    finally:
        for training in trainings.values():
            training.close()


def time_in_a_row(training, ready, steps, device):
    device.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        training.step(*next_batch(ready))
    device.synchronize()
    return {"ms in a row": 1e3 * (time.perf_counter() - begin) / steps}


def kind_of(kernel):
    return next((kind for kind, pattern in KINDS if re.search(pattern, kernel, re.IGNORECASE)), OTHER)


def profile_steps(training, ready, steps, device):
    if not steps or not device.is_gpu:
        return {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            training.step(*next_batch(ready))
            device.synchronize()
    kernels, kinds = {}, dict.fromkeys([kind for kind, _ in KINDS] + [OTHER], 0.0)
    for event in profile.key_averages():
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation:
            ms = event.self_device_time_total / 1e3 / steps
            kernels[event.key] = kernels.get(event.key, 0.0) + ms
            kinds[kind_of(event.key)] += ms
    longest = sorted(kernels.items(), key=lambda item: -item[1])[:40]
    return {"GPU busy ms": sum(kinds.values()), "kinds": kinds, "kernels": dict(longest)}


def look_between(training, ready, device):
    """A step that stops between forward and backward, to see what is held there. Nothing of it is timed."""
    images, labels = next_batch(ready)
    training.optimiser.zero_grad(set_to_none=True)
    device.synchronize()
    session = training.session
    before = session and session.stats()
    loss = training.forward(images, labels)
    device.synchronize()
    if session:
        session.native.poll()  # what has arrived is settled: tensors go, and sizes are known
    # gradients are not there yet, so that they are not static here
    found = {"bytes beyond own": device.allocated() - training.own_bytes() if device.is_gpu else None}
    if session:
        stats = session.stats()
        store = store_of(stats, training.setting.device)
        found["comet"] = {"raw MiB": mib(store.get("raw_bytes")), "stored MiB": mib(store.get("stored_bytes")),
                          "room MiB": mib(store.get("room_bytes")), "workspace MiB": mib(store.get("workspace_bytes")),
                          "segments": store.get("segments"), "segments MiB": mib(store.get("segment_bytes")),
                          "entries": store.get("entries"),
                          "kept tensors": stats.get("kept_tensors", 0) - before.get("kept_tensors", 0),
                          "kept MiB": mib(stats.get("kept_bytes", 0) - before.get("kept_bytes", 0))}
    loss.backward()
    training.optimiser.step()
    device.synchronize()
    return found


def count_saved(training, ready):
    """What autograd saves in plain PyTorch. The hooks of other variants would be hidden by those that count."""
    if training.applied.name != "plain":
        return {}
    saved = variants.SavedBytes(training.model)
    training.step(*next_batch(ready), around=saved.around)
    return {"saved MiB": mib(saved.total())}


# ---- the time of hooks ----


class HookTimes:
    """Puts a clock around what the host does in a step: the forward pass, each kind of layer in it, backward, and what
    PyTorch calls of Comet: both hooks, and the backward pass of its batch norm. A clock costs a part of a microsecond
    itself."""

    LAYERS = (torch.nn.Conv2d, torch.nn.BatchNorm2d, torch.nn.ReLU)

    def __init__(self):
        self.ns = collections.defaultdict(list)

    def timed(self, name, function, by_result=False):
        def call(*args, **kwargs):
            begin = time.perf_counter_ns()
            result = function(*args, **kwargs)
            ns = time.perf_counter_ns() - begin
            # what became of a tensor: Held is in another form, Kept is the tensor itself
            self.ns[f"{name} {type(result).__name__}" if by_result else name].append(ns)
            return result
        return call

    def places(self, training):
        """(object, name of what is called there, the same with a clock around it)"""
        original, clock = torch.autograd.graph.saved_tensors_hooks, self

        class Timed(original):
            def __init__(self, pack, unpack):
                super().__init__(clock.timed("pack", pack, by_result=True), clock.timed("unpack", unpack))

        yield torch.autograd.graph, "saved_tensors_hooks", Timed
        yield training, "forward", self.timed("forward", training.forward)
        yield torch.Tensor, "backward", self.timed("backward", torch.Tensor.backward)
        for kind in self.LAYERS:
            yield kind, "__call__", self.timed(kind.__name__, kind.__call__)
        fuse = sys.modules.get("libcomet.torch.fuse")  # the module: the package's attribute is the function
        if fuse:
            yield fuse, "norm_act", self.timed("fused norm", fuse.norm_act)
            backward = self.timed("norm's backward", fuse._Normalise.backward)
            yield fuse._Normalise, "backward", staticmethod(backward)

    @contextlib.contextmanager
    def around(self, training):
        before = []
        for owner, name, timed in self.places(training):
            before.append((owner, name, vars(owner).get(name)))
            setattr(owner, name, timed)
        try:
            yield
        finally:
            for owner, name, own in before:
                delattr(owner, name)
                if own is not None:
                    setattr(owner, name, own)

    def result(self, steps):
        return {name: {"calls": len(ns) / steps, "median us": statistics.median(ns) / 1e3,
                       "ms per step": sum(ns) / 1e6 / steps} for name, ns in sorted(self.ns.items())}


def time_hooks(training, ready, steps, device):
    """In a run of its own: the clocks change what they measure."""
    times = HookTimes()
    with times.around(training):
        for _ in range(steps):
            device.synchronize()
            training.step(*next_batch(ready))
    device.synchronize()
    return {"hooks": times.result(steps)}


# ---- a variant ----


def difference(after, before, names, steps):
    return {f"{name} per step": (after[name] - before[name]) / steps for name in names if name in after}


def measure(options, setting, variant, state, feed, ready, device, tell):
    device.clear()
    base = device.allocated()  # images, and what libraries have taken by now
    training = Training(setting, variant, state, comet_options(options))
    found = {"model": setting.model, "precision": setting.precision, "variant": variant,
             "blocks": training.applied.blocks}
    try:
        tell("first step")
        device.reset_peak()
        first_loss = training.step(*next_batch(ready))
        device.synchronize()
        first_peak, first_reserved = device.peak(), device.peak_reserved()
        found["first loss"] = first_loss.item()
        tell("warm-up")
        for _ in range(options.warm_up - 1 + (options.settle if variant in SETTLED else 0)):
            training.step(*feed.batch(options.batch, setting.layout))
        device.synchronize()
        tell("time and memory")
        static = base + training.own_bytes() if device.is_gpu else None
        before = training.session and store_of(training.session.stats(), setting.device)
        device.reset_peak()
        found.update(time_steps(training, ready, options.steps, device))
        found.update(time_in_a_row(training, ready, options.row, device))
        if device.is_gpu:
            found.update({"peak MiB": mib(device.peak() - static), "first MiB": mib(first_peak - static),
                          "reserved MiB": mib(device.peak_reserved()), "static MiB": mib(static), "base MiB": mib(base),
                          "reserved in the first step MiB": mib(first_reserved),
                          "gradients MiB": mib(variants.owned_bytes(p.grad for p in training.model.parameters())),
                          "kept between steps MiB": mib(device.allocated() - static),
                          "outside PyTorch MiB": mib(device.outside()), "allocator's retries": device.retries()})
        if training.session:
            after = store_of(training.session.stats(), setting.device)
            found["comet per step"] = difference(after, before, ("saves", "loads", "misfits", "refused", "waits",
                                                                 "spills", "fetches", "queues_joined"),
                                                 options.steps + options.row)
            found["stats"] = training.session.stats()
        found["loss"] = training.step(*next_batch(ready)).item()
        tell("what is held")
        between = look_between(training, ready, device)
        beyond = between.pop("bytes beyond own")
        found.update(between, **{"held MiB": mib(beyond - base) if device.is_gpu else None})
        found.update(count_saved(training, ready))
        tell("profile")
        found.update(profile_steps(training, ready, options.profile, device))
        if options.time_hooks and not variant.startswith("compile"):
            tell("hooks")
            found.update(time_hooks(training, ready, options.steps, device))
    finally:
        training.close()
    return found


def measure_safely(*arguments):
    """A variant that fails leaves the others to be measured."""
    options, setting, variant = arguments[:3]
    try:
        return measure(*arguments)
    except Exception as error:  # noqa: BLE001 (whatever a variant raises belongs into its row)
        if options.stop:
            raise
        text = str(error).strip().split("\n")[0] or type(error).__name__
        say(f"{setting.model} {setting.precision} {variant}: {type(error).__name__}: {text}")
        return {"model": setting.model, "precision": setting.precision, "variant": variant, "error": text}


def measure_all(options, feed, device, write):
    rows = []
    layout = torch.channels_last if options.layout == "nhwc" else torch.contiguous_format
    settings = [Setting(model, precision, layout, options.rate, device.device, tries_kernels=not options.cudnn_rules)
                for model in options.models for precision in options.precisions]
    parts = 6  # of a variant, as `measure` tells them
    progress = Progress(len(settings) * (2 + parts * len(options.variants)))
    for setting in settings:
        name = f"{setting.model} {setting.precision}"

        def tell_step(step, loss, name=name):
            progress.add(f"{name}: training, step {step + 1} of {options.steps_before}", 2 / options.steps_before)

        state = train_before(setting, feed, options.batch, options.steps_before, tell_step)
        feed.order.manual_seed(1), feed.chance.manual_seed(1)
        batches = [feed.batch(options.batch, layout) for _ in range(options.ready)]
        for variant in options.variants:
            def tell(part, variant=variant):
                progress.add(f"{name} {variant}: {part}", 1, always=part == "first step" and not progress.terminal)

            # every variant meets the images in the same order
            feed.order.manual_seed(2), feed.chance.manual_seed(2)
            ready = collections.deque(batches)
            rows.append(measure_safely(options, setting, variant, state, feed, ready, device, tell))
            rows[-1]["loss before"] = state and state["loss"]
            device.clear()
            write(rows)
        if options.alternate:
            own = {row["variant"]: row for row in rows[-len(options.variants):]}
            names = [variant for variant, row in own.items() if variant in SETTLED and "error" not in row]
            progress.add(f"{name}: in turns", always=not progress.terminal)
            for variant, found in time_alternately(setting, names, state, comet_options(options), ready,
                                                   options.alternate, device).items():
                own[variant]["in turns"] = found
            device.clear()
            write(rows)
    progress.finish()
    return rows


# ---- what is printed ----


def print_table(rows, options):
    columns = ("model", "precision", "variant", "ms", "x plain", "in a row", "x plain", "host (waiting)", "GPU busy",
               "peak MiB", "plain/peak", "first MiB", "reserved MiB", "held MiB", "loss")
    print(f"| {' | '.join(columns)} |\n|{'---|' * 3}{'---:|' * (len(columns) - 3)}")
    for row in rows:
        start = [row["model"], row["precision"], row["variant"]]
        if "error" in row:
            print(f"| {' | '.join(start)} | {row['error'].replace('|', '/')} |{' |' * (len(columns) - 4)}")
            continue
        plain = next((other for other in rows if other["variant"] == "plain" and "error" not in other
                      and (other["model"], other["precision"]) == (row["model"], row["precision"])), {})
        cells = start + [number(row["ms"]), ratio(row["ms"], plain.get("ms")), number(row["ms in a row"]),
                         ratio(row["ms in a row"], plain.get("ms in a row")),
                         f"{row['host ms']:.1f} ({row['waited ms']:.1f})", number(row.get("GPU busy ms")),
                         number(row.get("peak MiB"), 0), ratio(plain.get("peak MiB"), row.get("peak MiB")),
                         number(row.get("first MiB"), 0), number(row.get("reserved MiB"), 0),
                         number(row.get("held MiB"), 0), number(row["loss"], 4)]
        print(f"| {' | '.join(cells)} |")
    if options.alternate:
        print("\nin turns, medians of a step: ms, host ms, of these waiting:")
        for row in rows:
            if "in turns" in row:
                found = ", ".join(f"{row['in turns'][name]:.1f}" for name in ("ms", "host ms", "waited ms"))
                print(f"  {row['model']} {row['precision']} {row['variant']}: {found}")
    if options.time_hooks:
        print("\nhost time (median us, calls per step):")
        for row in rows:
            calls = [f"{name} {found['median us']:.1f} ({found['calls']:.0f})"
                     for name, found in row.get("hooks", {}).items()]
            if calls:
                print(f"  {row['model']} {row['precision']} {row['variant']}: {', '.join(calls)}")
    if options.kinds:
        for row in rows:
            kinds = [f"{kind} {ms:.2f}" for kind, ms in row.get("kinds", {}).items() if ms >= 0.005]
            if kinds:
                print(f"\n{row['model']} {row['precision']} {row['variant']}, ms of kernels: {', '.join(kinds)}")


# ---- command line ----


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", nargs="+", metavar="PATH",
        help="photographs: a .tar or a folder of JPEG files, .npy or .npz of torch_images.py (default: smooth random "
             "images, which are not photographs)")
    add("--photographs", type=int, default=4096, metavar="N", help="at most as many are read (default %(default)s)")
    add("--models", type=words(), default=["resnet50"], metavar="NAME,...", help="of torchvision (default resnet50)")
    add("--precisions", type=words(("tf32", "bf16", "fp32")), default=["tf32", "bf16"], metavar="NAME,...",
        help="of tf32, bf16 (autocast), fp32 (default tf32,bf16)")
    add("--variants", type=words(VARIANTS), default=["plain", "checkpoint", "hooks", "fuse"], metavar="NAME,...",
        help="see above (default plain,checkpoint,hooks,fuse)")
    add("--batch", type=int, default=128, help="images of a step (default %(default)s)")
    add("--image", type=int, default=224, metavar="PX", help="height and width (default %(default)s)")
    add("--layout", choices=("nhwc", "nchw"), default="nhwc", help="nhwc is channels_last (default %(default)s)")
    add("--ready", type=int, default=16, metavar="N",
        help="batches that lie ready on the device: steps differ, none makes its images, none is known by heart "
             "(default %(default)s)")
    add("--cudnn-rules", action="store_true",
        help="torch.backends.cudnn.benchmark is off: no kernels are tried in first steps, with workspaces of gigabytes")
    add("--rate", type=float, default=0.02, help="of SGD with momentum (default %(default)s)")
    add("--steps-before", type=int, default=200, metavar="STEPS",
        help="of plain training before anything is measured; 0: random weights (default %(default)s)")
    add("--warm-up", type=int, default=6, metavar="STEPS", help="of each variant (default %(default)s)")
    add("--settle", type=int, default=200, metavar="STEPS",
        help="more for plain and Comet, until its controller has come to rest (default %(default)s)")
    add("--steps", type=int, default=20, help="that are timed one by one (default %(default)s)")
    add("--row", type=int, default=100, metavar="STEPS",
        help="that are timed in a row: the controller's statistics are among them (default %(default)s)")
    add("--profile", type=int, default=3, metavar="STEPS", help="in the profiler; 0: none (default %(default)s)")
    add("--alternate", type=int, default=0, metavar="ROUNDS",
        help="also time plain and Comet's variants in turns, as many rounds (default: not)")
    add("--time-hooks", action="store_true", help="also what the host's time goes to, in a run of its own")
    add("--kinds", action="store_true", help="also print the time of kernels by kind")
    add_comet_options(add)
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: tries the logic (default %(default)s)")
    add("--stop", action="store_true", help="end with the traceback where a variant fails, instead of going on")
    add("--json", metavar="FILE", help="everything that was found, written anew after each variant")
    options = parser.parse_args(arguments)
    known = torchvision.models.list_models(module=torchvision.models)
    for model in options.models:
        if model not in known:
            parser.error(f"torchvision has no network '{model}' for images")
    if min(options.warm_up, options.steps, options.row, options.ready) < 1:
        parser.error("--warm-up, --steps, --row and --ready must be 1 or more")
    if set(options.variants) & set(OF_COMET):
        try:
            import libcomet.torch  # noqa: F401 (better to know it now)
        except ImportError as error:
            parser.error(f"the variants of Comet cannot be had: {error}; PYTHONPATH must have a built libcomet")
    return options


def main():
    options = parse(sys.argv[1:])
    device = open_device(options.device)
    photographs = (pictures.read(options.data, options.image, options.photographs) if options.data
                   else pictures.make_smooth(options.image, min(options.photographs, 64)))
    if not options.data:
        say("no --data: smooth random images instead of photographs")
    title = {"device": device.name, "torch": torch.__version__, "torchvision": torchvision.__version__,
             "images": f"{len(photographs)} of {photographs.source}" if options.data else photographs.source,
             "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")}

    def write(rows):
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"options": vars(options), **title, "runs": rows}, file, indent=1)

    rows = measure_all(options, pictures.Feed(photographs, device.device), device, write)
    print(f"batch {options.batch}, {options.image} px, {options.layout}, {options.steps_before} steps before, "
          f"bound {options.bound:g}; {title['images']}; {device.name}, PyTorch {torch.__version__}\n")
    print_table(rows, options)
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (pictures.DataError, OSError) as error:
        sys.exit(f"torch_plugin.py: {error}")

# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of the PyTorch plug-in share: lines of progress, lists in options, numbers in tables, and a
device that can be asked for its time and memory."""
import argparse
import ast
import gc
import pathlib
import sys
import time

import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # for what bench/ shares
import tables  # noqa: E402, F401 (found by the line above; others take it from here)

MIB = 1 << 20
BLOCK = 512  # the allocator of PyTorch rounds a tensor's bytes up to a multiple of this


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- progress ----


def duration(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class Progress:
    """Lines on standard error with the time that is left, judged by the work that is done; on a terminal one line
    that is written over."""

    def __init__(self, total, every_s=10.0):
        self.total, self.done, self.every_s = total, 0.0, every_s
        self.start = time.monotonic()
        self.last = -every_s
        self.terminal = sys.stderr.isatty()

    def add(self, text, amount=0.0, always=False):
        """Some of the work is done. The line is shown if it is wanted always or the last one is a while ago."""
        self.done += amount
        now = time.monotonic() - self.start
        if not always and now - self.last < (0.2 if self.terminal else self.every_s):
            return
        self.last = now
        left = now / self.done * (self.total - self.done) if self.done > 0 else None
        line = text + (f", about {duration(left)} left" if left is not None and left >= 1 else "")
        if self.terminal:
            print("\r\033[K" + line, end="\n" if always else "", file=sys.stderr, flush=True)
        else:
            say(line)

    def finish(self):
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


# ---- options ----


def words(allowed=None):
    def split(text):
        chosen = [word for word in text.split(",") if word]
        wrong = [word for word in chosen if allowed and word not in allowed]
        if wrong or not chosen:
            raise argparse.ArgumentTypeError(f"'{text}': must be of {','.join(allowed or ['a', 'b', '...'])}")
        return chosen
    return split


def numbers(text):
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of whole numbers such as 0,1,2") from None


def setting(text):
    """name=value of an option of comet.attach; a value that is not a Python literal is a text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"'{text}': must be NAME=VALUE, such as memory=4GiB")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def add_comet_options(add):
    add("--bound", type=float, default=0.3, metavar="E",
        help="error_rel of comet.attach: the bound in units of a tensor's root mean square (default %(default)s)")
    add("--comet", type=setting, action="append", default=[], metavar="NAME=VALUE",
        help="another option of comet.attach, such as codec=group:4; can be given again")


def comet_options(options):
    return {"error_rel": options.bound, **dict(options.comet)}


# ---- numbers ----


def number(value, digits=1):
    return "-" if value is None else f"{value:,.{digits}f}"


def ratio(above, below, digits=2):
    return number(above / below if above is not None and below else None, digits)


def mib(count):
    return None if count is None else count / MIB


# ---- the device ----


class Gpu:
    """The current GPU. Memory is what PyTorch's allocator has given out; `outside` is what the driver has given to this
    process and others beside that allocator (the context, libraries, and whatever a library takes on its own)."""

    is_gpu = True

    def __init__(self):
        if not torch.cuda.is_available():
            raise SystemExit("PyTorch finds no GPU; '--device cpu' tries the logic on a CPU, without memory or kernels")
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.name = torch.cuda.get_device_name(self.device)

    synchronize = staticmethod(torch.cuda.synchronize)
    allocated = staticmethod(torch.cuda.memory_allocated)
    peak = staticmethod(torch.cuda.max_memory_allocated)
    peak_reserved = staticmethod(torch.cuda.max_memory_reserved)
    reset_peak = staticmethod(torch.cuda.reset_peak_memory_stats)

    @staticmethod
    def outside():
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    @staticmethod
    def retries():
        """How often the allocator had to give back its cache and ask again."""
        return torch.cuda.memory_stats().get("num_alloc_retries", 0)

    @staticmethod
    def event():
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @staticmethod
    def clear():
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


class Cpu:
    """For trying the logic: what only a GPU has is None."""

    is_gpu = False
    device, name = torch.device("cpu"), "CPU"

    def synchronize(self):
        pass

    def nothing(self):
        return None

    allocated = peak = peak_reserved = reset_peak = outside = retries = event = nothing

    def clear(self):
        gc.collect()


def open_device(name):
    return Gpu() if name == "cuda" else Cpu()


def owned_bytes(*groups):
    """What these tensors occupy in the allocator, each storage once."""
    storages = {}
    for group in groups:
        for tensor in group:
            if tensor is not None:
                storage = tensor.untyped_storage()
                storages[storage.data_ptr()] = -(-storage.nbytes() // BLOCK) * BLOCK
    return sum(storages.values())

# SPDX-License-Identifier: Apache-2.0
"""Runs a training script as it is, without Comet and with it, and prints memory, time and loss side by side.

  python -m libcomet.torch.compare train.py --epochs 1 --data photographs
  python -m libcomet.torch.compare --steps 100 --fuse train.py --data photographs
  python -m libcomet.torch.compare --set exclude="['fc']" -m my_package.train --data photographs

Options of this command come before the script, the script's own behind it. The script is not changed: each run is a
process of its own, in which

  a model       is a module with parameters to train that is called while gradients are wanted, and not by another
                module. Comet is attached to it just before its first call, so that the first step counts, too. This
                finds models in the frameworks that wrap them, several models (GANs), and none that only evaluate.
  a step        is a step of the optimizer that was the first to make one.
  a loss        is a number on which backward() is called, before a GradScaler scales it.
  memory        is the most that PyTorch has allocated on all GPUs of the process; where no GPU is used, the most that
                the process had resident, less what it had when the script began. What the allocator has taken from
                the driver is more: it keeps what is free.

Both runs begin with the same seed (--seed). A script that is still random (workers, atomics of a GPU) has losses that
differ a little in two runs without Comet as well.

Not seen: models in other processes (torchrun, torch.multiprocessing.spawn) and copies that nn.DataParallel makes.
There, put comet.attach(model, optimizer) into the script and compare two runs of it.

exit code:  0  both runs are done
            1  the script failed without Comet
            2  a mistake in this command's options, or there is no such script
            3  the script failed with Comet only
            4  the script ran, but no optimizer made a step, or no model was found
A script that runs out of GPU memory without Comet has not failed: that is what shall be compared.
"""
import argparse
import ast
import json
import os
import pathlib
import random
import runpy
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import weakref

from libcomet.torch.options import Options

MIB = 1 << 20
DONE, OUT_OF_MEMORY, FAILED = "done", "out of memory", "failed"
READ_EVERY = 256  # steps after which losses and times are taken from the device, which waits for it
BETWEEN_STEPS = 64  # first steps after which memory is looked at


# ---- in the process of the script ----


class _Enough(BaseException):
    """Ends the script after --steps. Not an Exception, so that a script that goes on after errors ends as well."""


class _Losses:
    """Values that backward() is called on; copied on the device and read a good while later."""

    def __init__(self):
        self.values, self.unread = [], []

    def note(self, tensor):
        self.unread.append(tensor.detach().clone())
        if len(self.unread) >= READ_EVERY:
            self.read()

    def read(self):
        self.values += [float(tensor) for tensor in self.unread]
        self.unread.clear()

    def install(self):
        import torch

        backward, scale = torch.autograd.backward, torch.amp.GradScaler.scale

        def noting_backward(tensors, *args, **kwargs):  # Tensor.backward calls this, too
            group = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            numbers = [getattr(tensor, "_comet_unscaled", tensor) for tensor in group if tensor.numel() == 1]
            if numbers and len(numbers) == len(group):
                with torch.no_grad():
                    self.note(numbers[0] if len(numbers) == 1 else sum(numbers))
            return backward(tensors, *args, **kwargs)

        def noting_scale(scaler, outputs):
            scaled = scale(scaler, outputs)
            if isinstance(outputs, torch.Tensor) and scaled is not outputs:
                scaled._comet_unscaled = outputs.detach()
            return scaled

        torch.autograd.backward, torch.amp.GradScaler.scale = noting_backward, noting_scale


class _Steps:
    """Counts the steps of the first optimizer, and when they were: on a GPU by events, which wait for nothing."""

    def __init__(self, most):
        self.most, self.count, self.first = most, 0, None
        self.marks, self.ms = [], []
        self.between = None  # the least memory after a step

    def install(self):
        from torch.optim.optimizer import register_optimizer_step_post_hook
        register_optimizer_step_post_hook(self.note)

    def note(self, optimizer, args, kwargs):
        import torch

        if self.first is None or self.first() is None:
            self.first = weakref.ref(optimizer)
        if self.first() is not optimizer:
            return
        self.count += 1
        if torch.cuda.is_initialized():
            mark = torch.cuda.Event(enable_timing=True)
            mark.record()
            if self.count <= BETWEEN_STEPS:
                now = _allocated()
                self.between = now if self.between is None else min(self.between, now)
        else:
            mark = time.perf_counter()
        self.marks.append(mark)
        if len(self.marks) > 2 * READ_EVERY:
            self.read(READ_EVERY)
        if self.most and self.count >= self.most:
            raise _Enough()

    def read(self, count=None):
        """The times between the first marks, or all of them."""
        marks = self.marks[:count + 1] if count else self.marks
        for one, next_one in zip(marks, marks[1:]):
            if isinstance(one, float) or isinstance(next_one, float):
                if type(one) is type(next_one):
                    self.ms.append(1e3 * (next_one - one))
            else:
                next_one.synchronize()
                self.ms.append(one.elapsed_time(next_one))
        self.marks = self.marks[count:] if count else []


class _Models:
    """Notices calls of models; with Comet, attaches a session to each before its first call."""

    class _Local(threading.local):
        inside = False

    def __init__(self, attaches, options, fuses, keeps):
        self.attaches, self.options, self.fuses, self.keeps = attaches, options, fuses, keeps
        self.local = self._Local()
        self.covered = weakref.WeakSet()  # models that are known, and all that is in them
        self.optimizers = []
        self.found = []  # a dict for each model
        self.kept = []  # sessions, for the report

    def install(self):
        import torch

        local, consider = self.local, self.consider
        call, init = torch.nn.Module.__call__, torch.optim.Optimizer.__init__

        def noticing_call(module, *args, **kwargs):
            if torch.compiler.is_compiling() or local.inside:
                return call(module, *args, **kwargs)
            local.inside = True
            try:
                consider(module)
                return call(module, *args, **kwargs)
            finally:
                local.inside = False

        # torch.compile passes over PyTorch's own files, and would begin with this function: it is to see no difference
        noticing_call.__code__ = noticing_call.__code__.replace(co_filename=torch.nn.modules.module.__file__)

        def noticing_init(optimizer, *args, **kwargs):
            init(optimizer, *args, **kwargs)
            self.optimizers.append(weakref.ref(optimizer))

        torch.nn.Module.__call__, torch.optim.Optimizer.__init__ = noticing_call, noticing_init

    def consider(self, module):
        import torch

        # `covered` also has parts of models: checkpoints call them again in the backward pass
        if not torch.is_grad_enabled() or module in self.covered or getattr(module, "_is_replica", False):
            return
        if any(parameter.requires_grad for parameter in module.parameters()):
            self.covered.update(module.modules())
            self.add(module)

    def add(self, module):
        inner = set(module.modules())
        for found in self.found:  # parts that had been called on their own before are the whole's now
            part, session = found["module"](), found["session"] and found["session"]()
            if part is not None and part in inner and session is not None:
                session.detach()
        session = self.attach(module) if self.attaches else None
        self.found.append({"module": weakref.ref(module), "session": session and weakref.ref(session),
                           "native": session and session.native, "name": type(module).__name__,
                           "parameters": sum(parameter.numel() for parameter in module.parameters()),
                           "fused": getattr(module, "comet_fused", None)})
        if self.keeps and session:
            self.kept.append(session)

    def attach(self, module):
        import libcomet.torch as comet

        if self.fuses:
            comet.fuse(module)
        return comet.attach(module, self.optimizer_of(module), **self.options)

    def optimizer_of(self, module):
        own = {id(parameter) for parameter in module.parameters()}
        for optimizer in (reference() for reference in self.optimizers):
            if optimizer is not None and any(id(parameter) in own for group in optimizer.param_groups
                                             for parameter in group["params"]):
                return optimizer
        return None

    def describe(self):
        models = []
        for found in self.found:
            one = {name: found[name] for name in ("name", "parameters", "fused")}
            if found["native"]:
                sites = found["native"].sites()
                one.update(raw=sum(site["raw_total"] for site in sites),
                           stored=sum(site["stored_total"] for site in sites))
            models.append(one)
        return models


def _allocated():
    import torch
    return sum(torch.cuda.memory_allocated(device) for device in range(torch.cuda.device_count()))


class _Memory:
    """The peak of the GPUs, also where a script sets PyTorch's own account of it back; else the resident peak."""

    def __init__(self):
        self.begin = _resident("VmRSS")
        self.earlier, self.reserved = {}, {}

    def install(self):
        import torch

        reset = torch.cuda.memory.reset_peak_memory_stats

        def noting_reset(device=None):
            self.note()
            return reset(device)

        torch.cuda.reset_peak_memory_stats = torch.cuda.memory.reset_peak_memory_stats = noting_reset

    def note(self):
        import torch

        if torch.cuda.is_initialized():
            for device in range(torch.cuda.device_count()):
                self.earlier[device] = max(self.earlier.get(device, 0), torch.cuda.max_memory_allocated(device))
                self.reserved[device] = max(self.reserved.get(device, 0), torch.cuda.max_memory_reserved(device))

    def result(self):
        self.note()
        if any(self.earlier.values()):
            return {"device": "GPU", "peak": sum(self.earlier.values()), "reserved": sum(self.reserved.values())}
        peak = _resident("VmHWM")
        return {"device": "CPU", "peak": peak - self.begin if peak else None}


def _resident(key):
    """A line of /proc/self/status, in bytes; None on systems without it."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))
    except (OSError, StopIteration):
        return None


def _set_seeds(seed):
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:  # PyTorch has imported it, if it is there
        sys.modules["numpy"].random.seed(seed % (1 << 32))


def _is_out_of_memory(error):
    import torch
    return isinstance(error, torch.cuda.OutOfMemoryError) or "CUDA out of memory" in str(error)


def _show(error):
    """The traceback as the script itself would have shown it: without the files that started it."""
    own = (__file__, runpy.__file__, "<frozen runpy>")
    shown = traceback.TracebackException.from_exception(error)
    shown.stack[:] = [frame for frame in shown.stack if frame.filename not in own]
    print("".join(shown.format()), end="", file=sys.stderr)


def _run_script(settings):
    """DONE, OUT_OF_MEMORY or FAILED, and the last line about it."""
    sys.argv = [settings["target"], *settings["arguments"]]
    try:
        if settings["is_module"]:
            runpy.run_module(settings["target"], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(pathlib.Path(settings["target"]).resolve().parent)
            runpy.run_path(settings["target"], run_name="__main__")
    except _Enough:
        pass
    except SystemExit as error:
        if error.code not in (None, 0):
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
            return FAILED, error.code if isinstance(error.code, str) else f"it ended with exit code {error.code}"
    except Exception as error:  # noqa: BLE001 (whatever the script raises)
        _show(error)
        text = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        return (OUT_OF_MEMORY if _is_out_of_memory(error) else FAILED), text
    return DONE, ""


def _child(settings):
    import torch

    losses, steps, memory = _Losses(), _Steps(settings["steps"]), _Memory()
    models = _Models(settings["run"] == "comet", settings["options"], settings["fuse"], bool(settings["report"]))
    for part in (losses, steps, models, memory):
        part.install()  # in both runs, so that what they cost is in both times
    if settings["seed"] >= 0:
        _set_seeds(settings["seed"])
    begin = time.perf_counter()
    status, why = _run_script(settings)
    sys.stdout.flush()
    if torch.cuda.is_initialized() and status != FAILED:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    found = {"status": status, "why": why, "seconds": seconds, "steps": steps.count}
    if status != FAILED:
        steps.read()
        losses.read()
        found.update(memory.result(), ms=steps.ms, losses=losses.values, models=models.describe(),
                     between=steps.between)
        if models.kept:
            found["report"] = _write_report(models.kept[0], settings["report"])
    with open(settings["result"], "w") as file:
        json.dump(found, file)
    return 1 if status == FAILED else 0


def _write_report(session, path):
    """An empty text, or why there is none."""
    form = {".html": "html", ".json": "dict"}.get(pathlib.Path(path).suffix, "text")
    try:
        made = session.report(form)
        text = json.dumps(made, indent=1) if form == "dict" else made
        pathlib.Path(path).write_text(text, encoding="utf-8")
    except (ImportError, OSError, ValueError) as error:
        return str(error)
    return ""


# ---- in the process that compares ----


class Failure(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def _say(text):
    print(text, file=sys.stderr, flush=True)


def _how_it_ended(code, found):
    if found:
        return found["why"]
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it ended with exit code {code} before anything was written down"


def _run(options, run, folder):
    """What the process of a run found."""
    result = folder / f"{run}.json"
    settings = {"run": run, "result": str(result), "target": options.target, "arguments": options.arguments,
                "is_module": options.is_module, "steps": options.steps, "seed": options.seed, "fuse": options.fuse,
                "options": options.attach,
                "report": options.report if run == "comet" else None}
    command = [sys.executable, "-m", "libcomet.torch.compare", "--child", json.dumps(settings)]
    log = folder / f"{run}.log"
    with open(log, "wb") as file:
        to = file if options.quiet else sys.stderr
        done = subprocess.run(command, stdout=to, stderr=to, check=False)
    found = json.loads(result.read_text()) if result.exists() else None
    if found is None or found["status"] == FAILED:
        if options.quiet:
            _say("\n".join(log.read_text(errors="replace").splitlines()[-20:]))
        which = "without Comet" if run == "plain" else "with Comet"
        raise Failure(1 if run == "plain" else 3, f"the script failed {which}: {_how_it_ended(done.returncode, found)}")
    return found


def _median_ms(found):
    """Without the first steps, in which much happens only once."""
    ms = found["ms"]
    ms = ms[min(5, len(ms) // 2):]
    return statistics.median(ms) if ms else None


def _last_loss(found):
    """The mean of the last tenth, at most 50 values."""
    count = max(1, min(50, len(found["losses"]) // 10))
    last = found["losses"][-count:]
    return (statistics.fmean(last), count) if last else (None, 0)


def _number(value, digits):
    return "-" if value is None else f"{value:,.{digits}f}"


def _ratio(above, below, word):
    if not above or not below:
        return ""
    return f"{above / below:.2f} x {word[0]}" if above >= below else f"{below / above:.2f} x {word[1]}"


def _rows(plain, comet):
    """(name, without, with, what that means)"""
    def peak(found):
        return None if found["peak"] is None else found["peak"] / MIB

    where = "PyTorch's allocator" if plain["device"] == "GPU" else "resident, since the script began"
    rows = [(f"peak MiB ({where})", _number(peak(plain), 0), _number(peak(comet), 0),
             _ratio(plain["peak"], comet["peak"], ("less", "more")))]
    # What Comet keeps between steps is its own: what is static is told by the run without.
    if plain["between"] and plain["status"] == DONE:
        beyond = [found["peak"] - plain["between"] for found in (plain, comet)]
        rows.append(("  beyond what is there between steps", *(_number(value / MIB, 0) for value in beyond),
                     _ratio(*beyond, ("less", "more")) if min(beyond) > 0 else ""))
    taken = [found.get("reserved") for found in (plain, comet)]  # the allocator keeps blocks that are free
    if all(taken):
        rows.append(("  taken from the driver for it", *(_number(value / MIB, 0) for value in taken),
                     _ratio(*taken, ("less", "more"))))
    times = [_median_ms(found) for found in (plain, comet)]
    rows.append(("ms per step (median)", *(_number(value, 1) for value in times),
                 _ratio(times[1], times[0], ("longer", "shorter")) if all(times) else ""))
    rows.append(("seconds in all", _number(plain["seconds"], 1), _number(comet["seconds"], 1), ""))
    rows.append(("steps of the optimizer", *(_number(found["steps"], 0) for found in (plain, comet)), ""))
    if plain["losses"] and comet["losses"]:
        rows.append(("loss, first", *(_number(found["losses"][0], 5) for found in (plain, comet)), ""))
        (one, count), (other, _) = _last_loss(plain), _last_loss(comet)
        rows.append((f"loss, {'last' if count == 1 else f'mean of the last {count}'}", _number(one, 5),
                     _number(other, 5), f"{other - one:+.5f}"))
    return rows


def _show_table(options, plain, comet):
    print(f"{' '.join([options.target, *options.arguments])}\n")
    rows = [("", "without", "with Comet", ""), *_rows(plain, comet)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, one, other, meaning in rows:
        print(f"{name.ljust(widths[0])}  {one.rjust(widths[1])}  {other.rjust(widths[2])}  {meaning}".rstrip())
    print()
    if plain["status"] == OUT_OF_MEMORY:
        print("without Comet the GPU had not enough memory")
    if comet["status"] == OUT_OF_MEMORY:
        print("with Comet the GPU had not enough memory")
    for model in comet["models"]:
        fused = f", {model['fused']} blocks fused" if model["fused"] else ""
        line = f"{model['name']} ({model['parameters'] / 1e6:.1f} million parameters{fused}): "
        print(line + (f"Comet held {model['raw'] / MIB:,.0f} MiB, in all steps, as {model['stored'] / MIB:,.0f}"
                      if model["stored"] else "it saved nothing that Comet holds in another form"))
    if options.report:
        print(f"report: {options.report}" if not comet.get("report") else f"no report was written: {comet['report']}")


def _check(plain, comet):
    for run, found in (("without", plain), ("with", comet)):
        if not found["steps"] and found["status"] == DONE:
            raise Failure(4, f"the script ran {run} Comet, but no optimizer of torch.optim made a step in its process")
    if not comet["models"]:
        raise Failure(4, "the script ran, but no module with parameters to train was called in its process")


def _setting(text):
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"'{text}': must be NAME=VALUE, such as codec=group:4")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m libcomet.torch.compare", description=__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter, usage="%(prog)s [options] (script.py | -m module) ...")
    add = parser.add_argument
    add("--error-rel", type=float, default=0.3, metavar="E",
        help="the bound of an error, in units of a tensor's root mean square (default %(default)s)")
    add("--fuse", action="store_true", help="comet.fuse(model) before: batch norm and activation in one, stored once")
    add("--set", type=_setting, action="append", default=[], metavar="NAME=VALUE",
        help="another option of comet.attach; can be given again")
    add("--steps", type=int, default=0, metavar="N", help="end both runs after N steps (default: as the script does)")
    add("--seed", type=int, default=0, metavar="N",
        help="set before the script begins, for random, NumPy and PyTorch; -1: not at all (default %(default)s)")
    add("--quiet", action="store_true", help="what the script prints is not shown (else it goes to standard error)")
    add("--report", metavar="FILE", help="what was saved, tensor by tensor: .html, .json or text")
    add("--json", metavar="FILE", help="everything that was found, with all losses and times")
    add("-m", dest="module", metavar="MODULE", help="a module instead of a script, as with python -m")
    add("script", nargs=argparse.REMAINDER, help="the training script, and its arguments")
    options = parser.parse_args(arguments)
    rest = options.script
    if options.module is None and not rest:
        parser.error("which script? python -m libcomet.torch.compare train.py")
    options.is_module = options.module is not None
    options.target = options.module if options.is_module else rest[0]
    options.arguments = rest if options.is_module else rest[1:]
    if not options.is_module and not pathlib.Path(options.target).is_file():
        hint = ": options come before the script" if options.target.startswith("-") else ""
        parser.exit(2, f"compare: there is no script '{options.target}'{hint}\n")
    options.attach = {"error_rel": options.error_rel, **dict(options.set)}
    try:  # what attach would not take is known before anything has run
        Options(**options.attach)
    except (TypeError, ValueError) as error:
        parser.exit(2, f"compare: comet.attach cannot have these options: {error}\n")
    return options


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--child"]:
        return _child(json.loads(arguments[1]))
    options = _parse(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="comet-compare-") as folder:
            _say("---- without Comet ----")
            plain = _run(options, "plain", pathlib.Path(folder))
            _say(f"---- with Comet (without it took {plain['seconds']:.0f} s) ----")
            comet = _run(options, "comet", pathlib.Path(folder))
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps({"plain": plain, "comet": comet}, indent=1))
        _check(plain, comet)
    except Failure as failure:
        _say(f"compare: {failure}")
        return failure.code
    except OSError as error:
        _say(f"compare: {error}")
        return 2
    except KeyboardInterrupt:
        return 130
    _show_table(options, plain, comet)
    return 0


if __name__ == "__main__":
    # Imported by its name, so that what the script unpickles or calls finds one copy of this module, not two.
    from libcomet.torch import compare
    code = compare.main()
    sys.stdout.flush()
    if sys.argv[1:2] == ["--child"]:
        os._exit(code)  # the script is over: threads that it left running must not keep the process
    sys.exit(code)

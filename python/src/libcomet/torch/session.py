# SPDX-License-Identifier: Apache-2.0
"""Sessions: from attach to detach. Hooks are active while the model's forward pass runs, and only then."""
import contextlib
import functools
import warnings

import torch

from libcomet import _native
from libcomet.torch import _bridge, fuse  # noqa: F401 (they hand functions to the C module)
from libcomet.torch import control as controllers, ops, recompute, scope
from libcomet.torch.budget import Budget
from libcomet.torch.options import UNTOUCHED, Options, read_control


class _Running:
    """One forward pass of a model, in one thread. The frame sees every function of PyTorch that is called, as a mode,
    and every tensor that is saved, as a hook."""

    def __init__(self, session, has_mode, observer=None, is_part=False):
        self.native, self.frame = session.native, session.native.frame(session._names)
        self.frame.form = session._default_form
        if observer is not None:
            self.frame.observer = observer
        self.session, self.leaves, self.has_mode, self.is_part = session, session._leaves, has_mode, is_part
        self.hook(self.frame.pack, session.native.unpack)

    def hook(self, pack, unpack=None):
        self.hooks = torch.autograd.graph.saved_tensors_hooks(pack, unpack or self.native.unpack)

    def part(self, pack, unpack):
        """A part of this pass, with hooks of its own: a block that is done twice."""
        part = _Running(self.session, self.has_mode, is_part=True)
        if pack is not None:
            part.hook(pack, unpack)
        return part

    def run_inside(self, outer, call, args, kwargs):
        """call() in this pass. outer: the one that it is a part of, if this thread is in it."""
        if outer is not None:
            outer.__exit__(None, None, None)
        try:
            with scope.entered(self), self:
                return call(*args, **kwargs)
        finally:
            if outer is not None:
                outer.__enter__()

    def __enter__(self):
        self.hooks.__enter__()
        self.frame.enter(self.leaves)
        if self.has_mode:
            torch._C._push_on_torch_function_stack(self.frame)

    def __exit__(self, *reason):
        if self.has_mode:
            torch._C._pop_torch_function_stack()
        self.frame.exit(self.leaves)
        self.hooks.__exit__(*reason)


class _Around:
    """Runs `wraps` around the call of a module: each is called as wrap(call, *args, **kwargs), the last one outermost.
    In the place that PyTorch has for module.compile(): it is not copied, pickled or part of the state_dict, and every
    exception passes through."""

    def __init__(self, module):
        self.before, self.wraps = module._compiled_call_impl, []
        self.own = self.before or module._call_impl

    def __call__(self, *args, **kwargs):
        call = self.own
        if not torch.compiler.is_compiling():
            for wrap in self.wraps:
                call = functools.partial(wrap, call)
        return call(*args, **kwargs)


def _allocated(index):
    """PyTorch's bytes on a GPU: now, and the most there were."""
    found = torch.cuda.memory_stats_as_nested_dict(index)["allocated_bytes"]["all"]
    return float(found["current"]), float(found["peak"])


def _replicate(module):
    """For nn.DataParallel: a replica must not run what is around the original."""
    replica = type(module)._replicate_for_data_parallel(module)
    replica.__dict__.pop("_compiled_call_impl", None)
    return replica


def _is_compiled(module):
    around = module._compiled_call_impl
    inner = around.before if isinstance(around, _Around) else around
    return inner is not None or hasattr(module, "_orig_mod")


def _wrap(module, wrap):
    """Puts `wrap` around the module. Returns how to undo it."""
    if not isinstance(module._compiled_call_impl, _Around):
        module._compiled_call_impl = _Around(module)
        module._replicate_for_data_parallel = functools.partial(_replicate, module)
    around = module._compiled_call_impl
    around.wraps.append(wrap)

    def undo():
        around.wraps.remove(wrap)
        if not around.wraps and module._compiled_call_impl is around:  # else module.compile() was called meanwhile
            module._compiled_call_impl = around.before
            module.__dict__.pop("_replicate_for_data_parallel", None)
    return undo


class Session:
    """What `attach` returns. `report()` says what was saved, `detach()` leaves the model as it was."""

    def __init__(self, model, optimizer=None, *, control=None, scaler=None, control_options=None, **options):
        self.model, self.optimizer = model, optimizer
        self.options = Options(**options)
        self._warned = set()
        self._names = {id(parameter): name.rpartition(".")[0] for name, parameter in model.named_parameters()}
        forms, rules = self.options.forms_of(model)
        self._default_form = rules.pop(model, UNTOUCHED if self.options.include else 0)
        self.native = _native.Session(forms=forms, least_bytes=self.options.min_bytes,
                                      lead_bytes=self.options.lead_bytes, segment_bytes=self.options.segment_bytes,
                                      threads=torch.get_num_threads(), head_bytes=self.options.head_bytes,
                                      own_norms=self.options.own_norms)
        self.device = next((p.device for p in model.parameters() if p.is_cuda), None)
        control, settings = read_control(control)
        self.control = controllers.make(self, control, scaler, {**settings, **(control_options or {})})
        self._is_compiled = _is_compiled(model)
        compiled = [module for module in model.modules() if _is_compiled(module) and module is not model]
        if any(isinstance(module, torch.nn.DataParallel) for module in model.modules()):
            raise ValueError("nn.DataParallel copies its layers in every step: attach to the module inside of it, "
                             "or use DistributedDataParallel")
        self._leaves = tuple(ops.leaf(module) for module in model.modules() if ops.is_leaf(module))
        self._passes, self._mode_wanted = 0, True
        self._undo = [_wrap(model, self._run)]
        self._undo += [_wrap(module, functools.partial(self._run_form, form)) for module, form in rules.items()]
        if compiled or self._is_compiled:
            self._warn("compiled modules keep their activations as they are: only what runs eagerly is compressed")
        self._undo += [_wrap(module, self._run_compiled) for module in compiled]
        self._blocks = [self._block(module, lambda block: True) for module in self.options.recomputed(model)]
        self.budget = None
        index = self.device.index or 0 if self.device is not None else -1
        if index >= 0 and not self.options.memory and not _bridge.gpu_obstacle(index):
            self.native.set_footprint(index, functools.partial(_allocated, index))
        if self.options.memory:
            try:
                self.budget = Budget(self, self.options.memory)
            except Exception:
                self.detach()
                raise

    def _block(self, module, wanted):
        name = next(name for name, found in self.model.named_modules() if found is module)
        block = recompute.Block(self, module, name, wanted)
        self._undo.append(_wrap(module, block.run))
        return block

    # ---- one forward pass ----

    def _run(self, call, *args, **kwargs):
        running = self._begin_pass() if self._can_run() else None
        if running is None:
            with scope.entered(None):
                return call(*args, **kwargs)
        with scope.entered(running), running:
            result = call(*args, **kwargs)
        if running.has_mode or running.frame.saw_function:
            self._mode_wanted = running.frame.saw_function
        return result

    def _begin_pass(self):
        self.native.measure_footprint(self._passes == 2 or self._passes % 256 == 255)
        may_collect = self.budget is None or self.budget.begin_pass()
        observer = self.control.watch(may_collect)
        if self.budget is not None and observer is not None and observer.collects:
            self.budget.begin_collecting()
        return _Running(self, self._needs_mode(), observer)

    def _needs_mode(self):
        """Functions that are called outside of known modules are looked for in the first pass, and now and then."""
        self._passes += 1
        return self._mode_wanted or self._passes % 64 == 0

    def _run_form(self, form, call, *args, **kwargs):
        """A module that has a form of its own."""
        running = scope.innermost()
        if not self._undo or running is None or running.native is not self.native:
            return call(*args, **kwargs)
        outer, running.frame.form = running.frame.form, form
        try:
            return call(*args, **kwargs)
        finally:
            running.frame.form = outer

    def _run_compiled(self, call, *args, **kwargs):
        """Neither hooks nor modes reach into compiled code: outside of it they would only break it up."""
        running = scope.innermost()
        if running is None or running.native is not self.native:
            return call(*args, **kwargs)
        running.__exit__()
        try:
            return call(*args, **kwargs)
        finally:
            running.__enter__()

    def _can_run(self):
        if not self._undo or not torch.is_grad_enabled() or self._is_compiled:
            return False
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            self._warn("a CUDA graph is being captured: activations are kept as they are")
            return False
        return True

    def _warn(self, text):
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn("libcomet: " + text, stacklevel=3)

    # ---- for the user ----

    def detach(self):
        """Leaves the model as it was. Graphs that are still alive can be gone through."""
        undo, self._undo = self._undo, []
        if self.budget is not None:
            self.budget.end()
        self._blocks = []
        for step in reversed(undo):
            step()
        self.control.detach()

    def step(self, loss=None):
        """Tells the controller the loss of this step of the optimizer, so that it tightens bounds when the loss jumps.
        Not needed, but where there is no optimizer: then it ends an iteration."""
        self.control.step(loss)

    def report(self, form="text", path=None):
        """What was saved, as a text, a dict or a page of HTML ('text', 'dict', 'html'); also written to a file."""
        from libcomet.torch import report
        return report.make(self, form, path)

    def stats(self):
        """Bytes now, by device (-1: the CPU)."""
        self.native.poll()
        return {**self.native.stats(), "measuring_bytes": self.control.room.used}


def attach(model, optimizer=None, **options):
    """Holds what `model` saves for its backward pass compressed, until session.detach(). docs/pytorch.md lists the
    options."""
    return Session(model, optimizer, **options)


@contextlib.contextmanager
def compress(model, optimizer=None, **options):
    """attach and detach around a block."""
    session = attach(model, optimizer, **options)
    try:
        yield session
    finally:
        session.detach()

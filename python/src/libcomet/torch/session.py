# SPDX-License-Identifier: Apache-2.0
"""Sessions: from attach to detach. Hooks are active while the model's forward pass runs, and only then."""
import contextlib
import functools
import warnings

import torch

from libcomet import _native
from libcomet.torch import _bridge, ops, scope  # noqa: F401 (_bridge hands PyTorch to the C module)
from libcomet.torch.options import UNTOUCHED, Options


class _Running:
    """One forward pass of a model, in one thread. The frame sees every function of PyTorch that is called, as a mode,
    and every tensor that is saved, as a hook."""

    def __init__(self, session):
        self.native, self.frame = session.native, session.native.frame(session._names)
        self.frame.form = session._default_form
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.frame.pack, session.native.unpack)

    def __enter__(self):
        self.hooks.__enter__()
        torch._C._push_on_torch_function_stack(self.frame)

    def __exit__(self, *reason):
        torch._C._pop_torch_function_stack()
        self.hooks.__exit__(*reason)


def _is_compiled(module):
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None


def _around(module, call):
    """Has `call(module's own call, args, kwargs)` run in place of the module's call. In the place that PyTorch has for
    module.compile(): it is not copied, pickled or part of the state_dict, and any exception passes through `call`.
    Returns how to undo it."""
    before = module._compiled_call_impl
    own = before or module._call_impl

    def around(*args, **kwargs):
        return own(*args, **kwargs) if torch.compiler.is_compiling() else call(own, args, kwargs)

    def undo():
        if module._compiled_call_impl is around:  # else somebody is around it by now: `call` sees that it is over
            module._compiled_call_impl = before

    module._compiled_call_impl = around
    return undo


class Session:
    """What `attach` returns. `report()` says what was saved, `detach()` leaves the model as it was."""

    def __init__(self, model, optimizer=None, **options):
        self.model, self.optimizer = model, optimizer
        self.options = Options(**options)
        self._warned = set()
        self._names = {id(parameter): name.rpartition(".")[0] for name, parameter in model.named_parameters()}
        forms, rules = self.options.forms_of(model)
        self._default_form = rules.pop(model, UNTOUCHED if self.options.include else 0)
        self.native = _native.Session(forms=forms, least_bytes=self.options.min_bytes,
                                      lead_bytes=self.options.lead_bytes, segment_bytes=self.options.segment_bytes,
                                      threads=torch.get_num_threads())
        self._is_compiled = _is_compiled(model)
        compiled = [module for module in model.modules() if _is_compiled(module) and module is not model]
        self._undo = [_around(model, self._run)]
        self._undo += [_around(module, functools.partial(self._run_form, form)) for module, form in rules.items()]
        if compiled or self._is_compiled:
            self._warn("compiled modules keep their activations as they are: only what runs eagerly is compressed")
        self._undo += [_around(module, self._run_compiled) for module in compiled]

    # ---- one forward pass ----

    def _run(self, call, args, kwargs):
        running = _Running(self) if self._can_run() else None
        with scope.entered(running), running or contextlib.nullcontext():
            return call(*args, **kwargs)

    def _run_form(self, form, call, args, kwargs):
        """A module that has a form of its own."""
        running = scope.innermost()
        if not self._undo or running is None or running.native is not self.native:
            return call(*args, **kwargs)
        outer, running.frame.form = running.frame.form, form
        try:
            return call(*args, **kwargs)
        finally:
            running.frame.form = outer

    def _run_compiled(self, call, args, kwargs):
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
        for step in reversed(undo):
            step()

    def report(self, form="text", path=None):
        """What was saved: as a text, a dict, or a page of HTML (form 'text', 'dict', 'html'), also written to a file."""
        from libcomet.torch import report
        return report.make(self, form, path)

    def stats(self):
        """Bytes now, by device (-1: the CPU)."""
        return self.native.stats()


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

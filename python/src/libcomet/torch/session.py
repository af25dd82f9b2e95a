# SPDX-License-Identifier: Apache-2.0
"""Sessions: from attach to detach. Hooks are active while the model's forward pass runs, and only then."""
import contextlib
import warnings

import torch
from torch.overrides import TorchFunctionMode

from libcomet import _native
from libcomet.torch import _bridge, ops, scope  # noqa: F401 (_bridge: hands PyTorch to the C module)
from libcomet.torch.options import Options

UNTOUCHED = 1  # of the session's forms: 0 is its own, 1 leaves everything as it is


class _Watch(TorchFunctionMode):
    """Tells the frame which operation is running, so that it knows what is being saved."""

    def __init__(self, running):
        super().__init__()
        self.running, self.begin, self.end = running, running.frame.begin, running.frame.end

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function not in ops.KNOWN or not torch.is_grad_enabled():
            return function(*args, **kwargs)
        operation, tensor, weight, window = ops.find(function, args, kwargs)
        self.begin(operation, self.running.form, tensor, weight, window)
        failed = True
        try:
            result = function(*args, **kwargs)
            failed = False
        finally:
            self.end(failed)
        return result


class _Running:
    """One forward pass of a model, in one thread."""

    def __init__(self, session):
        self.native, self.frame = session.native, session.native.frame(session._names)
        self.forms, self.form = [], session._default_form
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.frame.pack, session.native.unpack)
        self.watch = _Watch(self)
        self.hooks.__enter__()
        self.watch.__enter__()

    def close(self):
        self.watch.__exit__(None, None, None)
        self.hooks.__exit__(None, None, None)

    def enter(self, form):
        self.forms.append(self.form)
        self.form = form

    def leave(self):
        self.form = self.forms.pop()


class Session:
    """What `attach` returns. `report()` says what was saved, `detach()` leaves the model as it was."""

    def __init__(self, model, optimizer=None, **options):
        self.model, self.optimizer = model, optimizer
        self.options = Options(**options)
        self._warned = set()
        self._names = {id(parameter): name.rpartition(".")[0] for name, parameter in model.named_parameters()}
        forms, rules = self.options.forms_of(model)
        self._default_form = UNTOUCHED if self.options.include else 0
        self.native = _native.Session(forms=forms, least_bytes=self.options.min_bytes,
                                      lead_bytes=self.options.lead_bytes, segment_bytes=self.options.segment_bytes,
                                      threads=torch.get_num_threads())
        self._hooks = [model.register_forward_pre_hook(self._enter, prepend=True),
                       model.register_forward_hook(self._leave, always_call=True)]
        for module, form in rules.items():
            self._hooks += [module.register_forward_pre_hook(self._enter_form(form), prepend=True),
                            module.register_forward_hook(self._leave_form, always_call=True)]

    # ---- one forward pass ----

    def _enter(self, module, args):
        if not torch.compiler.is_compiling():
            scope.push(_Running(self) if self._can_run() else None)

    def _leave(self, module, args, output):
        if not torch.compiler.is_compiling():
            running = scope.pop()
            if running is not None:
                running.close()

    def _can_run(self):
        if not torch.is_grad_enabled():
            return False
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            self._warn("a CUDA graph is being captured: activations are kept as they are")
            return False
        return True

    def _enter_form(self, form):
        def enter(module, args):
            running = scope.innermost()
            if running is not None:
                running.enter(form)
        return enter

    def _leave_form(self, module, args, output):
        running = scope.innermost()
        if running is not None:
            running.leave()

    def _warn(self, text):
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn("libcomet: " + text, stacklevel=3)

    # ---- for the user ----

    def detach(self):
        """Leaves the model as it was. Graphs that are still alive can be gone through."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

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

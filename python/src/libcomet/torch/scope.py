# SPDX-License-Identifier: Apache-2.0
"""The forward passes that a thread is in the middle of."""
import contextlib
import threading


class _Scope(threading.local):
    def __init__(self):
        self.passes = []  # None where activations stay as they are; the innermost last


_scope = _Scope()


@contextlib.contextmanager
def entered(running):
    _scope.passes.append(running)
    try:
        yield
    finally:
        _scope.passes.pop()


def innermost():
    return _scope.passes[-1] if _scope.passes else None

# SPDX-License-Identifier: Apache-2.0
"""What a thread is in the middle of: the forward passes of sessions, and the forms of the modules they are in."""
import threading


class _Scope(threading.local):
    def __init__(self):
        self.passes = []  # None where activations stay as they are; the innermost last


_scope = _Scope()


def push(entered):
    _scope.passes.append(entered)


def pop():
    return _scope.passes.pop() if _scope.passes else None


def innermost():
    return _scope.passes[-1] if _scope.passes else None


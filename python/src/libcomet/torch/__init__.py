# SPDX-License-Identifier: Apache-2.0
"""Comet for PyTorch: what autograd saves for the backward pass is held compressed.

    import libcomet.torch as comet

    with comet.compress(model, optimizer):
        train()

or, without a context: session = comet.attach(model, optimizer); ...; print(session.report()); session.detach().

What is known to stand an error is held within a bound; everything else is exact. docs/pytorch.md says which is which.
"""
import torch as _torch

if tuple(int(part) for part in _torch.__version__.split("+")[0].split(".")[:2]) < (2, 4):
    raise ImportError(f"libcomet.torch needs PyTorch 2.4 or later, and this is {_torch.__version__}")

from libcomet.torch._bridge import gpu_obstacle
from libcomet.torch.budget import BudgetError
from libcomet.torch.fuse import fuse, unfuse
from libcomet.torch.session import Session, attach, compress

__all__ = ["BudgetError", "Session", "attach", "compress", "fuse", "gpu_obstacle", "unfuse"]

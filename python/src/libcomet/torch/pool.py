# SPDX-License-Identifier: Apache-2.0
"""Where streams lie: in a pool of PyTorch's memory that is their own.

In PyTorch's common pool segments of streams are cut from the large blocks that activations leave behind, and stay there
until backward. The next activation of that size finds no block, and PyTorch takes another one from the driver: what it
has taken becomes two to three times what is ever allocated. In a pool of their own segments meet only each other. Its
bytes are in all of PyTorch's statistics and limits, as any others.
"""
import inspect
import threading

import torch


def obstacle():
    """Why there can be no such pool, or an empty string."""
    pool = getattr(torch.cuda, "MemPool", None)
    if pool is None or "use_on_oom" not in inspect.signature(pool.__init__).parameters:
        return f"PyTorch {torch.__version__} has no pools that a thread can use alone"
    return ""


class Pools:
    """One for each GPU, made when it is first needed. The C module calls `take`."""

    def __init__(self):
        self._pools, self._lock, self._is_open = {}, threading.RLock(), True

    def take(self, count, index, stream):
        """As torch.cuda.caching_allocator_alloc. Where the pool cannot grow any more the common one is asked, which
        gives back to the driver what it does not use before it gives up."""
        if self._is_open:
            with self._lock, torch.cuda.device(index):  # a pool is used by one thread at a time
                pool = self._pools.get(index) or self._make(index)
                try:
                    with torch.cuda.use_mem_pool(pool):
                        return torch.cuda.caching_allocator_alloc(count, index, stream)
                except torch.cuda.OutOfMemoryError:
                    pass
        return torch.cuda.caching_allocator_alloc(count, index, stream)

    def _make(self, index):
        # what is free in it may be used by others before they run out of memory
        self._pools[index] = torch.cuda.MemPool(use_on_oom=True)
        return self._pools[index]

    def close(self):
        """What is free in the pools goes back to the driver, the rest when it is free and PyTorch empties its cache."""
        with self._lock:
            self._is_open = False
            self._pools.clear()

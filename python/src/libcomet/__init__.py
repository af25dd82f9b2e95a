# SPDX-License-Identifier: Apache-2.0
"""libcomet: training with compressed activations. `import libcomet.torch as comet` is the plug-in for PyTorch."""
from libcomet._native import version as __version__

__all__ = ["__version__"]

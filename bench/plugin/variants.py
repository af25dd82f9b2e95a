# SPDX-License-Identifier: Apache-2.0
"""Ways to keep activations for the backward pass, and a training step with any of them.

  plain            PyTorch as it is
  hooks            comet.attach(model)
  fuse             comet.fuse(model), then comet.attach(model)
  checkpoint       torch.utils.checkpoint, not reentrant, around every block: the next best that is exact
  compile          torch.compile(model)
  compile-budget   the same with torch._functorch.config.activation_memory_budget = 0.5
  save_on_cpu      torch.autograd.graph.save_on_cpu(pin_memory=True) around the forward pass
  fp8              saved tensors as float8_e4m3fn, each once, parameters excepted: the simplest peer that loses digits
"""
import contextlib
import copy
import dataclasses
import functools
import weakref

import torch
import torchvision
from common import owned_bytes
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import checkpoint

VARIANTS = ("plain", "hooks", "fuse", "checkpoint", "compile", "compile-budget", "save_on_cpu", "fp8")
OF_COMET = ("hooks", "fuse")
BUDGET = 0.5  # of compile-budget: the part of what is saved by default that may still be saved

# What is a block in torchvision's networks, by the name of its class.
BLOCKS = {"BasicBlock", "Bottleneck", "ResBottleneckBlock", "InvertedResidual", "MBConv", "FusedMBConv", "CNBlock",
          "_DenseLayer", "EncoderBlock", "SwinTransformerBlock", "SwinTransformerBlockV2", "MaxVitLayer", "Fire",
          "Inception", "_InvertedResidual"}


# ---- checkpoint ----


def _blocks(model):
    """The outermost blocks of a network."""
    if type(model).__name__ in BLOCKS:
        return [model]
    return [block for child in model.children() for block in _blocks(child)]


def _checkpoint_block(block):
    if hasattr(block, "memory_efficient"):  # DenseNet's: its input is a list that grows, so it has a way of its own
        block.memory_efficient = True
        return
    # An attribute of the instance hides the method of the class: parameters, names and hooks stay as they are.
    block.forward = functools.partial(checkpoint, type(block).forward.__get__(block), use_reentrant=False)


def _checkpoint_sequential(features):
    """VGG and AlexNet have no blocks: what lies between two poolings is taken for one."""
    parts, part = [], []
    for layer in features:
        part.append(layer)
        if isinstance(layer, torch.nn.MaxPool2d):
            parts.append(torch.nn.Sequential(*part))
            part = []
    parts += [torch.nn.Sequential(*part)] if part else []

    def forward(x):
        for some in parts:
            x = checkpoint(some, x, use_reentrant=False)
        return x
    features.forward = forward


def checkpoint_blocks(model):
    """How many blocks there were."""
    blocks = _blocks(model)
    for block in blocks:
        _checkpoint_block(block)
    if not blocks:
        features = getattr(model, "features", None)
        if not isinstance(features, torch.nn.Sequential):
            raise ValueError(f"checkpoint: no block is known in {type(model).__name__}")
        _checkpoint_sequential(features)
        blocks = [features]
    return len(blocks)


# ---- hooks of PyTorch's own kind ----


class ParameterCheck:
    """Whether a tensor is a parameter, a view of one, or its copy in the type of autocast (told by its shape)."""

    def __init__(self, model):
        self.storages = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
        self.shapes = {shape for parameter in model.parameters() for shape in (parameter.shape, parameter.t().shape
                       if parameter.dim() == 2 else parameter.shape)}

    def __call__(self, tensor):
        return tensor.shape in self.shapes or tensor.untyped_storage().data_ptr() in self.storages


class SavedBytes:
    """Counts what autograd saves, each storage once, without parameters."""

    def __init__(self, model):
        self.is_parameter, self.storages = ParameterCheck(model), {}

    def pack(self, tensor):
        if not self.is_parameter(tensor):
            storage = tensor.untyped_storage()
            self.storages[storage.data_ptr()] = storage.nbytes()
        return tensor.detach()

    def around(self):
        return torch.autograd.graph.saved_tensors_hooks(self.pack, lambda tensor: tensor)

    def total(self):
        return sum(self.storages.values())


class _Byte:
    """A tensor as float8_e4m3fn."""

    def __init__(self, tensor):
        most = torch.finfo(torch.float8_e4m3fn).max  # what is above would become NaN
        self.dtype = tensor.dtype
        self.values = tensor.detach().clamp(-most, most).to(torch.float8_e4m3fn)


class ByteHooks:
    """What several functions save is held once: without that, a ReLU's output would be there twice."""

    LEAST = 1 << 16  # bytes, as with Comet

    def __init__(self, model):
        self.is_parameter, self.shared = ParameterCheck(model), {}

    def pack(self, tensor):
        if not tensor.is_floating_point() or tensor.nbytes < self.LEAST or self.is_parameter(tensor):
            return tensor.detach()
        key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor._version)
        storage, packed = self.shared.get(key, (None, None))
        found = packed() if storage is not None and not storage.expired() else None
        if found is None:
            found = _Byte(tensor)
            self.shared[key] = StorageWeakRef(tensor.untyped_storage()), weakref.ref(found)
        return found

    @staticmethod
    def unpack(packed):
        return packed.values.to(packed.dtype) if isinstance(packed, _Byte) else packed

    @contextlib.contextmanager
    def around(self):
        self.shared.clear()
        with torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack):
            yield


# ---- a variant applied to a model ----


class Applied:
    """`call` is called as the model is, inside of `around()`; `undo()` leaves model and settings as they were."""

    def __init__(self, name, model, optimiser=None, comet_options=None):
        self.name, self.call, self.around, self.session, self.blocks = name, model, contextlib.nullcontext, None, None
        self.model, self._budget = model, None
        if name in OF_COMET:
            import libcomet.torch as comet
            if name == "fuse":
                comet.fuse(model)
                self.blocks = model.comet_fused
            self.session = comet.attach(model, optimiser, **(comet_options or {}))
        elif name == "checkpoint":
            self.blocks = checkpoint_blocks(model)
        elif name in ("compile", "compile-budget"):
            self._compile(name == "compile-budget")
        elif name == "save_on_cpu":
            self.around = functools.partial(torch.autograd.graph.save_on_cpu, pin_memory=True)
        elif name == "fp8":
            self.around = ByteHooks(model).around

    def _compile(self, has_budget):
        import torch._functorch.config as config
        torch._dynamo.reset()
        self._budget = config.activation_memory_budget
        if has_budget:
            config.activation_memory_budget = BUDGET
        self.call = torch.compile(self.model)

    def undo(self):
        if self.session:
            import libcomet.torch as comet
            self.session.detach()
            comet.unfuse(self.model)
        if self._budget is not None:
            import torch._functorch.config as config
            config.activation_memory_budget = self._budget
            torch._dynamo.reset()
        self.session, self.call = None, None


# ---- training ----


def set_precision(precision, tries_kernels=True):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    torch.backends.cudnn.benchmark = tries_kernels


@dataclasses.dataclass
class Setting:
    """What is trained, and how."""
    model: str
    precision: str  # tf32, bf16 (autocast) or fp32
    layout: torch.memory_format
    rate: float
    device: torch.device
    classes: int = 1000
    tries_kernels: bool = True  # torch.backends.cudnn.benchmark, as such networks are trained; PyTorch's default: False


def out_of(result):
    """The logits, where a network in training returns more."""
    return getattr(result, "logits", result)


class Training:
    """A network of torchvision's in training. `state` is what another training's `keep()` returned."""

    def __init__(self, setting, variant, state=None, comet_options=None):
        torch.manual_seed(0)
        set_precision(setting.precision, setting.tries_kernels)
        self.setting = setting
        model = torchvision.models.get_model(setting.model, weights=None, num_classes=setting.classes)
        self.model = model.to(setting.device, memory_format=setting.layout).train()
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=setting.rate, momentum=0.9,
                                         fused=setting.device.type == "cuda")
        if state:
            self.model.load_state_dict(state["model"])
            # copied: what is on the right device already would be shared, and trained, with the next variant
            self.optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))
        self.applied = Applied(variant, self.model, self.optimiser, comet_options)
        self.session = self.applied.session

    def forward(self, images, labels, around=None):
        autocast = torch.autocast(self.setting.device.type, torch.bfloat16, enabled=self.setting.precision == "bf16")
        with (around or self.applied.around)(), autocast:
            return torch.nn.functional.cross_entropy(out_of(self.applied.call(images)), labels)

    def step(self, images, labels, around=None):
        """Gradients of the last step are dropped first, so between steps they are there."""
        self.optimiser.zero_grad(set_to_none=True)
        loss = self.forward(images, labels, around)
        loss.backward()
        self.optimiser.step()
        return loss.detach()

    def waited_ms(self):
        """How long Comet's host has waited for the device so far."""
        return self.session.native.stats()["waited_ms"] if self.session else 0.0

    def warm_rate(self, part):
        """For a training that begins: the rate rises to what it is to be."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.setting.rate * min(1.0, part)

    def own_bytes(self):
        """Weights, statistics, gradients and momentum."""
        state = [value for values in self.optimiser.state.values() for value in values.values()
                 if isinstance(value, torch.Tensor)]
        return owned_bytes(self.model.parameters(), self.model.buffers(), state,
                           [parameter.grad for parameter in self.model.parameters()])

    def keep(self):
        """Weights and momentum on the host."""
        def on_host(value):
            if isinstance(value, torch.Tensor):
                return value.detach().to("cpu", copy=True)
            if isinstance(value, dict):
                return {key: on_host(item) for key, item in value.items()}
            return [on_host(item) for item in value] if isinstance(value, list) else value
        return {"model": on_host(self.model.state_dict()), "optimiser": on_host(self.optimiser.state_dict())}

    def close(self):
        self.applied.undo()
        self.model = self.optimiser = self.applied = self.session = None


def train_before(setting, feed, batch, steps, progress=None):
    """Trains as PyTorch does, so that what is measured afterwards is a network in training, not a random one. Returns
    what it has learnt; None for no steps."""
    if not steps:
        return None
    training = Training(setting, "plain")
    for step in range(steps):
        training.warm_rate((step + 1) / max(1, min(20, steps // 2)))
        loss = training.step(*feed.batch(batch, setting.layout))
        if progress:
            progress(step, loss)
    training.warm_rate(1)
    state = training.keep()
    state["loss"] = loss.item()
    training.close()
    return state


# ---- what Comet says about itself ----


def store_of(stats, device):
    """The part of session.stats() that is about one device."""
    return stats.get(device.index or 0 if device.type == "cuda" else -1, {})

# SPDX-License-Identifier: Apache-2.0
"""fuse(model): a batch norm, what is added to it and the activation behind it become one call that stores once.

Modules stay where they are: parameters, buffers, names and state_dict do not change. What changes is the `forward` (of
timm's ResNets `forward_features`) of blocks that are known: an attribute of the instance, which `unfuse` takes away
again.

* torchvision's ResNets (BasicBlock, Bottleneck and the stem), and timm's of the plain kind
* in any nn.Sequential, a batch norm followed by ReLU, SiLU or GELU (torchvision's Conv2dNormActivation, VGG, ...)

The one call is made where a session is active and the layer trains on a GPU. Everywhere else, and in exact mode, the
same layers are called one by one, as they were before.
"""
import functools

import torch
import torch.nn.functional as F
from torch import nn

from libcomet import _native
from libcomet.torch import scope

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
CURVES = (nn.SiLU, nn.GELU)
_TOKEN = torch.empty(0)
_native.set_token(_TOKEN)


class _Normalise(torch.autograd.Function):
    """What is held goes among autograd's saved tensors, behind a token: so it is dropped when they are."""

    @staticmethod
    def forward(ctx, x, added, weight, bias, made):
        ctx.save_for_backward(_TOKEN)
        y, ctx.session = made  # y in a tuple: an argument that is returned would become a view
        return y

    @staticmethod
    def backward(ctx, gradient):
        ctx.saved_tensors  # raises if they were dropped; else the session knows now which norm it is
        return ctx.session.norm_backward(gradient)


# Without what Function.apply does for transforms of torch.func, which hooks do not work under.
_native.set_norm_function(super(torch.autograd.Function, _Normalise).apply)


def _is_plain(norm):
    return type(norm) in NORMS and norm.affine and norm.track_running_stats and norm.momentum is not None


def norm_act(norm, activation, x, added=None):
    """activation(norm(x) + added); both may be None."""
    relu, curve = isinstance(activation, nn.ReLU), isinstance(activation, CURVES)
    running = scope.innermost()
    if running is not None and type(norm) in NORMS and (relu or curve or activation is None) and \
            not (curve and added is not None):
        y = running.frame.norm(norm, activation, x, added, relu, curve)
        if y is not None:
            # SiLU works on a copy when it works in place, and the copy would be stored once more
            return y if not curve else F.silu(y) if isinstance(activation, nn.SiLU) else activation(y)
    y = norm(x)
    if added is not None:
        y += added
    return y if activation is None else activation(y)


# ---- blocks ----


def _short_cut(block, x):
    downsample = block.downsample
    if downsample is None:
        return x
    if isinstance(downsample, nn.Sequential) and len(downsample) == 2 and _is_plain(downsample[1]):
        return norm_act(downsample[1], None, downsample[0](x))
    return downsample(x)


def _basic_block(self, x):
    out = norm_act(self.bn1, self.relu, self.conv1(x))
    return norm_act(self.bn2, self.relu, self.conv2(out), _short_cut(self, x))


def _bottleneck(self, x):
    out = norm_act(self.bn1, self.relu, self.conv1(x))
    out = norm_act(self.bn2, self.relu, self.conv2(out))
    return norm_act(self.bn3, self.relu, self.conv3(out), _short_cut(self, x))


def _resnet(self, x):
    x = self.maxpool(norm_act(self.bn1, self.relu, self.conv1(x)))
    x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
    return self.fc(torch.flatten(self.avgpool(x), 1))


def _timm_basic_block(self, x):
    out = norm_act(self.bn1, self.act1, self.conv1(x))
    return norm_act(self.bn2, self.act2, self.conv2(out), _short_cut(self, x))


def _timm_bottleneck(self, x):
    out = norm_act(self.bn1, self.act1, self.conv1(x))
    out = norm_act(self.bn2, self.act2, self.conv2(out))
    return norm_act(self.bn3, self.act3, self.conv3(out), _short_cut(self, x))


def _timm_is_plain(block):
    """Without what may stand between the layers: drop blocks, anti-aliasing, squeeze-excite, drop path."""
    absent = ("drop_block", "aa", "se", "drop_path")
    return all(getattr(block, name, None) is None or isinstance(getattr(block, name), nn.Identity) for name in absent)


def _timm_features(self, x):
    if self.grad_checkpointing:
        return type(self).forward_features(self, x)
    x = self.maxpool(norm_act(self.bn1, self.act1, self.conv1(x)))
    return self.layer4(self.layer3(self.layer2(self.layer1(x))))


def _sequential(self, x):
    modules, at = list(self), 0
    while at < len(modules):
        module, follower = modules[at], modules[at + 1] if at + 1 < len(modules) else None
        if _is_plain(module) and isinstance(follower, (nn.ReLU, *CURVES)):
            x = norm_act(module, follower, x)
            at += 2
        else:
            x = module(x)
            at += 1
    return x


KNOWN = {"torchvision.models.resnet.BasicBlock": ("forward", _basic_block),
         "torchvision.models.resnet.Bottleneck": ("forward", _bottleneck),
         "torchvision.models.resnet.ResNet": ("forward", _resnet),
         "timm.models.resnet.BasicBlock": ("forward", _timm_basic_block),
         "timm.models.resnet.Bottleneck": ("forward", _timm_bottleneck),
         "timm.models.resnet.ResNet": ("forward_features", _timm_features)}


def _known(module):
    """(name of a method, what takes its place) of a module that is known, else None."""
    kind = type(module)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in KNOWN:
        return KNOWN[name] if not name.startswith("timm.") or _timm_is_plain(module) else None
    if kind.forward is nn.Sequential.forward:
        pairs = zip(list(module)[:-1], list(module)[1:])
        if any(_is_plain(first) and isinstance(second, (nn.ReLU, *CURVES)) for first, second in pairs):
            return "forward", _sequential
    return None


def fuse(model):
    """Changes the forward of blocks that are known. Returns the model; model.comet_fused says how many there were."""
    count = 0
    for module in model.modules():
        known = _known(module)
        if known and known[0] not in module.__dict__:
            setattr(module, known[0], functools.partial(known[1], module))  # can be copied and pickled
            count += 1
    model.comet_fused = getattr(model, "comet_fused", 0) + count
    return model


def unfuse(model):
    """As it was before `fuse`."""
    for module in model.modules():
        for name in ("forward", "forward_features"):
            method = module.__dict__.get(name)
            if isinstance(method, functools.partial) and method.func.__module__ == __name__:
                delattr(module, name)
    if "comet_fused" in model.__dict__:
        del model.comet_fused
    return model

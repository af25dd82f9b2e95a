# SPDX-License-Identifier: Apache-2.0
r"""Whether gradients that go through Comet's streams are right: `bench/gpu_step.py --check`.

Small networks with both kinds of block go three times forwards and backwards, in fp32 without TF32 and in bf16. At a
tiny bound the loss, every gradient and every running statistic must be PyTorch's. At the bound of the measurement the
error of the gradients is printed.

On a CPU, with kernels that are emulated there, it takes two minutes:

    cmake --preset release -DCMAKE_POSITION_INDEPENDENT_CODE=ON
    cmake --build --preset release --target comet_emulated
    g++ -shared -o libcomet_emulated.so -Wl,--whole-archive build/release/tests/libcomet_emulated.a \
        -Wl,--no-whole-archive -lz
    bench/gpu_step.py --check --device cpu --library ./libcomet_emulated.so
"""
import copy
import math
import sys

import torch
from comet_resnet import NormLayer, Session, attach, forward_and_backward, fuse, set_precision
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

BATCH, IMAGE, TINY_BOUND = 4, 64, 1e-5
ARENA_BYTES = 64 << 20  # an emulated device takes all of it at once
PASSES = 3  # the first gathers with a bound that is a guess, the second with the true one, the third relies on both


def small_network(block, device):
    """With scales of both signs, so that masks lie on either side of their threshold."""
    torch.manual_seed(1)
    model = ResNet(block, [2, 1, 1, 1], num_classes=10)
    for name, parameter in model.named_parameters():
        if "bn" in name or "downsample.1" in name:
            torch.nn.init.normal_(parameter, 0.1, 0.7)
    return model.to(device, memory_format=torch.channels_last).train()


def run_passes(model, images, labels, precision, session=None):
    """Loss, gradients and running statistics, by name."""
    for number in range(PASSES):
        model.zero_grad(set_to_none=True)
        if session:
            session.gathering = number < PASSES - 1
        loss = forward_and_backward(model, images, labels, precision, session)
        if session:
            session.check()
    found = {"loss": loss.detach()}
    found.update((name, parameter.grad) for name, parameter in model.named_parameters())
    found.update((name, buffer.double()) for name, buffer in model.named_buffers())
    return found


class RecordingNorm(NormLayer):
    def __call__(self, x, z=None):
        y = super().__call__(x, z)
        self.output = y.detach()
        return y


class ReplayedNorm:
    """PyTorch's batch norm, with what follows it, computed in fp32 and rounded once, as Comet's is. Gradients are its
    own; the output is one that was recorded."""

    def __init__(self, module, relu, adds):
        self.module, self.relu = module, relu

    def __call__(self, x, z=None):
        y = torch.nn.BatchNorm2d.forward(self.module, x.float())
        y = y if z is None else y + z
        y = (y.relu() if self.relu else y).to(x.dtype)
        self.output = y.detach()
        return self.recorded + (y - self.output)


def run_with_comet(library, model, images, labels, precision, bound):
    session = Session(library, images.device, bound, ARENA_BYTES)
    layers = attach(model, session, RecordingNorm)
    found = run_passes(model, images, labels, precision, session)
    found.update((f"output {number}", layer.output) for number, layer in enumerate(layers))
    if images.device.type == "cuda":
        torch.cuda.synchronize()
    print(f"{precision} at bound {bound:g}: {session.raw_bytes()} bytes stored in {session.stored_bytes()}",
          file=sys.stderr, flush=True)
    session.free()
    return found


def run_replayed(model, images, labels, precision, recorded):
    """In bf16 two runs of PyTorch's own that round differently have gradients that differ by tenths: a mask flips here
    and there. So outputs are taken from the run that is checked, and compared with what they should be."""
    layers = fuse(model, ReplayedNorm)
    for number, layer in enumerate(layers):
        layer.recorded = recorded[f"output {number}"]
    found = run_passes(model, images, labels, precision)
    found.update((f"output {number}", layer.output) for number, layer in enumerate(layers))
    return found


def relative_error(found, expected):
    found, expected = found.double(), expected.double()
    error = ((found - expected).norm() / expected.norm().clamp_min(1e-30)).item()
    return math.inf if math.isnan(error) else error


def whole_error(found, expected, model):
    """Of all gradients as one vector."""
    names = [name for name, _ in model.named_parameters()]
    return relative_error(*(torch.cat([values[name].flatten() for name in names]) for values in (found, expected)))


# Relative, of each value's L2 norm. A factor of two anywhere is off by tenths. What is left in fp32 is the bound and
# rounding, 1e-5 or less; in bf16 what rounding gradients leaves, some 1e-2.
TOLERANCES = {"fp32": 2e-3, "bf16": 1e-1}


def check_precision(library, model, images, labels, precision, bound):
    """Whether all is right, and a line that says so."""
    found, lossy = (run_with_comet(library, copy.deepcopy(model), images, labels, precision, which)
                    for which in (TINY_BOUND, bound))
    expected = (run_passes(copy.deepcopy(model), images, labels, precision) if precision == "fp32" else
                run_replayed(copy.deepcopy(model), images, labels, precision, found))
    errors = {name: relative_error(found[name], expected[name]) for name in expected}
    worst = max(errors, key=errors.get)
    right = errors[worst] <= TOLERANCES[precision]
    text = (f"{'ok' if right else 'WRONG'}: of {len(errors)} values the worst, {worst}, is off by {errors[worst]:.2g} "
            f"({TOLERANCES[precision]:g} is allowed), all gradients are by {whole_error(found, expected, model):.2g}; "
            f"at bound {bound:g} by {whole_error(lossy, expected, model):.2g}")
    return right, text


def check_network(library, block, device, bound):
    """True if all is right."""
    model = small_network(block, device)
    images = torch.randn(BATCH, 3, IMAGE, IMAGE, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.arange(BATCH, device=device) % 10
    all_right = True
    for precision in ("fp32", "bf16"):
        right, text = check_precision(library, model, images, labels, precision, bound)
        print(f"{block.__name__} {precision}: {text}", flush=True)
        all_right &= right
    return all_right


def check(library, device, bound):
    set_precision("fp32")  # autocast needs no TF32 either
    device = torch.device(device, 0) if device == "cuda" else torch.device(device)
    return all([check_network(library, block, device, bound) for block in (Bottleneck, BasicBlock)])

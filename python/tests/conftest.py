# SPDX-License-Identifier: Apache-2.0
"""What all tests share: devices, models, one training step, comparisons bit by bit."""
import concurrent.futures
import os

# Some virtual machines name AMX without granting it, and PyTorch's bf16 layers then end the process (SIGILL).
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # deterministic products of matrices, read when CUDA starts

import pytest
import torch
from torch import nn

import libcomet.torch as comet

NO_GPU = comet.gpu_obstacle()
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(bool(NO_GPU), reason=f"no GPU: {NO_GPU}"))]


def pytest_configure(config):
    config.option.reportchars += "s"  # says what was skipped, and why
    torch.set_num_threads(1)  # tensors are small, and threads that wait for each other on a busy machine take seconds
    make_deterministic()
    if not NO_GPU:
        torch.cuda.synchronize()  # CUDA's own memory is there before any test looks at the process's


def make_deterministic():
    """As far as PyTorch can: what is compared bit by bit must come out the same without a session."""
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False  # fp32 is fp32 in all comparisons
    torch.backends.cuda.enable_flash_sdp(False)  # attention is then made of products and a softmax
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)


def without_overlaps(model, device):
    """Max-pools whose windows overlap add up gradients in no certain order on a GPU: others take their places there."""
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.MaxPool2d) and device.type == "cuda":
                setattr(module, name, nn.MaxPool2d(2))
    return model.to(device)


@pytest.fixture(params=DEVICES)
def device(request):
    return torch.device(request.param)


CAN_ASK_FOR_HOOKS = hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks")  # not in PyTorch 2.4


def active_hooks():
    return torch._C._autograd._top_saved_tensors_default_hooks(True) if CAN_ASK_FOR_HOOKS else None


@pytest.fixture(autouse=True)
def clean_start_and_end():
    """Every test begins with the same random numbers, and must leave no hook and no mode behind."""
    torch.manual_seed(0)
    yield
    assert active_hooks() is None, "a pair of hooks is still active"
    assert torch._C._len_torch_function_stack() == 0, "a mode of torch functions is still active"


# ---- sessions ----

SMALL = 256  # min_bytes for small tests: everything that is not tiny is held


def attach(model, **options):
    """head_bytes: everything is held, also what a GPU's backward pass begins with. own_norms: forward passes are
    PyTorch's own, and its nodes can be looked at; test_fuse.py is where that is otherwise."""
    return comet.attach(model, **{"min_bytes": SMALL, "head_bytes": 0, "own_norms": False, **options})


def total(session, what):
    """A number of session.stats(), summed over devices. On a GPU it is what it is when all work is done."""
    if not NO_GPU:
        torch.cuda.synchronize()
        session.stats()  # what did not fit is issued once more
        torch.cuda.synchronize()
    return sum(stats[what] for key, stats in session.stats().items() if isinstance(key, int))


class Program(nn.Module):
    """A module that calls function(*modules, *inputs), for tests of a few lines."""

    def __init__(self, function, *modules):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(modules)

    def forward(self, *inputs):
        return self.function(*self.parts, *inputs)


def activation(*shape, device="cpu", dtype=torch.float32, scale=None):
    """Random values that an operation made, as activations are: the user's own tensors are not held."""
    values = torch.randn(*shape, device=device, dtype=dtype)
    return (values if scale is None else values * scale).requires_grad_() * 1


def nodes(*outputs):
    """All nodes of the graph behind tensors."""
    found, todo = {}, [output.grad_fn for output in outputs]
    while todo:
        node = todo.pop()
        if node is not None and node not in found:
            found[node] = True
            todo += [following for following, _ in node.next_functions]
    return list(found)


def node_called(name, *outputs):
    """The one node that has this in its name."""
    found = [node for node in nodes(*outputs) if name in node.name()]
    assert len(found) == 1, f"{len(found)} nodes are called {name}"
    return found[0]


def in_thread(function, *args):
    """function(*args) in a thread of its own; its exceptions are raised here."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result()


# ---- one step, and comparisons ----


def gradients(model, *inputs):
    """A dict of copies of all gradients, of parameters and of inputs."""
    named = [(name, parameter.grad) for name, parameter in model.named_parameters()]
    named += [(f"input {i}", tensor.grad) for i, tensor in enumerate(inputs)]
    return {name: None if gradient is None else gradient.clone() for name, gradient in named}


def train_step(model, inputs, seed=0, precision=torch.float32):
    """One forward and backward pass. Loss, gradients and buffers afterwards in one dict."""
    torch.manual_seed(seed)
    model.zero_grad()
    with torch.autocast(inputs.device.type, precision, enabled=precision != torch.float32):
        loss = model(inputs).float().square().mean()
    loss.backward()
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    return {"loss": loss.detach(), **gradients(model), **buffers}


def bits(tensor):
    return tensor.detach().reshape(-1).contiguous().view(torch.uint8)


def same_bits(a, b):
    """Equal bit by bit: NaN equals NaN, and 0 is not -0."""
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def assert_same_bits(result, expected):
    assert result.keys() == expected.keys()
    different = [name for name in expected if not same_bits(result[name], expected[name])]
    assert not different, f"not bit-equal: {different}"


# ---- bounds ----

ROUNDING = {torch.float32: 2.0**-22, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def rms(tensor):
    """Of the values that are not zero, which is what bounds are relative to."""
    values = tensor.double()[tensor != 0]
    return values.square().mean().sqrt().item()


def assert_within(result, expected, bound, is_held=True):
    """bound: a number, or one for each channel. is_held: some error must be there, else it was kept as it is."""
    assert result.shape == expected.shape and result.dtype == expected.dtype
    exact = expected.detach().double()
    error = (result.detach().double() - exact).abs()
    worst = (error / (bound * (1 + 1e-4) + ROUNDING[expected.dtype] * exact.abs())).max().item()
    assert worst <= 1, f"{worst} times the bound"
    assert error.max() > 0 or not is_held, "nothing was lost: it was not held"


def deviations(x):
    """What a batch norm divides by, for each channel."""
    return (x.double().var((0, 2, 3), correction=0, keepdim=True) + 1e-5).sqrt()

# SPDX-License-Identifier: Apache-2.0
"""A ResNet of torchvision whose activations Comet keeps, for bench/gpu_step.py.

    session = Session(library, device, bound=0.3, limit_bytes=16 << 30)
    attach(model, session)
    with session.hooks():
        loss = cross_entropy(model(images), labels)
    loss.backward()

A batch norm and the ReLU behind it are one call, which writes the layer's output y and the stream of the normalised
input u. Convolutions rebuild what they save, y, from the same stream. The end of a block, relu(norm(x) + z), writes a
second stream, of y itself with the ReLU's mask kept: the mask of its backward pass and the input of the next block.
What else autograd saves stays as it is, except for the output of the first max-pool, which is compressed too.

The bound on u is absolute, which is relative too: the root mean square of u is 1. That on y is a fraction of its root
mean square in the last step that gathered statistics, in the first step absolute.

For a network of this form alone: gradients are written over those that come in, which have no other reader here, and
a graph can be gone through once.
"""
import contextlib
import ctypes
import functools
import math
from ctypes import byref, pointer

import torch
from comet_ctypes import (BF16, DEVICE_CUDA, F16, F32, MAX_DIMS, NHWC, STATS_EXACT, STATS_NONE, ArenaOptions,
                          ArenaStats, CodecExec, CodecGrid, CodecParams, CometError, CudaEpilogue, CudaNorm,
                          CudaNormBatch, CudaNormResidual, CudaNormResidualBack, CudaResult, CudaSlot, Device, Tensor)
from torch.nn.functional import cross_entropy

DTYPES = {torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16}
MOST_STREAMS = 1024  # of a step
RESULT_STRIDE = 128  # bytes between results


def channels_last(tensor):
    return tensor.contiguous(memory_format=torch.channels_last)


def view_of(tensor):
    """A view of a tensor in channels-last order; whoever uses it sets its data."""
    samples, channels, height, width = tensor.shape
    shape = (samples, height, width, channels)
    strides = (height * width * channels, width * channels, channels, 1)
    extents = ctypes.c_int64 * MAX_DIMS
    return Tensor(device=Device(DEVICE_CUDA, tensor.device.index or 0), dtype=DTYPES[tensor.dtype], layout=NHWC, ndim=4,
                  shape=extents(*shape), strides=extents(*strides))


class Arena:
    def __init__(self, library, limit_bytes, queue):
        self.library, self.handle = library, ctypes.c_void_p()
        options = ArenaOptions(limit_bytes=limit_bytes, queue=queue, max_entries=MOST_STREAMS)
        library.arena_new(byref(options), byref(self.handle))

    def stats(self):
        stats = ArenaStats()
        self.library.arena_get_stats(self.handle, byref(stats))
        return stats

    def free(self):
        self.library.arena_free(self.handle)
        self.handle = None


class Session:
    """Where streams go and how calls run: on the queue that is current now, one after the other, in one workspace."""

    def __init__(self, library, device, bound, limit_bytes):
        self.library, self.device, self.bound = library, device, bound
        # While this is set sizes and statistics are copied to the host and every stream has room for its worst case;
        # else they are taken to be about what they were then.
        self.gathering = True
        queue = torch.cuda.current_stream().cuda_stream or None if device.type == "cuda" else None
        self.exec = CodecExec(queue=queue)
        self.workspace = None
        self.status = torch.zeros(1, dtype=torch.int32, device=device)
        # Two, since the end of a block writes two streams in one call, and an arena has one entry open at a time.
        self.of_u, self.of_y = (Arena(library, limit_bytes, queue) for _ in range(2))
        self.sources = []
        self.results = torch.zeros(MOST_STREAMS * RESULT_STRIDE, dtype=torch.uint8, pin_memory=device.type == "cuda")

    def reserve(self, bytes_needed):
        """A workspace of so many bytes at least. The old one, if any, may still be in use on the queue: its memory
        comes back to PyTorch in the queue's order."""
        if self.workspace is not None and self.exec.workspace_bytes >= bytes_needed:
            return
        self.workspace = torch.zeros(bytes_needed + 256, dtype=torch.uint8, device=self.device)
        start = self.workspace.data_ptr() + -self.workspace.data_ptr() % 256
        if self.device.type == "cuda":  # an emulated device sets no memory but its own; zeros are what it would set
            self.library.cuda_workspace_init(start, bytes_needed, self.exec.queue)
        self.exec.workspace, self.exec.workspace_bytes = start, bytes_needed

    def add_source(self, source):
        self.sources.append(source)
        return CudaResult.from_address(self.results.data_ptr() + (len(self.sources) - 1) * RESULT_STRIDE)

    def hooks(self):
        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    def stored_bytes(self):
        """Of the last step that gathered."""
        return sum(source.result.codec.bytes for source in self.sources)

    def raw_bytes(self):
        return sum(source.raw_bytes for source in self.sources)

    def check(self):
        """Raises CometError if a stream of a step that has ended was not stored or not what was expected. Waits."""
        status = self.status.item()
        if status:
            reason = self.library.linked.comet_status_string(status).decode()
            raise CometError(f"a stream could not be read back: {reason}")

    def trim(self):
        for arena in (self.of_u, self.of_y):
            self.library.arena_trim(arena.handle)

    def arena_total(self, field):
        return sum(getattr(arena.stats(), field) for arena in (self.of_u, self.of_y))

    def free(self):
        for arena in (self.of_u, self.of_y):
            arena.free()


class Source:
    """A place in the network whose values are stored in every step: what all its streams have in common."""

    def __init__(self, session, arena, like, keep_mask):
        library = session.library
        self.session, self.arena, self.view = session, arena, view_of(like)
        self.params = CodecParams(bound=session.bound, keep_mask=keep_mask, stats_kind=STATS_NONE)
        self.raw_bytes = like.numel() * like.element_size()
        max_bytes, workspace = ((library.cuda_max_bytes, library.cuda_workspace) if keep_mask else
                                (library.cuda_norm_max_bytes, library.cuda_norm_workspace))
        self.worst_bytes = library.ask_bytes(max_bytes, byref(self.view), byref(self.params))
        session.reserve(library.ask_bytes(workspace, byref(self.view), byref(self.params)))
        self.shape, self.dtype = like.shape, like.dtype
        self.result = session.add_source(self)

    def choose(self):
        """Sets the parameters for this step. Returns the bytes that are expected, 0 if that is not known."""
        gathering, last = self.session.gathering, self.result.codec
        if self.params.keep_mask:
            self.params.stats_kind = STATS_EXACT if gathering else STATS_NONE
            if last.stats.nonzero:
                self.params.bound = self.session.bound * math.sqrt(last.stats.sum_squares / last.stats.nonzero)
        return 0 if gathering else int(1.3 * last.bytes) + 65536

    def host_result(self):
        return pointer(self.result) if self.session.gathering else None


class Stream:
    """A tensor that was stored in this step. It is given back with the last reference to it."""

    def __init__(self, source):
        self.source, self.library, self.arena = source, source.session.library, source.arena
        self.slot, entry = CudaSlot(), ctypes.c_uint64()
        self.library.arena_open(self.arena.handle, source.worst_bytes, source.choose(), byref(entry), byref(self.slot))
        self.entry = entry.value

    def close(self):
        self.library.arena_close(self.arena.handle, self.entry)

    def slot_to_read(self):
        self.library.arena_slot(self.arena.handle, self.entry, byref(self.slot))
        return self.slot

    def __del__(self):
        if getattr(self, "entry", 0) and self.arena.handle:
            self.library.arena_release(self.arena.handle, self.entry)


class Saved:
    """What convolutions save in place of a layer's output. It is decoded for the first of them that asks, and kept
    until the last has asked."""

    def __init__(self, stream, params, epilogue=None):
        self.stream, self.params, self.epilogue = stream, params, epilogue
        self.readers, self.tensor = 0, None

    def decode(self):
        source, session = self.stream.source, self.stream.source.session
        tensor = torch.empty(source.shape, dtype=source.dtype, device=session.device,
                             memory_format=torch.channels_last)
        source.view.data = tensor.data_ptr()
        epilogue = byref(self.epilogue) if self.epilogue else None
        session.library.cuda_decompress(byref(self.stream.slot_to_read()), byref(self.params), epilogue,
                                        byref(session.exec), byref(source.view), session.status.data_ptr())
        return tensor

    def read(self):
        tensor = self.decode() if self.tensor is None else self.tensor
        self.readers -= 1
        self.tensor = tensor if self.readers > 0 else None
        return tensor


class ShapeOnly(Saved):
    """What a max-pool saves in place of its input: its backward pass goes by the indices that it keeps, and asks the
    input for its shape alone."""

    def decode(self):
        source = self.stream.source
        return torch.empty(source.shape, dtype=source.dtype, device=source.session.device,
                           memory_format=torch.channels_last)


def pack(tensor):
    """What autograd keeps of a tensor that it wants to save."""
    saved = getattr(tensor, "comet_saved", None)
    if saved is not None:
        saved.readers += 1
        return saved
    return tensor if tensor.grad_fn is None else tensor.detach()  # an output saved by its own node would keep it alive


def unpack(kept):
    return kept.read() if isinstance(kept, Saved) else kept


class NormLayer:
    """A batch norm, with what follows it: a ReLU, a tensor that is added before, or nothing."""

    def __init__(self, session, module, relu, adds):
        channels = module.num_features
        self.session, self.gamma, self.beta, self.adds = session, module.weight, module.bias, adds
        self.tables = torch.empty(4, channels, device=session.device)
        mean, inverse_std, shift, threshold = (table.data_ptr() for table in self.tables)
        gamma, beta = self.gamma.data_ptr(), self.beta.data_ptr()
        self.norm = CudaNorm(channels=channels, mean=mean, inverse_std=inverse_std, gamma=gamma, beta=beta, shift=shift,
                             threshold=threshold, relu=relu, adds=adds)
        self.batch = CudaNormBatch(norm=pointer(self.norm), channels=channels, mean=mean, inverse_std=inverse_std,
                                   running_mean=module.running_mean.data_ptr(),
                                   running_variance=module.running_var.data_ptr(),
                                   batches=module.num_batches_tracked.data_ptr(), momentum=module.momentum,
                                   epsilon=module.eps)
        self.grid = CodecGrid()
        session.library.cuda_norm_grid(byref(self.norm), byref(self.grid))
        self.rebuild_params = CodecParams(grid=pointer(self.grid))
        self.rebuild_epilogue = CudaEpilogue(channels=channels, scale=gamma, shift=beta, relu=relu)
        self.of_u = self.of_y = None
        self.feeds_pool = False  # a max-pool, and nothing else

    def __call__(self, x, z=None):
        return Normalise.apply(x, self.gamma, self.beta, z, self)

    def first_seen(self, x):
        self.of_u = Source(self.session, self.session.of_u, x, keep_mask=False)
        if self.adds:
            self.of_y = Source(self.session, self.session.of_y, x, keep_mask=True)
        self.x, self.y, self.z = (view_of(x) for _ in range(3))

    def set_views(self, x, y, z):
        self.x.data, self.y.data = x.data_ptr(), y.data_ptr()
        self.z.data = None if z is None else z.data_ptr()

    def forward(self, x, z):
        """Returns y and the streams of u and of y, if there is one."""
        session, x = self.session, channels_last(x)
        if self.of_u is None:
            self.first_seen(x)
        y = torch.empty_like(x)
        z = None if z is None else channels_last(z)
        self.set_views(x, y, z)
        session.library.cuda_norm_statistics(byref(self.batch), byref(self.x), byref(session.exec))
        u_stream, y_stream, residual = Stream(self.of_u), None, None
        if self.adds:
            y_stream = Stream(self.of_y)
            residual = CudaNormResidual(add=pointer(self.z), y_slot=pointer(y_stream.slot),
                                        y_params=pointer(self.of_y.params), y_host=self.of_y.host_result())
        session.library.cuda_norm_forward(byref(self.norm), byref(self.x), byref(self.y), byref(self.of_u.params),
                                          byref(session.exec), byref(u_stream.slot), self.of_u.host_result(), residual)
        u_stream.close()
        if y_stream:
            y_stream.close()
        y.comet_saved = self.saved(u_stream, y_stream)
        return y, u_stream, y_stream

    def saved(self, u_stream, y_stream):
        if y_stream:
            return Saved(y_stream, self.of_y.params)
        return (ShapeOnly if self.feeds_pool else Saved)(u_stream, self.rebuild_params, self.rebuild_epilogue)

    def backward(self, dy, u_stream, y_stream):
        """Returns dx, dgamma, dbeta and dz, which lies where dy was; without one dx does."""
        session, dy, residual = self.session, channels_last(dy), None
        dx = torch.empty_like(dy) if self.adds else dy
        dgamma, dbeta = torch.empty_like(self.gamma), torch.empty_like(self.beta)
        self.set_views(dx, dy, None)
        if self.adds:
            residual = CudaNormResidualBack(y_slot=pointer(y_stream.slot_to_read()),
                                            y_params=pointer(self.of_y.params), dz=pointer(self.y))
        session.library.cuda_norm_backward(byref(self.norm), byref(u_stream.slot_to_read()), None, byref(self.y),
                                           byref(self.x), dgamma.data_ptr(), dbeta.data_ptr(),
                                           byref(self.of_u.params), byref(session.exec), session.status.data_ptr(),
                                           residual)
        return dx, dgamma, dbeta, dy if self.adds else None


class Normalise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, z, layer):
        y, *ctx.streams = layer.forward(x, z)
        ctx.layer = layer
        return y

    @staticmethod
    def backward(ctx, dy):
        gradients = ctx.layer.backward(dy, *ctx.streams)
        ctx.streams = None  # the node lives as long as the loss does, the streams need not
        return *gradients, None


class CompressOutput:
    """A hook of a module: what it returns is compressed at once, with the mask kept, for those that save it."""

    def __init__(self, session):
        self.session, self.source = session, None

    def __call__(self, module, inputs, output):
        session, dense = self.session, channels_last(output)
        if self.source is None:
            self.source = Source(session, session.of_y, dense, keep_mask=True)
        stream = Stream(self.source)
        self.source.view.data = dense.data_ptr()
        session.library.cuda_compress(byref(self.source.view), byref(self.source.params), byref(session.exec),
                                      byref(stream.slot), self.source.host_result())
        stream.close()
        output.comet_saved = Saved(stream, self.source.params)


def fuse_block(block, make_norm):
    """BasicBlock and Bottleneck. The shortcut goes first: backwards it is last then, right behind conv1, with which it
    shares its input."""
    names = ["1", "2", "3"] if hasattr(block, "conv3") else ["1", "2"]
    convolutions = [getattr(block, "conv" + name) for name in names]
    norms = [make_norm(getattr(block, "bn" + name), relu=True, adds=name == names[-1]) for name in names]
    shortcut = block.downsample and make_norm(block.downsample[1], relu=False, adds=False)

    def forward(x):
        z = shortcut(block.downsample[0](x)) if shortcut else x
        for convolution, norm in zip(convolutions[:-1], norms[:-1]):
            x = norm(convolution(x))
        return norms[-1](convolutions[-1](x), z)

    block.forward = forward
    return norms + ([shortcut] if shortcut else [])


def fuse(model, make_norm):
    """Lets a ResNet of torchvision call make_norm(batch norm, relu, adds) in place of a batch norm, with x or with x
    and z, and neither add nor apply a ReLU itself. Returns what make_norm made."""
    model.bn1.forward = make_norm(model.bn1, relu=True, adds=False)
    model.relu = torch.nn.Identity()
    norms = [model.bn1.forward]
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        for block in stage:
            norms += fuse_block(block, make_norm)
    return norms


def attach(model, session, layer=NormLayer):
    """Makes a ResNet of torchvision, on its device and in channels-last order, use the session. The parameters must
    stay where they are. Returns the layers."""
    model.maxpool.register_forward_hook(CompressOutput(session))
    layers = fuse(model, functools.partial(layer, session))
    layers[0].feeds_pool = True
    return layers


def set_precision(name):
    """'fp32', 'tf32' or 'bf16', which is autocast."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name != "fp32"


def forward_and_backward(model, images, labels, precision, session=None, hooks=None):
    hooks = hooks or (session.hooks() if session else contextlib.nullcontext())
    with hooks, torch.autocast(images.device.type, torch.bfloat16, enabled=precision == "bf16"):
        loss = cross_entropy(model(images), labels)
    loss.backward()
    return loss

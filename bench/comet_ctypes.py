# SPDX-License-Identifier: Apache-2.0
"""libcomet over ctypes, as far as bench/gpu_step.py calls it. Structs and functions are those of include/comet, with
the names that they have there less the prefix `comet_`; a call that fails raises CometError with its reason."""
import ctypes
from ctypes import POINTER, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p, sizeof

MAX_DIMS = 8
F32, F16, BF16 = 0, 1, 2
NHWC = 2
DEVICE_CUDA = 1
CODEC_EB = 1
STATS_EXACT, STATS_NONE = 0, 1


class CometError(Exception):
    pass


class Sized(ctypes.Structure):
    """A struct that begins with its own size."""

    def __init__(self, **fields):
        super().__init__(size=sizeof(type(self)), **fields)


# ---- comet/tensor.h, comet/codec.h ----


class Device(ctypes.Structure):
    _fields_ = [("kind", c_int), ("index", c_int32)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device", Device), ("dtype", c_int), ("layout", c_int), ("ndim", c_int32),
                ("shape", c_int64 * MAX_DIMS), ("strides", c_int64 * MAX_DIMS)]


class CodecGrid(ctypes.Structure):
    _fields_ = [("channels", c_int64), ("scale", c_void_p), ("shift", c_void_p), ("threshold", c_void_p),
                ("slope", c_void_p)]


class CodecParams(Sized):
    _fields_ = [("size", c_size_t), ("codec", c_int), ("bound_kind", c_int), ("bound", c_double), ("rounding", c_int),
                ("seed", c_uint64), ("keep_mask", c_int32), ("checksum", c_int32), ("grid", POINTER(CodecGrid)),
                ("pool_block", c_int32), ("group_bits", c_int32), ("group_values", c_int32), ("dct_table", c_int32),
                ("device_bound", c_void_p), ("device_stats", c_void_p), ("stats_kind", c_int)]

    def __init__(self, **fields):
        super().__init__(**{"codec": CODEC_EB, "pool_block": 2, "group_bits": 4, "group_values": 256, "dct_table": 1,
                            **fields})


class CodecExec(Sized):
    _fields_ = [("size", c_size_t), ("threads", c_void_p), ("allocator", c_void_p), ("workspace", c_void_p),
                ("workspace_bytes", c_size_t), ("queue", c_void_p), ("isa", c_int)]


class CodecStats(ctypes.Structure):
    _fields_ = [("count", c_int64), ("nonzero", c_int64), ("positive", c_int64), ("nonfinite", c_int64),
                ("min", c_float), ("max", c_float), ("sum_abs", c_double), ("sum_squares", c_double)]


class CodecRecord(ctypes.Structure):
    _fields_ = [("bytes", c_size_t), ("bound", c_double), ("tiles", c_int64), ("tiles_exact", c_int64),
                ("tiles_wide", c_int64), ("stats", CodecStats)]


# ---- comet/cuda.h ----


class CudaResult(ctypes.Structure):
    _fields_ = [("codec", CodecRecord), ("start", c_uint64), ("end", c_uint64), ("status", c_int32),
                ("reserved", c_int32)]


class CudaSlot(ctypes.Structure):
    _fields_ = [("base", c_void_p), ("capacity", c_size_t), ("start", c_void_p), ("result", c_void_p)]


class CudaEpilogue(Sized):
    _fields_ = [("size", c_size_t), ("channels", c_int64), ("scale", c_void_p), ("shift", c_void_p),
                ("add", c_void_p), ("relu", c_int32)]


# ---- comet/cuda_norm.h ----


class CudaNorm(Sized):
    _fields_ = [("size", c_size_t), ("channels", c_int64), ("mean", c_void_p), ("inverse_std", c_void_p),
                ("gamma", c_void_p), ("beta", c_void_p), ("shift", c_void_p), ("threshold", c_void_p),
                ("relu", c_int32), ("adds", c_int32)]


class CudaNormBatch(Sized):
    _fields_ = [("size", c_size_t), ("norm", POINTER(CudaNorm)), ("channels", c_int64), ("mean", c_void_p),
                ("inverse_std", c_void_p), ("running_mean", c_void_p), ("running_variance", c_void_p),
                ("batches", c_void_p), ("momentum", c_double), ("epsilon", c_double)]


class CudaNormResidual(Sized):
    _fields_ = [("size", c_size_t), ("add", POINTER(Tensor)), ("y_slot", POINTER(CudaSlot)),
                ("y_params", POINTER(CodecParams)), ("y_host", POINTER(CudaResult))]


class CudaNormResidualBack(Sized):
    _fields_ = [("size", c_size_t), ("y_slot", POINTER(CudaSlot)), ("y_params", POINTER(CodecParams)),
                ("y", POINTER(Tensor)), ("dz", POINTER(Tensor))]


# ---- comet/arena.h ----


class ArenaOptions(Sized):
    _fields_ = [("size", c_size_t), ("limit_bytes", c_size_t), ("initial_bytes", c_size_t), ("queue", c_void_p),
                ("allocator", c_void_p), ("device", c_int32), ("max_entries", c_uint32)]


class ArenaStats(Sized):
    _fields_ = [("size", c_size_t), ("limit_bytes", c_size_t), ("mapped_bytes", c_size_t),
                ("peak_mapped_bytes", c_size_t), ("overhead_bytes", c_size_t), ("end_bytes", c_size_t),
                ("peak_end_bytes", c_size_t), ("peak_known_bytes", c_size_t), ("known_bytes", c_size_t),
                ("unknown_bytes", c_size_t), ("missing_bytes", c_size_t), ("entries", c_uint64),
                ("unknown_entries", c_uint64), ("holes", c_uint64), ("saves", c_uint64), ("saves_in_holes", c_uint64),
                ("overflows", c_uint64), ("refused", c_uint64), ("readbacks", c_uint64), ("waits", c_uint64)]


# ---- calls ----

PARAMS, EXEC, TENSOR, SLOT = POINTER(CodecParams), POINTER(CodecExec), POINTER(Tensor), POINTER(CudaSlot)
RESULT, NORM, BYTES = POINTER(CudaResult), POINTER(CudaNorm), POINTER(c_size_t)

# The arguments of each; all return a comet_status.
CALLS = {
    "cuda_check": [c_int32],
    "cuda_max_bytes": [TENSOR, PARAMS, BYTES],
    "cuda_workspace": [TENSOR, PARAMS, BYTES],
    "cuda_workspace_init": [c_void_p, c_size_t, c_void_p],
    "cuda_compress": [TENSOR, PARAMS, EXEC, SLOT, RESULT],
    "cuda_decompress": [SLOT, PARAMS, POINTER(CudaEpilogue), EXEC, TENSOR, c_void_p],
    "cuda_norm_statistics": [POINTER(CudaNormBatch), TENSOR, EXEC],
    "cuda_norm_grid": [NORM, POINTER(CodecGrid)],
    "cuda_norm_workspace": [TENSOR, PARAMS, BYTES],
    "cuda_norm_max_bytes": [TENSOR, PARAMS, BYTES],
    "cuda_norm_forward": [NORM, TENSOR, TENSOR, PARAMS, EXEC, SLOT, RESULT, POINTER(CudaNormResidual)],
    "cuda_norm_backward": [NORM, SLOT, TENSOR, TENSOR, TENSOR, c_void_p, c_void_p, PARAMS, EXEC, c_void_p,
                           POINTER(CudaNormResidualBack)],
    "arena_new": [POINTER(ArenaOptions), POINTER(c_void_p)],
    "arena_free": [c_void_p],
    "arena_open": [c_void_p, c_size_t, c_size_t, POINTER(c_uint64), SLOT],
    "arena_close": [c_void_p, c_uint64],
    "arena_slot": [c_void_p, c_uint64, SLOT],
    "arena_release": [c_void_p, c_uint64],
    "arena_trim": [c_void_p],
    "arena_get_stats": [c_void_p, POINTER(ArenaStats)],
}


class Library:
    """The calls as methods: library.arena_trim(arena)."""

    def __init__(self, path):
        try:
            self.linked = ctypes.CDLL(path)
            for name, arguments in CALLS.items():
                call = getattr(self.linked, "comet_" + name)
                call.argtypes, call.restype, call.errcheck = arguments, c_int, self.check
                setattr(self, name, call)
            for name, arguments in (("status_string", [c_int]), ("last_error", [])):
                call = getattr(self.linked, "comet_" + name)
                call.argtypes, call.restype = arguments, ctypes.c_char_p
        except (OSError, AttributeError) as error:
            raise CometError(f"cannot load {path}: {error}") from None

    def check(self, status, call, _):
        if status:
            reason = self.linked.comet_last_error().decode() or self.linked.comet_status_string(status).decode()
            raise CometError(f"{call.__name__}: {reason}")
        return status

    def ask_bytes(self, call, *arguments):
        """What a call that answers with a size answers."""
        answer = c_size_t()
        call(*arguments, ctypes.byref(answer))
        return answer.value

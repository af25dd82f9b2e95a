// SPDX-License-Identifier: Apache-2.0
// Indices of a max-pool on the device (docs/codecs.md, section 7).
//
// Memory decides, so a warp's loads and stores of indices lie side by side: a lane has pairs of neighbours, 16 bytes,
// and 64 indices further on the next pair. A pair's codes are a cell of 2 BITS bits. When a lane has a word full of
// cells, groups of as many lanes as that has cells transpose them, and each lane has a word as it lies in memory: 128
// bytes a warp. Unpacking is the same backwards.
#include "codec/cuda/device.cuh"
#include "codec/cuda/divide.cuh"
#include "codec/cuda/indices/indices.h"

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr u32 ROW = 64; // indices that a warp loads at once: a pair each lane

// What a warp does, by the bits of an index. A unit is what 32 words hold.
template <int BITS> constexpr int cell_bits = 2 * BITS;
template <int BITS> constexpr int unit_rows = 32 / cell_bits<BITS>;
template <int BITS> constexpr int units = unit_rows<BITS> < 8 ? 8 / unit_rows<BITS> : 1; // 16 indices a lane, at least
template <int BITS> constexpr int rows = unit_rows<BITS> *units<BITS>;
template <int BITS> constexpr u32 tile_values = ROW *rows<BITS>;

// Indices of one launch: few enough for arithmetic in 32 bits.
#ifdef COMET_CUDA_EMULATION
constexpr int64_t PART = 1 << 13; // so that tests have several
#else
constexpr int64_t PART = 1 << 30;
#endif

// ---- where an index is ----

// The begin of an index's window, counted from the padding's, and its channel where channels come last.
struct place {
    u32 row, column, inner;
};

// Pairs are rows, then columns.
struct geometry {
    Divide inner, output[2], width, dilation[2];
    u32 input[2], kernel[2], stride[2], padding[2], map, places;
    u32 end[2];           // where the windows of a map would go on
    u32 inverse;          // of kernel[1], in 1/65536
    u32 origin;           // of the map, from that of the padding
    place one, row_ahead; // from an index to the next, and to the one a row of a warp further
};

// What a launch does: how much of its indices and bytes, and where the first index is.
struct part {
    u32 count, bytes, inner, position;
};

__device__ __forceinline__ place place_of(const geometry &g, const part &p, u32 i) {
    u32 from_run = p.inner + i, run = g.inner(from_run), position = p.position + run, line = g.output[1](position);
    return {(line - g.output[0](line) * g.output[0].divisor) * g.stride[0],
            (position - line * g.output[1].divisor) * g.stride[1], from_run - run * g.inner.divisor};
}

template <bool LAST> __device__ __forceinline__ place ahead(const geometry &g, place at, place step) {
    at.column += step.column;
    at.row += step.row;
    if constexpr (LAST) {
        at.inner += step.inner;
        if (at.inner >= g.inner.divisor) {
            at.inner -= g.inner.divisor;
            at.column += g.stride[1];
        }
    }
    if (at.column >= g.end[1]) {
        at.column -= g.end[1];
        at.row += g.stride[0];
    }
    if (at.row >= g.end[0])
        at.row -= g.end[0];
    return at;
}

// ---- a code ----

// The number of a place of the window, from its distance to the begin; `fine` is no more if it is none.
template <bool DILATED> __device__ __forceinline__ u32 number_of(const geometry &g, int d, u32 distance, bool &fine) {
    u32 number = DILATED ? g.dilation[d](distance) : distance;
    fine = fine && number < g.kernel[d];
    if constexpr (DILATED)
        fine = fine && number * g.dilation[d].divisor == distance;
    return number;
}

template <bool DILATED> __device__ __forceinline__ u32 code_of(const geometry &g, place at, u64 index, bool &all_fine) {
    bool fine = index < g.map;
    u32 row = g.width((u32)index), column = (u32)index - row * g.input[1];
    u32 down = number_of<DILATED>(g, 0, row + g.padding[0] - at.row, fine);
    u32 right = number_of<DILATED>(g, 1, column + g.padding[1] - at.column, fine);
    all_fine = all_fine && fine;
    return fine ? down * g.kernel[1] + right : 0;
}

// Always in the map.
__device__ __forceinline__ u32 index_of(const geometry &g, place at, u32 code) {
    code = min(code, g.places - 1);
    u32 down = code * g.inverse >> 16, right = code - down * g.kernel[1];
    u32 row = at.row + down * g.dilation[0].divisor, column = at.column + right * g.dilation[1].divisor;
    row = min(max(row, g.padding[0]), g.padding[0] + g.input[0] - 1);
    column = min(max(column, g.padding[1]), g.padding[1] + g.input[1] - 1);
    return row * g.input[1] + column - g.origin;
}

// ---- cells between lanes ----

// Cell i of lane j of a group becomes cell j of its lane i. What a rotation brings round is not kept.
template <int CELL> __device__ __forceinline__ u32 transpose(u32 word, u32 lane) {
#pragma unroll
    for (u32 step = 1; step < 32 / CELL; step *= 2) {
        const u32 bits = step * CELL, lower = 0xffffffffu / ((1u << bits) + 1); // cells whose number is without `step`
        bool is_upper = lane & step;
        u32 other = __shfl_xor_sync(ALL_LANES, word, (int)step), keep = is_upper ? ~lower : lower;
        word = (word & keep) | (__funnelshift_l(other, other, is_upper ? 32 - bits : bits) & ~keep);
    }
    return word;
}

// Which word of a unit a lane has then.
template <int BITS> __device__ __forceinline__ u32 word_of(u32 lane) {
    return lane % unit_rows<BITS> * (32 / unit_rows<BITS>)+lane / unit_rows<BITS>;
}

// ---- packing ----

__device__ __forceinline__ bool is_aligned(const void *pointer) {
    return (uintptr_t)pointer % 16 == 0;
}

// A lane's pairs, all asked for at once. They are read once.
template <int BITS, bool WHOLE>
__device__ __forceinline__ void load(const u64 *from, u32 left, u32 lane, ulonglong2 (&pairs)[rows<BITS>]) {
    if (WHOLE && is_aligned(from)) {
#pragma unroll
        for (u32 i = 0; i < rows<BITS>; i++)
            pairs[i] = __ldcs((const ulonglong2 *)from + 32 * i + lane);
        return;
    }
#pragma unroll
    for (u32 i = 0; i < rows<BITS>; i++) {
        u32 at = ROW * i + 2 * lane;
        pairs[i].x = WHOLE || at < left ? __ldcs(from + at) : 0;
        pairs[i].y = WHOLE || at + 1 < left ? __ldcs(from + at + 1) : 0;
    }
}

// The codes of a pair; 0 for what lies behind the last index.
template <int BITS, bool LAST, bool DILATED, bool WHOLE>
__device__ __forceinline__ u32 cell_of(const geometry &g, place at, ulonglong2 pair, u32 left, bool &fine) {
    bool first_fine = true, second_fine = true;
    u32 first = code_of<DILATED>(g, at, pair.x, first_fine);
    u32 second = code_of<DILATED>(g, ahead<LAST>(g, at, g.one), pair.y, second_fine);
    if constexpr (!WHOLE) {
        first = left > 0 ? first : 0;
        second = left > 1 ? second : 0;
        first_fine = first_fine || left == 0;
        second_fine = second_fine || left <= 1;
    }
    fine = fine && first_fine && second_fine;
    return first | second << BITS;
}

// Up to a tile of indices, to `bytes` or more. Whether all were in their windows.
template <int BITS, bool LAST, bool DILATED, bool WHOLE>
__device__ __forceinline__ bool pack_tile(const geometry &g, place at, const u64 *from, u32 left, u32 lane, u32 *to,
                                          u32 bytes) {
    ulonglong2 pairs[rows<BITS>];
    load<BITS, WHOLE>(from, left, lane, pairs);
    bool fine = true;
#pragma unroll
    for (u32 unit = 0; unit < units<BITS>; unit++) {
        u32 word = 0;
#pragma unroll
        for (u32 i = 0; i < unit_rows<BITS>; i++) {
            u32 row = unit * unit_rows<BITS> + i, first = ROW * row + 2 * lane;
            word |= cell_of<BITS, LAST, DILATED, WHOLE>(g, at, pairs[row], first < left ? left - first : 0, fine)
                    << cell_bits<BITS> * i;
            at = ahead<LAST>(g, at, g.row_ahead);
        }
        word = transpose<cell_bits<BITS>>(word, lane);
        u32 place_of_word = 32 * unit + word_of<BITS>(lane);
        if (WHOLE || 4 * place_of_word < bytes)
            to[place_of_word] = word;
    }
    return fine;
}

template <int BITS, bool LAST, bool DILATED>
__global__ static void __launch_bounds__(THREADS)
    pack_kernel(geometry g, part p, const u64 *indices, u32 *packed, int *status) {
    u32 thread = thread_number(), lane = thread % 32;
    u32 first = (blockIdx.x * WARPS + warp_number(thread)) * tile_values<BITS>;
    if (first >= p.count)
        return;
    const u64 *from = indices + first;
    u32 *to = packed + first / 32 * BITS, left = p.count - first, bytes = p.bytes - first / 8 * BITS;
    place at = place_of(g, p, first + 2 * lane);
    bool fine = left >= tile_values<BITS> ? pack_tile<BITS, LAST, DILATED, true>(g, at, from, left, lane, to, bytes)
                                          : pack_tile<BITS, LAST, DILATED, false>(g, at, from, left, lane, to, bytes);
    if (!__all_sync(ALL_LANES, fine) && lane == 0)
        atomicCAS(status, (int)COMET_OK, (int)COMET_ERROR_ARGUMENT); // the first error stays
}

// ---- unpacking ----

template <bool WHOLE> __device__ __forceinline__ void store(u64 *to, u32 left, u32 at, u32 first, u32 second) {
    if (WHOLE && is_aligned(to)) {
        *(ulonglong2 *)(to + at) = make_ulonglong2(first, second);
        return;
    }
    if (WHOLE || at < left)
        to[at] = first;
    if (WHOLE || at + 1 < left)
        to[at + 1] = second;
}

template <int BITS, bool LAST, bool WHOLE>
__device__ __forceinline__ void unpack_tile(const geometry &g, place at, const u32 *from, u32 bytes, u32 lane, u64 *to,
                                            u32 left) {
    constexpr u32 ONE_CODE = (1u << BITS) - 1;
    u32 words[units<BITS>];
#pragma unroll
    for (u32 unit = 0; unit < units<BITS>; unit++) {
        u32 place_of_word = 32 * unit + word_of<BITS>(lane);
        words[unit] = WHOLE || 4 * place_of_word < bytes ? __ldcs(from + place_of_word) : 0;
    }
#pragma unroll
    for (u32 unit = 0; unit < units<BITS>; unit++) {
        u32 cells = transpose<cell_bits<BITS>>(words[unit], lane);
#pragma unroll
        for (u32 i = 0; i < unit_rows<BITS>; i++) {
            u32 cell = cells >> cell_bits<BITS> * i, row = unit * unit_rows<BITS> + i;
            u32 first = index_of(g, at, cell & ONE_CODE);
            u32 second = index_of(g, ahead<LAST>(g, at, g.one), cell >> BITS & ONE_CODE);
            store<WHOLE>(to, left, ROW * row + 2 * lane, first, second);
            at = ahead<LAST>(g, at, g.row_ahead);
        }
    }
}

template <int BITS, bool LAST>
__global__ static void __launch_bounds__(THREADS) unpack_kernel(geometry g, part p, const u32 *packed, u64 *indices) {
    u32 thread = thread_number(), lane = thread % 32;
    u32 first = (blockIdx.x * WARPS + warp_number(thread)) * tile_values<BITS>;
    if (first >= p.count)
        return;
    const u32 *from = packed + first / 32 * BITS;
    u32 left = p.count - first, bytes = p.bytes - first / 8 * BITS;
    place at = place_of(g, p, first + 2 * lane);
    if (left >= tile_values<BITS>)
        unpack_tile<BITS, LAST, true>(g, at, from, bytes, lane, indices + first, left);
    else
        unpack_tile<BITS, LAST, false>(g, at, from, bytes, lane, indices + first, left);
}

// ---- host ----

// From an index to the one that is so many further on; a whole number of maps is nothing.
static place step_of(const comet_window *w, u32 values) {
    u32 runs = values / w->inner, lines = runs / w->output[1];
    return {lines % w->output[0] * w->stride[0], runs % w->output[1] * w->stride[1], values % w->inner};
}

static geometry geometry_of(const comet_window *w) {
    geometry g = {};
    g.inner = divide_by(w->inner);
    g.width = divide_by(w->input[1]);
    for (int d = 0; d < 2; d++) {
        g.output[d] = divide_by(w->output[d]);
        g.dilation[d] = divide_by(w->dilation[d]);
        g.input[d] = w->input[d];
        g.kernel[d] = w->kernel[d];
        g.stride[d] = w->stride[d];
        g.padding[d] = w->padding[d];
        g.end[d] = w->output[d] * w->stride[d];
    }
    g.map = w->map;
    g.places = w->places;
    g.inverse = 65535 / w->kernel[1] + 1;
    g.origin = w->padding[0] * w->input[1] + w->padding[1];
    g.one = step_of(w, 1);
    g.row_ahead = step_of(w, ROW);
    return g;
}

static part part_of(const comet_window *w, int64_t first) {
    int64_t count = w->count - first < PART ? w->count - first : PART;
    u64 bytes = w->bytes - (u64)first / 8 * w->bits, most = (u64)PART / 8 * w->bits;
    u64 position = (u64)first / w->inner % ((u64)w->output[0] * w->output[1]);
    return {(u32)count, (u32)(bytes < most ? bytes : most), (u32)((u64)first % w->inner), (u32)position};
}

template <class Run> static cudaError_t with_bits(u32 bits, Run run) {
    switch (bits) {
    case 1:
        return run(std::integral_constant<int, 1>());
    case 2:
        return run(std::integral_constant<int, 2>());
    case 4:
        return run(std::integral_constant<int, 4>());
    default:
        return run(std::integral_constant<int, 8>());
    }
}

template <class Run> static cudaError_t with_bool(bool choice, Run run) {
    return choice ? run(std::true_type()) : run(std::false_type());
}

// Calls run(part, its first index, blocks) for each part.
template <int BITS, class Run> static cudaError_t for_parts(const comet_window *w, Run run) {
    constexpr u32 A_BLOCK = tile_values<BITS> * WARPS;
    cudaError_t error = cudaSuccess;
    for (int64_t first = 0; first < w->count && error == cudaSuccess; first += PART) {
        part p = part_of(w, first);
        error = run(p, first, dim3((p.count + A_BLOCK - 1) / A_BLOCK));
    }
    return error;
}

cudaError_t comet_cuda_launch_pack(const comet_window *w, const int64_t *indices, void *packed, int32_t *status,
                                   cudaStream_t queue) {
    const geometry g = geometry_of(w);
    return with_bits(w->bits, [&](auto bits) {
        return with_bool(w->inner > 1, [&](auto last) {
            return with_bool(w->dilation[0] > 1 || w->dilation[1] > 1, [&](auto dilated) {
                constexpr int BITS = decltype(bits)::value;
                auto kernel = pack_kernel<BITS, decltype(last)::value, decltype(dilated)::value>;
                return for_parts<BITS>(w, [&](const part &p, int64_t first, dim3 blocks) {
                    return launch(kernel, blocks, THREADS, queue, g, p, (const u64 *)indices + first,
                                  (u32 *)packed + first / 32 * BITS, (int *)status);
                });
            });
        });
    });
}

cudaError_t comet_cuda_launch_unpack(const comet_window *w, const void *packed, int64_t *indices, cudaStream_t queue) {
    const geometry g = geometry_of(w);
    return with_bits(w->bits, [&](auto bits) {
        return with_bool(w->inner > 1, [&](auto last) {
            constexpr int BITS = decltype(bits)::value;
            auto kernel = unpack_kernel<BITS, decltype(last)::value>;
            return for_parts<BITS>(w, [&](const part &p, int64_t first, dim3 blocks) {
                return launch(kernel, blocks, THREADS, queue, g, p, (const u32 *)packed + first / 32 * BITS,
                              (u64 *)indices + first);
            });
        });
    });
}

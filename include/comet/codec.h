/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs: a tensor in, a self-describing stream of bytes out, and back.
 *
 *     comet_codec_params params = COMET_CODEC_PARAMS_INIT;
 *     params.bound = 0.1;
 *     params.bound_kind = COMET_BOUND_RELATIVE;
 *     comet_codec_max_bytes(&tensor, &params, &capacity);
 *     void *stream = malloc(capacity);
 *     comet_codec_result result = COMET_CODEC_RESULT_INIT;
 *     comet_codec_compress(&tensor, &params, NULL, stream, capacity, &result);      // result.bytes were written
 *     comet_codec_decompress(stream, result.bytes, NULL, NULL, &tensor);
 *
 * Structs that carry options, and structs that a call fills, start with their own size, set by their initializer. So a
 * program and a library of different versions understand each other: what the program does not set is as the
 * initializer would have it, what it does not know is not written, what the library does not know becomes zero. A size
 * that cannot be one (0, say) is COMET_ERROR_ARGUMENT.
 *
 * All functions are thread-safe: they keep no state between calls and touch only what they are given. Two calls may
 * share a comet_threads, a const argument, or an input; never an output or a workspace.
 *
 * Compressing and decompressing run in the default floating-point environment and give the caller's back, flags
 * included.
 *
 * The stream is specified, bit by bit and with its proofs, in docs/format.md. The same input and parameters give the
 * same bytes on every machine, with every instruction set and any number of threads.
 */
#ifndef COMET_CODEC_H
#define COMET_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "comet/allocator.h"
#include "comet/export.h"
#include "comet/init.h"
#include "comet/status.h"
#include "comet/tensor.h"
#include "comet/threads.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum comet_codec {
    COMET_CODEC_RAW = 0,   /* the bytes as they are */
    COMET_CODEC_EB = 1,    /* error-bounded: |x - x'| <= bound if x is finite, zeros stay zero, NaN and Inf exact */
    COMET_CODEC_ZVC = 2,   /* lossless: zeros cost a bit */
    COMET_CODEC_MASK = 3,  /* one bit a value: x > 0; decodes to 1 and 0 */
    COMET_CODEC_POOL = 4,  /* k x k averages of each map; decodes to the average, repeated */
    COMET_CODEC_GROUP = 5, /* 2, 4 or 8 bits a value between the least and the greatest of its group */
    COMET_CODEC_DCT = 6    /* JPEG-ACT: 8 x 8 cosine transform of 8-bit values, quantised */
} comet_codec;

typedef enum comet_bound_kind {
    COMET_BOUND_ABSOLUTE = 0,
    COMET_BOUND_RELATIVE = 1 /* times the root mean square of the finite non-zeros; costs a pass of its own */
} comet_bound_kind;

typedef enum comet_rounding {
    COMET_ROUND_NEAREST = 0,
    COMET_ROUND_STOCHASTIC = 1 /* unbiased: up or down with the odds of the distance, from a counter and `seed` */
} comet_rounding;

typedef enum comet_stats_kind {
    COMET_STATS_EXACT = 0,
    COMET_STATS_NONE = 1 /* not needed: a GPU is faster without; a CPU gathers them all the same */
} comet_stats_kind;

/*
 * A grid on a threshold, one per channel. COMET_CODEC_EB only. The value stored is y = fma(scale[c], x, shift[c]) in
 * fp32; the bound is on y and decoding returns y' (scale and shift are not undone and not in the stream; the output is
 * fp32). y' lies on the same side of threshold[c] as y. The threshold itself belongs to the side where a ReLU is off:
 * y' > threshold exactly when y > threshold if slope[c] >= 0, y' < threshold exactly when y < threshold if
 * slope[c] < 0. A NaN threshold means that the channel has none. Decoding needs the same `threshold`, `slope` and
 * `channels`. Its layout is fixed.
 */
typedef struct comet_codec_grid {
    int64_t channels;       /* the extent of the tensor's channel dimension (1 for COMET_FLAT) */
    const float *scale;     /* NULL: 1; finite */
    const float *shift;     /* NULL: 0; finite */
    const float *threshold; /* not NULL */
    const float *slope;     /* NULL: positive; only the sign is read (a ReLU behind gamma * y + beta: gamma) */
} comet_codec_grid;

struct comet_codec_stats;

typedef struct comet_codec_params {
    size_t size;                 /* sizeof(comet_codec_params) */
    comet_codec codec;           /* COMET_CODEC_EB */
    comet_bound_kind bound_kind; /* EB */
    double bound;                /* EB: >= 0 and finite; 0 is lossless, -0 included */
    comet_rounding rounding;     /* EB, GROUP */
    uint64_t seed;               /* for COMET_ROUND_STOCHASTIC */
    int32_t keep_mask; /* EB: non-zeros stay non-zero, sign included; not with stochastic rounding or a grid */
    int32_t checksum;  /* 1: end to end check of the stream, verified when decoding */
    const comet_codec_grid *grid; /* EB: NULL, or a grid on a threshold */
    int32_t pool_block;           /* POOL: k, 1 to 64 */
    int32_t group_bits;           /* GROUP: 2, 4 or 8 */
    int32_t group_values;         /* GROUP: values in a group, 32 to 65536, a multiple of 32 */
    int32_t dct_table;            /* DCT: 0 is JPEG-ACT's table for the first epochs (all 8), 1 the later one */
    /*
     * Device memory, for comet/cuda.h alone: the bound in place of `bound`, statistics to take a relative bound from.
     */
    const float *device_bound;
    const struct comet_codec_stats *device_stats;
    comet_stats_kind stats_kind; /* EB and ZVC: whether the result's statistics are wanted */
} comet_codec_params;

#define COMET_CODEC_PARAMS_INIT                                                                                        \
    COMET_INIT(comet_codec_params, COMET_FIELD(codec) = COMET_CODEC_EB, COMET_FIELD(pool_block) = 2,                   \
               COMET_FIELD(group_bits) = 4, COMET_FIELD(group_values) = 256, COMET_FIELD(dct_table) = 1)

/* Which code runs. Anything but AUTO is for tests: the bytes are the same. */
typedef enum comet_isa {
    COMET_ISA_AUTO = 0,
    COMET_ISA_REFERENCE = 1,
    COMET_ISA_AVX2 = 2,  /* with FMA, BMI1 and 2, POPCNT */
    COMET_ISA_AVX512 = 3 /* F, BW, DQ, VL, VBMI, VBMI2, BITALG, VPOPCNTDQ, GFNI */
} comet_isa;

/* How to run: none of this changes a byte of the result. NULL in place of the struct means all defaults. */
typedef struct comet_codec_exec {
    size_t size;                      /* sizeof(comet_codec_exec) */
    comet_threads *threads;           /* NULL: the calling thread alone */
    const comet_allocator *allocator; /* NULL: the C library's; not used when a workspace is given */
    void *workspace;                  /* NULL: allocated for the call; else 64-byte aligned */
    size_t workspace_bytes;
    void *queue; /* comet/cuda.h: a cudaStream_t; not read on the CPU */
    comet_isa isa;
} comet_codec_exec;

#define COMET_CODEC_EXEC_INIT COMET_INIT_ZERO(comet_codec_exec)

/*
 * What was seen of the values on the way (of y where a grid is given). Summed in one fixed order, so the same on every
 * machine. Values that are not finite are only counted. Not part of the stream. Its layout is fixed: it lies in other
 * structs and in device memory.
 */
typedef struct comet_codec_stats {
    int64_t count;
    int64_t nonzero;  /* finite and not 0 */
    int64_t positive; /* finite and > 0; with a grid: on the side where the ReLU is on */
    int64_t nonfinite;
    float min; /* of the finite values; 0 if there are none */
    float max;
    double sum_abs;
    double sum_squares;
} comet_codec_stats;

/* What compressing made, in a layout that is fixed: it lies in other structs and in device memory. */
typedef struct comet_codec_record {
    size_t bytes;            /* of the stream */
    double bound;            /* the absolute bound that holds (EB; 0 for lossless codecs) */
    int64_t tiles;           /* EB and ZVC: tiles in all, */
    int64_t tiles_exact;     /* of these, how many are stored exactly (raw or zero-value) */
    int64_t tiles_wide;      /* and how many have 16-bit codes */
    comet_codec_stats stats; /* EB and ZVC; all zero for the others */
} comet_codec_record;

/* The same, as comet_codec_compress gives it. */
typedef struct comet_codec_result {
    size_t size; /* sizeof(comet_codec_result) */
    size_t bytes;
    double bound;
    int64_t tiles, tiles_exact, tiles_wide;
    comet_codec_stats stats;
} comet_codec_result;

#define COMET_CODEC_RESULT_INIT COMET_INIT_ZERO(comet_codec_result)

/* For comet_tensor_pass (comet/use_stats.h), and to keep one. */
static inline comet_codec_record comet_codec_record_of(const comet_codec_result *result) {
    comet_codec_record record;
    record.bytes = result->bytes;
    record.bound = result->bound;
    record.tiles = result->tiles;
    record.tiles_exact = result->tiles_exact;
    record.tiles_wide = result->tiles_wide;
    record.stats = result->stats;
    return record;
}

/* What a stream says of itself. */
typedef struct comet_codec_info {
    size_t size; /* sizeof(comet_codec_info) */
    comet_codec codec;
    comet_dtype dtype;
    comet_layout layout;
    int32_t ndim;
    int64_t shape[COMET_MAX_DIMS];
    int64_t count;
    uint32_t version;
    size_t bytes; /* of the whole stream */
    double bound;
    int32_t keep_mask, stochastic, has_grid, has_checksum;
    int32_t parameter; /* POOL: the block, GROUP: bits, DCT: the table */
    int64_t tiles, tiles_exact, tiles_wide, tiles_empty, tiles_predicted; /* EB and ZVC */
} comet_codec_info;

#define COMET_CODEC_INFO_INIT COMET_INIT_ZERO(comet_codec_info)

/* "eb", "zvc", ...; "?" for an unknown codec. Static storage. */
COMET_API const char *comet_codec_name(comet_codec codec);

/* The codec of that name. COMET_ERROR_ARGUMENT if there is none. */
COMET_API comet_status comet_codec_from_name(const char *name, comet_codec *codec);

/* Whether this machine can run `isa` (AUTO and REFERENCE: always). */
COMET_API int comet_isa_supported(comet_isa isa);

/* The most bytes that compressing `tensor` can take. Only shape, dtype and layout are read; EB: raw + 1 % + 1 KiB. */
COMET_API comet_status comet_codec_max_bytes(const comet_tensor *tensor, const comet_codec_params *params,
                                             size_t *bytes);

/*
 * The workspace that compressing `tensor` needs, with the threads of `exec` (may be NULL). May be 0. Never less than
 * what decompressing needs.
 */
COMET_API comet_status comet_codec_compress_workspace(const comet_tensor *tensor, const comet_codec_params *params,
                                                      const comet_codec_exec *exec, size_t *bytes);

/*
 * The workspace that decompressing into `tensor` needs. Of the parameters codec and grid matter; who has a stream alone
 * learns its codec, shape and whether it has a grid from comet_codec_inspect. May be 0.
 */
COMET_API comet_status comet_codec_decompress_workspace(const comet_tensor *tensor, const comet_codec_params *params,
                                                        const comet_codec_exec *exec, size_t *bytes);

/*
 * Compresses `tensor` into `stream`. `exec` and `result` may be NULL.
 * COMET_ERROR_CAPACITY: `capacity` or the workspace is too small; with `capacity` from comet_codec_max_bytes it never
 * is. On an error nothing useful is in `stream`.
 */
COMET_API comet_status comet_codec_compress(const comet_tensor *tensor, const comet_codec_params *params,
                                            const comet_codec_exec *exec, void *stream, size_t capacity,
                                            comet_codec_result *result);

/*
 * Decompresses into `tensor`, whose shape, layout and dtype must be the stream's (strides are free; fp32 where the
 * stream has a grid; MASK decodes into any dtype). `grid` is needed where the stream has one, else NULL. `exec` may be
 * NULL. A hostile stream is an error, never a crash: reads stay inside `bytes`, writes inside the tensor; after an
 * error the tensor's content is unspecified.
 */
COMET_API comet_status comet_codec_decompress(const void *stream, size_t bytes, const comet_codec_grid *grid,
                                              const comet_codec_exec *exec, const comet_tensor *tensor);

/*
 * Writes the serialised form of a stream in host memory: the bytes that comet_codec_compress would have written. A
 * stream copied from a device is as valid, but its pieces may lie in any order with gaps (docs/format.md, 'Table').
 * `checksum` is 1 (with one) or 0 (without), whatever the stream has; one that it has is verified. `bytes` may be more
 * than the stream's. A `capacity` of the stream's own bytes is enough, unless pieces overlap, which no encoder does
 * (COMET_ERROR_CAPACITY). `out` must not overlap `stream`. A hostile stream is an error, never a crash; the payload is
 * moved, not decoded: what is wrong inside a tile is left for decompressing to find.
 */
COMET_API comet_status comet_codec_serialise(const void *stream, size_t bytes, int32_t checksum, void *out,
                                             size_t capacity, size_t *out_bytes);

/* Reads and checks the header and the table, not the payload. `bytes` may be more than the stream's. */
COMET_API comet_status comet_codec_inspect(const void *stream, size_t bytes, comet_codec_info *info);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "support/codec/samples.h"

#include <stdlib.h>
#include <string.h>

#include "support/number.h"
#include "support/rng.h"

#define EB(name, dtype, layout, ...) "eb_" name, COMET_CODEC_EB, dtype, layout, __VA_ARGS__

const sample samples[] = {
    {EB("f32_flat", COMET_F32, COMET_FLAT, 1, {1500}, SAMPLE_MIXED, 0.1, SAMPLE_NEAREST, 0, 0)},
    {EB("f32_nchw", COMET_F32, COMET_NCHW, 4, {1, 3, 17, 11}, SAMPLE_SMOOTH, 0.05, SAMPLE_NEAREST, 0, 0)},
    {EB("f32_nhwc", COMET_F32, COMET_NHWC, 4, {1, 9, 9, 20}, SAMPLE_SMOOTH, 0.05, SAMPLE_NEAREST, 1, 0)},
    {EB("f32_wide_flat", COMET_F32, COMET_FLAT, 2, {30, 20}, SAMPLE_DENSE, 1e-3, SAMPLE_NEAREST, 0, 0)},
    {EB("f32_wide_smooth", COMET_F32, COMET_FLAT, 1, {700}, SAMPLE_SMOOTH, 1e-4, SAMPLE_NEAREST, 0, 0)},
    {EB("f32_wide_nhwc", COMET_F32, COMET_NHWC, 4, {1, 5, 8, 12}, SAMPLE_SMOOTH, 1e-3, SAMPLE_NEAREST, 0, 0)},
    {EB("f32_keep", COMET_F32, COMET_NCHW, 4, {2, 4, 8, 9}, SAMPLE_SPARSE, 0.2, SAMPLE_KEEP, 0, 0)},
    {EB("f32_keep_wide", COMET_F32, COMET_NHWC, 4, {1, 5, 8, 12}, SAMPLE_SPARSE, 0.003, SAMPLE_KEEP, 0, 0)},
    {EB("f32_stochastic", COMET_F32, COMET_FLAT, 1, {600}, SAMPLE_DENSE, 0.3, SAMPLE_STOCHASTIC, 0, 0)},
    {EB("f32_stochastic_wide", COMET_F32, COMET_NHWC, 3, {6, 8, 10}, SAMPLE_DENSE, 0.002, SAMPLE_STOCHASTIC, 0, 0)},
    {EB("f32_grid_nchw", COMET_F32, COMET_NCHW, 4, {1, 6, 10, 9}, SAMPLE_DENSE, 0.2, SAMPLE_GRID, 0, 0)},
    {EB("f32_grid_nhwc", COMET_F32, COMET_NHWC, 4, {1, 6, 9, 12}, SAMPLE_MIXED, 0.2, SAMPLE_GRID, 0, 0)},
    {EB("f32_grid_wide", COMET_F32, COMET_NHWC, 4, {1, 5, 8, 12}, SAMPLE_DENSE, 0.002, SAMPLE_GRID, 0, 0)},
    {EB("f32_special", COMET_F32, COMET_FLAT, 1, {1200}, SAMPLE_SPECIAL, 0.1, SAMPLE_NEAREST, 0, 0)},
    {EB("f32_lossless", COMET_F32, COMET_FLAT, 1, {300}, SAMPLE_SPECIAL, 0.0, SAMPLE_NEAREST, 0, 0)},
    {EB("f32_relative", COMET_F32, COMET_NCHW, 3, {4, 16, 8}, SAMPLE_DENSE, 0.1, SAMPLE_RELATIVE, 1, 0)},
    {EB("f32_zeros", COMET_F32, COMET_FLAT, 1, {2100}, SAMPLE_ZEROS, 0.1, SAMPLE_NEAREST, 0, 0)},
    {EB("f32_empty", COMET_F32, COMET_NCHW, 4, {2, 0, 3, 3}, SAMPLE_DENSE, 0.1, SAMPLE_NEAREST, 0, 0)},
    {EB("f32_scalar", COMET_F32, COMET_FLAT, 0, {0}, SAMPLE_DENSE, 0.1, SAMPLE_NEAREST, 0, 0)},
    {EB("f32_carry_flat", COMET_F32, COMET_FLAT, 1, {2100}, SAMPLE_JUMPS, 0.01, SAMPLE_NEAREST, 0, 0)},
    {EB("f32_carry_nhwc", COMET_F32, COMET_NHWC, 4, {1, 9, 9, 40}, SAMPLE_JUMPS, 0.01, SAMPLE_NEAREST, 0, 0)},
    {EB("f16_nearest", COMET_F16, COMET_NCHW, 4, {1, 4, 9, 16}, SAMPLE_DENSE, 0.05, SAMPLE_NEAREST, 0, 0)},
    {EB("f16_fine", COMET_F16, COMET_FLAT, 1, {500}, SAMPLE_DENSE, 0.01, SAMPLE_NEAREST, 0, 0)},
    {EB("f16_wide_tiny", COMET_F16, COMET_FLAT, 1, {300}, SAMPLE_SPARSE, 1e-7, SAMPLE_NEAREST, 0, 0)},
    {EB("f16_tiny_zeros", COMET_F16, COMET_FLAT, 1, {1300}, SAMPLE_ZEROS, 1e-7, SAMPLE_NEAREST, 0, 0)},
    {EB("f16_keep", COMET_F16, COMET_NHWC, 4, {1, 5, 8, 12}, SAMPLE_SPARSE, 0.1, SAMPLE_KEEP, 1, 0)},
    {EB("f16_keep_fine", COMET_F16, COMET_FLAT, 1, {500}, SAMPLE_SPARSE, 0.004, SAMPLE_KEEP, 0, 0)},
    {EB("f16_stochastic", COMET_F16, COMET_FLAT, 1, {500}, SAMPLE_MIXED, 0.2, SAMPLE_STOCHASTIC, 0, 0)},
    {EB("f16_special", COMET_F16, COMET_FLAT, 1, {300}, SAMPLE_SPECIAL, 0.2, SAMPLE_NEAREST, 0, 0)},
    {EB("f16_grid", COMET_F16, COMET_NCHW, 3, {5, 6, 9}, SAMPLE_DENSE, 0.2, SAMPLE_GRID, 0, 0)},
    {EB("bf16_nearest", COMET_BF16, COMET_NHWC, 4, {1, 7, 9, 9}, SAMPLE_SMOOTH, 0.05, SAMPLE_NEAREST, 0, 0)},
    {EB("bf16_wide", COMET_BF16, COMET_FLAT, 1, {400}, SAMPLE_DENSE, 0.004, SAMPLE_NEAREST, 0, 0)},
    {EB("bf16_keep", COMET_BF16, COMET_NCHW, 4, {1, 4, 9, 11}, SAMPLE_SPARSE, 0.2, SAMPLE_KEEP, 0, 0)},
    {EB("bf16_keep_fine", COMET_BF16, COMET_FLAT, 1, {400}, SAMPLE_MIXED, 0.01, SAMPLE_KEEP, 0, 0)},
    {EB("bf16_keep_wide", COMET_BF16, COMET_FLAT, 1, {400}, SAMPLE_MIXED, 0.005, SAMPLE_KEEP, 0, 0)},
    {EB("bf16_stochastic", COMET_BF16, COMET_FLAT, 1, {500}, SAMPLE_DENSE, 0.3, SAMPLE_STOCHASTIC, 0, 0)},
    {EB("u8_nearest", COMET_U8, COMET_NCHW, 3, {3, 16, 10}, SAMPLE_SMOOTH, 3.0, SAMPLE_NEAREST, 0, 0)},
    {EB("u8_lossless", COMET_U8, COMET_FLAT, 1, {400}, SAMPLE_SMOOTH, 0.0, SAMPLE_NEAREST, 0, 0)},
    {EB("u8_keep", COMET_U8, COMET_NHWC, 3, {8, 8, 3}, SAMPLE_SPARSE, 2.0, SAMPLE_KEEP, 0, 0)},
    {EB("u8_stochastic", COMET_U8, COMET_FLAT, 1, {300}, SAMPLE_DENSE, 5.0, SAMPLE_STOCHASTIC, 0, 0)},
    {"zvc_f32", COMET_CODEC_ZVC, COMET_F32, COMET_NCHW, 4, {1, 3, 8, 10}, SAMPLE_SPARSE, 0.0, SAMPLE_NEAREST, 0, 0},
    {"zvc_bf16", COMET_CODEC_ZVC, COMET_BF16, COMET_NHWC, 4, {1, 6, 8, 10}, SAMPLE_SPARSE, 0.0, SAMPLE_NEAREST, 1, 0},
    {"zvc_f16", COMET_CODEC_ZVC, COMET_F16, COMET_FLAT, 1, {300}, SAMPLE_SPECIAL, 0.0, SAMPLE_NEAREST, 0, 0},
    {"zvc_u8", COMET_CODEC_ZVC, COMET_U8, COMET_FLAT, 1, {1100}, SAMPLE_SPARSE, 0.0, SAMPLE_NEAREST, 0, 0},
    {"raw_f32", COMET_CODEC_RAW, COMET_F32, COMET_FLAT, 2, {6, 8}, SAMPLE_DENSE, 0.0, SAMPLE_NEAREST, 1, 0},
    {"mask_f32", COMET_CODEC_MASK, COMET_F32, COMET_NCHW, 3, {3, 7, 9}, SAMPLE_SPARSE, 0.0, SAMPLE_NEAREST, 0, 0},
    {"pool_nchw", COMET_CODEC_POOL, COMET_F32, COMET_NCHW, 4, {1, 2, 9, 11}, SAMPLE_SMOOTH, 0.0, SAMPLE_NEAREST, 0, 2},
    {"pool_nhwc", COMET_CODEC_POOL, COMET_BF16, COMET_NHWC, 4, {1, 7, 8, 5}, SAMPLE_SMOOTH, 0.0, SAMPLE_NEAREST, 0, 3},
    {"group_2", COMET_CODEC_GROUP, COMET_F32, COMET_FLAT, 1, {300}, SAMPLE_DENSE, 0.0, SAMPLE_STOCHASTIC, 0, 2},
    {"group_4", COMET_CODEC_GROUP, COMET_F16, COMET_FLAT, 1, {300}, SAMPLE_DENSE, 0.0, SAMPLE_NEAREST, 0, 4},
    {"group_8", COMET_CODEC_GROUP, COMET_F32, COMET_NHWC, 3, {6, 7, 8}, SAMPLE_DENSE, 0.0, SAMPLE_STOCHASTIC, 0, 8},
    {"dct_0", COMET_CODEC_DCT, COMET_F32, COMET_NCHW, 4, {1, 2, 17, 9}, SAMPLE_SMOOTH, 0.0, SAMPLE_NEAREST, 0, 0},
    {"dct_1", COMET_CODEC_DCT, COMET_F32, COMET_NHWC, 4, {1, 9, 9, 3}, SAMPLE_SMOOTH, 0.0, SAMPLE_NEAREST, 1, 1},
};

int sample_count(void) {
    return (int)(sizeof samples / sizeof *samples);
}

/* ---- values, as integers in units of 2^-12 ---- */

typedef struct maker {
    const sample *sample;
    rng r;
    int64_t channels; /* values of one position */
    int32_t walk;
} maker;

static int32_t dense(rng *r) {
    int32_t sum = -8190;
    for (int i = 0; i < 4; i++)
        sum += (int32_t)rng_below(r, 4096);
    return sum;
}

static int32_t smooth(maker *m, int64_t i) {
    if (i % m->channels == 0) {
        m->walk += (int32_t)rng_below(&m->r, 401) - 200;
        m->walk -= m->walk / 16;
    }
    return m->walk + (int32_t)(i % m->channels) * 500;
}

static int32_t fixed_of(maker *m, sample_values kind, int64_t i) {
    switch (kind) {
    case SAMPLE_SMOOTH:
        return smooth(m, i);
    case SAMPLE_SPARSE:
        return rng_below(&m->r, 4) ? 0 : dense(&m->r) / 2;
    case SAMPLE_ZEROS:
        return 0;
    case SAMPLE_JUMPS: {
        int32_t level = rng_below(&m->r, 60) ? 8192 : -8192;
        return level + dense(&m->r) / 64;
    }
    case SAMPLE_MIXED: {
        static const sample_values parts[] = {SAMPLE_SMOOTH, SAMPLE_DENSE, SAMPLE_SPARSE, SAMPLE_ZEROS};
        int32_t k = fixed_of(m, parts[i / 97 % 4], i);
        return rng_below(&m->r, 700) ? k : 500 * k; /* an outlier now and then */
    }
    default:
        return dense(&m->r);
    }
}

/* ---- patterns, from integers ---- */

static uint32_t f16_of_fixed(int32_t k) {
    uint32_t a = (uint32_t)(k < 0 ? -k : k), sign = k < 0 ? 0x8000u : 0;
    int shift = 0, top = 0;
    if (a == 0)
        return 0;
    for (; a >= 2048; shift++)
        a >>= 1;
    while (a >> top > 1)
        top++;
    int exponent = top + shift - 12;
    if (exponent > 15)
        return sign | 0x7bffu;
    return sign | (uint32_t)(exponent + 15) << 10 | (a << (10 - top) & 0x3ffu);
}

static uint32_t bits_of_fixed(comet_dtype dtype, int32_t k) {
    uint32_t f32 = bits_of_float((float)k * 0x1p-12f); /* exact: |k| < 2^24 */
    switch (dtype) {
    case COMET_F16:
        return f16_of_fixed(k);
    case COMET_BF16:
        return f32 >> 16;
    case COMET_U8:
        k = (k < 0 ? -k : k) / 10;
        return k > 255 ? 255u : (uint32_t)k;
    default:
        return f32;
    }
}

static uint32_t special_of(comet_dtype dtype, uint64_t which) {
    static const uint32_t f32[] = {0x7fc00000u, 0x7f800001u, 0xffc12345u, 0x7f800000u, 0xff800000u, 0x80000000u, 1u};
    static const uint32_t f16[] = {0x7e00u, 0x7c01u, 0xfe55u, 0x7c00u, 0xfc00u, 0x8000u, 1u};
    static const uint32_t bf16[] = {0x7fc0u, 0x7f81u, 0xffc5u, 0x7f80u, 0xff80u, 0x8000u, 1u};
    return (dtype == COMET_F32 ? f32 : dtype == COMET_F16 ? f16 : bf16)[which % 7];
}

static void fill(sample_data *d, uint64_t seed) {
    const sample *s = d->sample;
    maker m = {.sample = s, .r = rng_seed(seed), .channels = 1};
    if (s->layout == COMET_NHWC)
        m.channels = s->shape[s->ndim - 1];
    for (int64_t i = 0; i < d->count; i++) {
        uint32_t bits = bits_of_fixed(s->dtype, fixed_of(&m, s->values, i));
        /* the first tile of a sample of several stays free of them */
        if (s->values == SAMPLE_SPECIAL && (i >= 1024 || d->count < 1024) && rng_below(&m.r, 9) == 0)
            bits = special_of(s->dtype, rng_next(&m.r));
        bits_put(s->dtype, d->patterns, i, bits);
    }
}

/* ---- parameters ---- */

static void make_grid(sample_data *d, int64_t channels) {
    for (int64_t c = 0; c < channels; c++) {
        d->scale[c] = (float)(c % 5 - 2) * 0.75f;
        d->shift[c] = (float)(c % 3) * 0.125f - 0.125f;
        d->threshold[c] = (float)(c % 7 - 3) * 0.375f;
        d->slope[c] = c % 2 ? -1.0f : 1.0f;
    }
    if (channels > 1)
        d->threshold[1] = d->shift[1]; /* scale -0.75: y == threshold where x is 0 */
    d->grid = (comet_codec_grid){channels, d->scale, d->shift, d->threshold, d->slope};
    d->params.grid = &d->grid;
}

static void set_params(sample_data *d) {
    const sample *s = d->sample;
    d->params = (comet_codec_params)COMET_CODEC_PARAMS_INIT;
    d->params.codec = s->codec;
    d->params.bound = s->bound;
    d->params.bound_kind = s->mode == SAMPLE_RELATIVE ? COMET_BOUND_RELATIVE : COMET_BOUND_ABSOLUTE;
    d->params.rounding = s->mode == SAMPLE_STOCHASTIC ? COMET_ROUND_STOCHASTIC : COMET_ROUND_NEAREST;
    d->params.seed = 0x123456789abcdef0u;
    d->params.keep_mask = s->mode == SAMPLE_KEEP;
    d->params.checksum = s->checksum;
    d->params.pool_block = s->codec == COMET_CODEC_POOL ? s->parameter : 2;
    d->params.group_bits = s->codec == COMET_CODEC_GROUP ? s->parameter : 4;
    d->params.group_values = 64;
    d->params.dct_table = s->codec == COMET_CODEC_DCT ? s->parameter : 1;
    if (s->mode == SAMPLE_GRID)
        make_grid(d, s->layout == COMET_NHWC ? s->shape[s->ndim - 1] : s->layout == COMET_NCHW ? s->shape[1] : 1);
}

void sample_make(const sample *s, sample_data *d) {
    memset(d, 0, sizeof *d);
    d->sample = s;
    if (comet_tensor_init(&d->tensor, d->patterns, s->dtype, s->layout, s->ndim, s->shape) != COMET_OK)
        abort();
    d->count = comet_tensor_count(&d->tensor);
    if (d->count > SAMPLE_MOST_VALUES)
        abort();
    uint64_t seed = 0;
    for (const char *c = s->name; *c; c++)
        seed = seed * 31 + (unsigned char)*c;
    fill(d, seed);
    set_params(d);
}

const comet_codec_grid *sample_grid(const sample_data *d) {
    return d->params.grid;
}

comet_tensor sample_output(const sample_data *d, void *memory) {
    comet_tensor t;
    comet_dtype dtype = d->params.grid ? COMET_F32 : d->sample->dtype;
    if (comet_tensor_init(&t, memory, dtype, d->sample->layout, d->sample->ndim, d->sample->shape) != COMET_OK)
        abort();
    return t;
}

size_t sample_output_bytes(const sample_data *d) {
    return (size_t)d->count * (d->params.grid ? sizeof(float) : comet_dtype_size(d->sample->dtype));
}

size_t sample_compress(const sample_data *d, const comet_codec_exec *exec, unsigned char *stream) {
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    comet_status status = comet_codec_compress(&d->tensor, &d->params, exec, stream, SAMPLE_MOST_BYTES, &result);
    return status == COMET_OK ? result.bytes : 0;
}

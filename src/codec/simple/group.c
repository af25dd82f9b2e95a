/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group: 2, 4 or 8 bits a value between the least and the greatest value of its group (docs/codecs.md, section 4).
 * A baseline of the ActNN kind: no strict bound, and a zero may come back as something else.
 */
#include <float.h>
#include <math.h>
#include <stdatomic.h>

#include "base/fail.h"
#include "base/philox.h"
#include "codec/simple/runs.h"

enum {
    MIN_VALUES = 32,
    MAX_VALUES = 65536,
    PIECE = 1024,   /* values handled at a time, a multiple of 8 */
    PAIR_BYTES = 8, /* minimum and range */
    DRAW = 16       /* blocks of 8 values for which random bits are drawn at a time */
};

/* Below this the range counts as 0: levels / range must not overflow. */
#define LEAST_RANGE 0x1p-100f

typedef struct group_shape {
    int64_t count, values, groups;
    unsigned bits;
    size_t codes_at, bytes; /* where the codes start, and the whole body */
} group_shape;

typedef struct group_work {
    codec_view view;
    group_shape s;
    uint8_t *to;         /* compressing */
    const uint8_t *from; /* decompressing */
    int stochastic;
    uint64_t seed;
    unsigned workers;
    comet_isa isa;
    atomic_int corrupt;
} group_work;

static int bits_are_valid(int64_t bits) {
    return bits == 2 || bits == 4 || bits == 8;
}

static int values_are_valid(uint64_t values) {
    return values >= MIN_VALUES && values <= MAX_VALUES && values % MIN_VALUES == 0;
}

static comet_status group_check(const comet_tensor *tensor, const comet_codec_params *params) {
    (void)tensor;
    COMET_REQUIRE(bits_are_valid(params->group_bits), "params->group_bits is %d: it must be 2, 4 or 8",
                  (int)params->group_bits);
    COMET_REQUIRE(params->group_values > 0 && values_are_valid((uint64_t)params->group_values),
                  "params->group_values is %d: it must be a multiple of %d from %d to %d", (int)params->group_values,
                  MIN_VALUES, MIN_VALUES, MAX_VALUES);
    return COMET_OK;
}

static group_shape shape_of(int64_t count, int64_t values, unsigned bits) {
    group_shape s = {.count = count, .values = values, .groups = comet_div_up(count, values), .bits = bits};
    s.codes_at = (size_t)s.groups * PAIR_BYTES;
    s.bytes = s.codes_at + (size_t)comet_div_up(count * (int64_t)bits, 8);
    return s;
}

static size_t group_bound(const comet_tensor *tensor, const comet_codec_params *params) {
    return shape_of(comet_tensor_count(tensor), params->group_values, (unsigned)params->group_bits).bytes;
}

/* fp32 patterns as integers in the order of the values, -0 below +0; its own inverse. */
static inline int32_t order_of(int32_t pattern) {
    return pattern ^ (int32_t)((uint32_t)(pattern >> 31) >> 1);
}

/* Widens *least .. *greatest (ordered patterns) by the finite values of x. */
COMET_INLINE void extend(const float *x, int64_t n, int32_t *least, int32_t *greatest) {
    int32_t lo = *least, hi = *greatest;
    for (int64_t i = 0; i < n; i++) {
        int32_t pattern = (int32_t)comet_bits_of(x[i]), order = order_of(pattern);
        int32_t odd = -((pattern & 0x7fffffff) >= 0x7f800000); /* all ones: not finite */
        int32_t low = (order & ~odd) | (odd & INT32_MAX), high = (order & ~odd) | (odd & INT32_MIN);
        lo = low < lo ? low : lo;
        hi = high > hi ? high : hi;
    }
    *least = lo;
    *greatest = hi;
}

/* The finite values' minimum and range as they are stored. */
COMET_INLINE void measure(const group_work *w, int64_t first, int64_t n, float *min, float *range) {
    float buffer[PIECE];
    int32_t lo = INT32_MAX, hi = INT32_MIN;
    for (int64_t done = 0; done < n; done += PIECE) {
        int64_t count = comet_min_i64(PIECE, n - done);
        extend(comet_view_read(&w->view, first + done, count, buffer), count, &lo, &hi);
    }
    *min = *range = 0.0f;
    if (lo > hi)
        return; /* nothing finite */
    *min = comet_float_of((uint32_t)order_of(lo));
    float width = comet_float_of((uint32_t)order_of(hi)) - *min;
    if (width >= LEAST_RANGE)
        *range = width <= FLT_MAX ? width : FLT_MAX;
}

/* 16 random bits for each of 8 * DRAW values: base/philox.h on DRAW blocks side by side, so that it vectorises. */
COMET_INLINE void draw(uint64_t seed, int64_t group, uint32_t first_block, uint16_t *bits) {
    uint32_t c[4][DRAW];
    for (uint32_t b = 0; b < DRAW; b++) {
        c[0][b] = (uint32_t)group;
        c[1][b] = (uint32_t)(group >> 32);
        c[2][b] = first_block + b;
        c[3][b] = 1;
    }
    comet_philox_many((uint32_t *const[4]){c[0], c[1], c[2], c[3]}, DRAW, seed);
    for (int b = 0; b < DRAW; b++)
        for (int i = 0; i < 4; i++) {
            bits[8 * b + 2 * i] = (uint16_t)c[i][b];
            bits[8 * b + 2 * i + 1] = (uint16_t)(c[i][b] >> 16);
        }
}

/* A value's place between 0 and `levels`; NaN, and everything if inv is 0, at 0. */
static inline float place(float x, float min, float inv, float levels) {
    float p = (x - min) * inv;
    p = p > 0.0f ? p : 0.0f;
    return p < levels ? p : levels;
}

/* Adding 2^23 leaves the nearest integer, ties to even, in the low bits. */
COMET_INLINE void round_nearest(const float *x, int64_t n, float min, float inv, float levels, uint8_t *codes) {
    for (int64_t i = 0; i < n; i++)
        codes[i] = (uint8_t)comet_bits_of(place(x[i], min, inv, levels) + 0x1p23f);
}

/* place() <= levels and u < 1, but their sum may round up to levels + 1. */
COMET_INLINE void round_random(const float *x, int64_t n, float min, float inv, float levels, const uint16_t *bits,
                               uint8_t *codes) {
    for (int64_t i = 0; i < n; i++) {
        float sum = place(x[i], min, inv, levels) + (float)(2 * (int32_t)bits[i] + 1) * 0x1p-17f;
        sum = sum < levels ? sum : levels;
        codes[i] = (uint8_t)(int32_t)sum;
    }
}

COMET_INLINE void pack(const uint8_t *codes, int64_t bytes, unsigned bits, uint8_t *to) {
    if (bits == 8)
        memcpy(to, codes, (size_t)bytes);
    else if (bits == 4)
        for (int64_t i = 0; i < bytes; i++)
            to[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
    else
        for (int64_t i = 0; i < bytes; i++)
            to[i] = (uint8_t)(codes[4 * i] | codes[4 * i + 1] << 2 | codes[4 * i + 2] << 4 | codes[4 * i + 3] << 6);
}

COMET_INLINE void unpack(const uint8_t *from, int64_t bytes, unsigned bits, uint8_t *codes) {
    if (bits == 8)
        memcpy(codes, from, (size_t)bytes);
    else if (bits == 4)
        for (int64_t i = 0; i < bytes; i++) {
            codes[2 * i] = from[i] & 15;
            codes[2 * i + 1] = from[i] >> 4;
        }
    else
        for (int64_t i = 0; i < bytes; i++) { /* four codes at once: nibbles apart, then pairs of bits */
            uint32_t v = (from[i] | (uint32_t)from[i] << 12) & 0x000f000fu;
            comet_write_u32(codes + 4 * i, (v | v << 6) & 0x03030303u);
        }
}

COMET_INLINE void compress_group(const group_work *w, int64_t group) {
    float buffer[PIECE], min, range, levels = (float)((1u << w->s.bits) - 1);
    uint16_t random[PIECE];
    uint8_t codes[PIECE];
    int64_t first = group * w->s.values, n = comet_min_i64(w->s.values, w->s.count - first);
    measure(w, first, n, &min, &range);
    comet_write_u32(w->to + group * PAIR_BYTES, comet_bits_of(min));
    comet_write_u32(w->to + group * PAIR_BYTES + 4, comet_bits_of(range));
    float inv = range > 0.0f ? levels / range : 0.0f;
    uint8_t *to = w->to + w->s.codes_at + first / 8 * w->s.bits;
    for (int64_t done = 0; done < n; done += PIECE) {
        int64_t count = comet_min_i64(PIECE, n - done);
        const float *x = comet_view_read(&w->view, first + done, count, buffer);
        memset(codes + count / 4 * 4, 0, count % 4 ? 4 : 0); /* what fills the last byte */
        if (w->stochastic) {
            for (int64_t i = 0; i < count; i += 8 * DRAW)
                draw(w->seed, group, (uint32_t)((done + i) / 8), random + i);
            round_random(x, count, min, inv, levels, random, codes);
        } else {
            round_nearest(x, count, min, inv, levels, codes);
        }
        pack(codes, comet_div_up(count * w->s.bits, 8), w->s.bits, to + done / 8 * w->s.bits);
    }
}

/* 0 if minimum or range are none that an encoder writes. */
COMET_INLINE int decompress_group(const group_work *w, int64_t group) {
    float buffer[PIECE];
    uint8_t codes[PIECE];
    float min = comet_float_of(comet_read_u32(w->from + group * PAIR_BYTES));
    float range = comet_float_of(comet_read_u32(w->from + group * PAIR_BYTES + 4));
    if (!(fabsf(min) <= FLT_MAX) || !(range >= 0.0f && range <= FLT_MAX))
        return 0;
    float step = range / (float)((1u << w->s.bits) - 1);
    int64_t first = group * w->s.values, n = comet_min_i64(w->s.values, w->s.count - first);
    const uint8_t *from = w->from + w->s.codes_at + first / 8 * w->s.bits;
    for (int64_t done = 0; done < n; done += PIECE) {
        int64_t count = comet_min_i64(PIECE, n - done);
        unpack(from + done / 8 * w->s.bits, comet_div_up(count * w->s.bits, 8), w->s.bits, codes);
        float *y = comet_view_target(&w->view, first + done, buffer);
        for (int64_t i = 0; i < count; i++) {
            float v = fmaf((float)codes[i], step, min);
            y[i] = v < FLT_MAX ? v : FLT_MAX; /* one rounding above the greatest value could be infinity */
        }
        comet_view_write(&w->view, first + done, count, y);
    }
    return 1;
}

COMET_INLINE void run_share(group_work *w, unsigned worker) {
    int64_t group, end;
    for (comet_share(w->s.groups, w->workers, worker, &group, &end); group < end; group++)
        if (w->to)
            compress_group(w, group);
        else if (!decompress_group(w, group))
            atomic_store(&w->corrupt, 1);
}

static void run_any(void *context, unsigned worker) {
    run_share(context, worker);
}

COMET_FOR_AVX2 static void run_avx2(void *context, unsigned worker) {
    run_share(context, worker);
}

static comet_status group_run(group_work *w, comet_threads *threads) {
    w->workers = comet_workers(threads, w->s.groups);
    comet_parallel(threads, w->workers, w->isa >= COMET_ISA_AVX2 ? run_avx2 : run_any, w);
    return atomic_load(&w->corrupt) ? COMET_ERROR_CORRUPT : COMET_OK;
}

static comet_status group_compress(const codec_compress_job *job) {
    const comet_codec_params *p = job->params;
    group_work w = {.view = comet_view_of(job->tensor),
                    .s = shape_of(comet_tensor_count(job->tensor), p->group_values, (unsigned)p->group_bits),
                    .to = job->body,
                    .stochastic = p->rounding == COMET_ROUND_STOCHASTIC,
                    .seed = p->seed,
                    .isa = job->isa};
    if (job->body_capacity < w.s.bytes)
        return COMET_ERROR_CAPACITY;
    if (w.stochastic)
        job->header->flags |= STREAM_STOCHASTIC;
    job->header->parameter = (uint32_t)p->group_bits;
    job->header->wide_parameter = (uint64_t)p->group_values;
    job->header->body_bytes = w.s.bytes;
    return group_run(&w, job->threads);
}

/* Bits behind the last code are 0. */
static int tail_is_clear(const group_shape *s, const uint8_t *body) {
    unsigned used = (unsigned)(s->count * (int64_t)s->bits % 8);
    return used == 0 || body[s->bytes - 1] >> used == 0;
}

static comet_status group_check_stream(const stream_header *h, const comet_tensor *tensor) {
    (void)tensor;
    int fits = comet_header_is_plain(h, STREAM_STOCHASTIC) && bits_are_valid(h->parameter) &&
               values_are_valid(h->wide_parameter) &&
               h->body_bytes == shape_of(h->count, (int64_t)h->wide_parameter, h->parameter).bytes;
    return fits ? COMET_OK : COMET_ERROR_CORRUPT;
}

static comet_status group_decompress(const codec_decompress_job *job) {
    const stream_header *h = job->header;
    group_work w = {.view = comet_view_of(job->tensor),
                    .s = shape_of(h->count, (int64_t)h->wide_parameter, h->parameter),
                    .from = job->body,
                    .isa = job->isa};
    if (!tail_is_clear(&w.s, job->body))
        return COMET_ERROR_CORRUPT;
    return group_run(&w, job->threads);
}

const codec_vtable comet_codec_group = {
    .name = "group",
    .check = group_check,
    .body_max_bytes = group_bound,
    .compress = group_compress,
    .check_stream = group_check_stream,
    .decompress = group_decompress,
};

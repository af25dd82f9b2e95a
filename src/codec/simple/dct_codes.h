/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first step of dct: values to 8-bit codes and back, by the greatest magnitude of their channel (docs/codecs.md,
 * section 5). What becomes of the codes is dct.c's.
 */
#ifndef COMET_CODEC_DCT_CODES_H
#define COMET_CODEC_DCT_CODES_H

#include "codec/simple/maps.h"
#include "codec/simple/runs.h"

enum { DCT_RUN = 1024 }; /* the longest run of values handled at once */

/* The finite magnitude's pattern, which orders as an unsigned integer; 0 if the value is not finite. */
COMET_INLINE uint32_t comet_dct_magnitude(float x) {
    uint32_t magnitude = comet_bits_of(x) & 0x7fffffffu;
    return magnitude < 0x7f800000u ? magnitude : 0;
}

/* JPEG-ACT's 4.5 / (max + 1e-5), times 32. No overflow: max + 1e-5 is 1e-5 to FLT_MAX. */
COMET_INLINE float comet_dct_scale(float max) {
    return 144.0f / (max + 1e-5f);
}

COMET_INLINE float comet_dct_step(float max) {
    return (max + 1e-5f) / 144.0f;
}

/* x * scale within -128 .. 127; NaN is 0. */
COMET_INLINE float comet_dct_place(float x, float scale) {
    uint32_t bits = comet_bits_of(x * scale);
    uint32_t number = -(uint32_t)((bits & 0x7fffffffu) <= 0x7f800000u); /* a mask, so that it vectorises */
    float v = comet_float_of(bits & number);
    v = v > -128.0f ? v : -128.0f;
    return v < 127.0f ? v : 127.0f;
}

/* To the nearest integer, ties to even: adding 1.5 * 2^23 leaves it in the low bits. A loop of its own vectorises. */
COMET_INLINE void comet_dct_round(const float *places, int64_t n, int8_t *codes) {
    for (int64_t i = 0; i < n; i++)
        codes[i] = (int8_t)(uint8_t)comet_bits_of(places[i] + 0x1.8p23f);
}

/* One channel's run of at most DCT_RUN values. */
COMET_INLINE void comet_dct_codes(const float *x, int64_t n, float max, int8_t *codes) {
    float places[DCT_RUN], scale = comet_dct_scale(max);
    for (int64_t i = 0; i < n; i++)
        places[i] = comet_dct_place(x[i], scale);
    comet_dct_round(places, n, codes);
}

COMET_INLINE void comet_dct_values(const int8_t *codes, int64_t n, float max, float *x) {
    float step = comet_dct_step(max);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)codes[i] * step;
}

/* A run of neighbouring channels, one value each. `maxima` may be unaligned. */
COMET_INLINE void comet_dct_codes_across(const float *x, int64_t n, const uint8_t *maxima, int8_t *codes) {
    float places[DCT_RUN];
    for (int64_t i = 0; i < n; i++)
        places[i] = comet_dct_place(x[i], comet_dct_scale(comet_float_of(comet_read_u32(maxima + 4 * i))));
    comet_dct_round(places, n, codes);
}

COMET_INLINE void comet_dct_values_across(const int8_t *codes, int64_t n, const uint8_t *maxima, float *x) {
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)codes[i] * comet_dct_step(comet_float_of(comet_read_u32(maxima + 4 * i)));
}

/* Values `first` .. end - 1 start with a run of one channel (across = 0), or of channels side by side (across = 1). */
typedef struct dct_run {
    int64_t channel, count;
    int across;
} dct_run;

COMET_INLINE dct_run comet_dct_run(const codec_maps *m, int64_t first, int64_t end) {
    dct_run run = {.across = m->channel_run == 1 && m->channels > 1};
    run.channel = first / m->channel_run % m->channels;
    int64_t left = run.across ? m->channels - run.channel : m->channel_run - first % m->channel_run;
    run.count = comet_min_i64(comet_min_i64(left, end - first), DCT_RUN);
    return run;
}

/*
 * Writes the greatest finite magnitude of each channel, as fp32, to `maxima`. `workspace` is as large as
 * comet_dct_maxima_workspace says for these threads, 4-byte aligned.
 */
void comet_dct_maxima(const codec_view *view, const codec_maps *maps, int64_t count, comet_threads *threads,
                      comet_isa isa, void *workspace, uint8_t *maxima);
size_t comet_dct_maxima_workspace(const codec_maps *maps, int64_t count, unsigned threads);

#endif

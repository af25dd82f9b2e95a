/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small streams of every kind: a fixed list of tensors and parameters. Values are made with integer arithmetic alone,
 * so that they are the same on every machine; the golden streams, the hostile ones and the fuzzers' seeds come from
 * here.
 */
#ifndef TESTS_SUPPORT_SAMPLES_H
#define TESTS_SUPPORT_SAMPLES_H

#include "comet/codec.h"

typedef enum sample_values {
    SAMPLE_MIXED,  /* runs of SMOOTH, DENSE, SPARSE and ZEROS */
    SAMPLE_SMOOTH, /* slow along positions, with an offset for each channel of NHWC */
    SAMPLE_DENSE,
    SAMPLE_SPARSE,
    SAMPLE_SPECIAL, /* NaN, infinities, -0 among others */
    SAMPLE_ZEROS,
    SAMPLE_JUMPS /* near 2, but for a few near -2: differences of codes that carry */
} sample_values;

typedef struct sample {
    const char *name;
    comet_codec codec;
    comet_dtype dtype;
    comet_layout layout;
    int32_t ndim;
    int64_t shape[4];
    sample_values values;
    double bound;
    enum { SAMPLE_NEAREST, SAMPLE_STOCHASTIC, SAMPLE_KEEP, SAMPLE_GRID, SAMPLE_RELATIVE } mode;
    int checksum;
    int32_t parameter; /* pool: block, group: bits, dct: table */
} sample;

enum { SAMPLE_MOST_VALUES = 4096, SAMPLE_MOST_CHANNELS = 64, SAMPLE_MOST_BYTES = SAMPLE_MOST_VALUES * 5 };

/* Everything that a call needs. Large: not for the stack of a thread. params points into it: not to be copied. */
typedef struct sample_data {
    const sample *sample;
    int64_t count;
    _Alignas(64) uint32_t patterns[SAMPLE_MOST_VALUES]; /* of the dtype, side by side */
    float scale[SAMPLE_MOST_CHANNELS], shift[SAMPLE_MOST_CHANNELS], threshold[SAMPLE_MOST_CHANNELS],
        slope[SAMPLE_MOST_CHANNELS];
    comet_codec_grid grid;
    comet_tensor tensor; /* of patterns */
    comet_codec_params params;
} sample_data;

extern const sample samples[];
int sample_count(void);

void sample_make(const sample *s, sample_data *d);

/* NULL without a grid. */
const comet_codec_grid *sample_grid(const sample_data *d);

/* A view of `memory` that the sample's stream decodes into. */
comet_tensor sample_output(const sample_data *d, void *memory);
size_t sample_output_bytes(const sample_data *d);

/* Compresses into `stream` (SAMPLE_MOST_BYTES); 0 if the call fails. exec may be NULL. */
size_t sample_compress(const sample_data *d, const comet_codec_exec *exec, unsigned char *stream);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More than 2^32 values in one tensor: indices, offsets and sizes must be of 64 bits everywhere. The input is one
 * sample repeated by a stride of 0; the output is real memory (4 bytes a value for fp32: 17 GB, 1 for u8).
 * usage: stress_large [f32|u8]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comet/comet.h"

enum { CHANNELS = 64, SIDE = 128, SAMPLE = CHANNELS * SIDE * SIDE, SAMPLES = 4100 };

static void fill(comet_dtype dtype, void *sample) {
    unsigned seed = 1;
    for (int i = 0; i < SAMPLE; i++) {
        seed = seed * 1664525u + 1013904223u;
        int value = (int)(seed >> 24) - 96; /* three of eight are zero */
        value = value > 0 ? value : 0;
        if (dtype == COMET_F32)
            ((float *)sample)[i] = (float)value + (float)(seed >> 12 & 4095u) / 4096.0f * (float)(value > 0);
        else
            ((uint8_t *)sample)[i] = (uint8_t)value;
    }
}

static double value_of(comet_dtype dtype, const void *values, int64_t i) {
    return dtype == COMET_F32 ? (double)((const float *)values)[i] : (double)((const uint8_t *)values)[i];
}

static int64_t count_bad(comet_dtype dtype, const void *sample, const void *output, double bound) {
    int64_t bad = 0;
    for (int64_t i = 0; i < (int64_t)SAMPLES * SAMPLE; i++) {
        double x = value_of(dtype, sample, i % SAMPLE), y = value_of(dtype, output, i);
        bad += !(fabs(x - y) <= bound) || (x == 0.0 && y != 0.0);
    }
    return bad;
}

static int run(comet_dtype dtype, double bound) {
    size_t size = comet_dtype_size(dtype), capacity = (size_t)6 << 30;
    int64_t shape[4] = {SAMPLES, CHANNELS, SIDE, SIDE};
    void *sample = malloc(SAMPLE * size), *output = malloc((size_t)SAMPLES * SAMPLE * size), *stream = malloc(capacity);
    if (!sample || !output || !stream) {
        fprintf(stderr, "stress_large: not enough memory\n");
        return 1;
    }
    fill(dtype, sample);
    comet_tensor input, decoded;
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    params.bound = bound;
    comet_status status = comet_threads_new(0, NULL, &exec.threads);
    comet_tensor_init(&input, sample, dtype, COMET_NCHW, 4, shape);
    input.strides[0] = 0;
    comet_tensor_init(&decoded, output, dtype, COMET_NCHW, 4, shape);
    if (status == COMET_OK)
        status = comet_codec_compress(&input, &params, &exec, stream, capacity, &result);
    if (status == COMET_OK)
        status = comet_codec_decompress(stream, result.bytes, NULL, &exec, &decoded);
    int64_t bad = status == COMET_OK ? count_bad(dtype, sample, output, bound) : -1;
    printf("%s: %lld values (2^32 + %lld), %zu bytes stored, %s, %lld values wrong\n", comet_dtype_name(dtype),
           (long long)result.stats.count, (long long)(result.stats.count - ((int64_t)1 << 32)), result.bytes,
           comet_status_string(status), (long long)bad);
    comet_threads_free(exec.threads);
    free(stream);
    free(output);
    free(sample);
    return bad != 0;
}

int main(int argc, char **argv) {
    int is_u8 = argc > 1 && strcmp(argv[1], "u8") == 0;
    return run(is_u8 ? COMET_U8 : COMET_F32, 4.0);
}

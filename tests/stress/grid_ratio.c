/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ratio of the threshold grid on real activations, as batch norm and ReLU would use it: each channel is brought to mean
 * 0 and variance 1, and has a threshold of its own between -1.5 and 1.5. Counts values beyond the bound or on the wrong
 * side.
 * usage: grid_ratio BOUND FILE.npy...      (fp32, N x C x H x W)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comet/comet.h"

typedef struct activation {
    int64_t shape[4], count;
    float *values;
    float *scale, *shift, *threshold, *slope;
} activation;

static int load(const char *path, activation *a) {
    unsigned char start[10];
    char header[4096] = {0};
    FILE *file = fopen(path, "rb");
    long long d[4];
    if (!file || fread(start, 1, sizeof start, file) != sizeof start || memcmp(start, "\x93NUMPY\x01", 7) != 0)
        return 0;
    size_t bytes = start[8] | (size_t)start[9] << 8;
    if (bytes >= sizeof header || fread(header, 1, bytes, file) != bytes || !strstr(header, "'<f4'"))
        return 0;
    const char *shape = strstr(header, "'shape': (");
    if (!shape || sscanf(shape, "'shape': (%lld, %lld, %lld, %lld", &d[0], &d[1], &d[2], &d[3]) != 4)
        return 0;
    a->count = 1;
    for (int i = 0; i < 4; i++)
        a->count *= a->shape[i] = d[i];
    a->values = malloc((size_t)a->count * sizeof(float));
    int ok = a->values && fread(a->values, sizeof(float), (size_t)a->count, file) == (size_t)a->count;
    fclose(file);
    return ok;
}

static int64_t channel_of(const activation *a, int64_t i) {
    return i / (a->shape[2] * a->shape[3]) % a->shape[1];
}

static int make_grid(activation *a) {
    int64_t channels = a->shape[1];
    float *tables = malloc((size_t)channels * 4 * sizeof(float));
    double *sums = calloc((size_t)channels * 2, sizeof(double)), each = (double)(a->count / channels);
    if (!tables || !sums)
        return 0;
    for (int64_t i = 0; i < a->count; i++) {
        double x = (double)a->values[i];
        sums[2 * channel_of(a, i)] += x;
        sums[2 * channel_of(a, i) + 1] += x * x;
    }
    a->scale = tables, a->shift = tables + channels, a->threshold = tables + 2 * channels;
    a->slope = tables + 3 * channels;
    for (int64_t c = 0; c < channels; c++) {
        double mean = sums[2 * c] / each, variance = sums[2 * c + 1] / each - mean * mean;
        a->scale[c] = (float)(1.0 / sqrt(variance + 1e-5));
        a->shift[c] = (float)(-mean / sqrt(variance + 1e-5));
        a->threshold[c] = (float)(c * 37 % 97) / 97.0f * 3.0f - 1.5f;
        a->slope[c] = c % 3 ? 1.0f : -1.0f;
    }
    free(sums);
    return 1;
}

static int64_t count_bad(const activation *a, const float *decoded, double bound) {
    int64_t bad = 0;
    for (int64_t i = 0; i < a->count; i++) {
        int64_t c = channel_of(a, i);
        float y = fmaf(a->scale[c], a->values[i], a->shift[c]), z = decoded[i], t = a->threshold[c];
        int same_side = a->slope[c] < 0.0f ? (y < t) == (z < t) : (y > t) == (z > t);
        bad += !same_side || !(fabs((double)y - (double)z) <= bound);
    }
    return bad;
}

/* The ratio, 0 if something went wrong. */
static double measure(activation *a, double bound, int64_t *bad) {
    comet_tensor tensor;
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_codec_grid grid = {a->shape[1], a->scale, a->shift, a->threshold, a->slope};
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    size_t capacity = 0;
    params.bound = bound;
    params.grid = &grid;
    comet_tensor_init(&tensor, a->values, COMET_F32, COMET_NCHW, 4, a->shape);
    comet_codec_max_bytes(&tensor, &params, &capacity);
    void *stream = malloc(capacity);
    float *decoded = malloc((size_t)a->count * sizeof(float));
    comet_status status = COMET_ERROR_MEMORY;
    if (stream && decoded)
        status = comet_codec_compress(&tensor, &params, NULL, stream, capacity, &result);
    tensor.data = decoded;
    if (status == COMET_OK)
        status = comet_codec_decompress(stream, result.bytes, &grid, NULL, &tensor);
    if (status == COMET_OK)
        *bad += count_bad(a, decoded, bound);
    free(stream);
    free(decoded);
    return status == COMET_OK ? (double)(a->count * 4) / (double)result.bytes : 0.0;
}

int main(int argc, char **argv) {
    double bound = argc > 1 ? strtod(argv[1], NULL) : 0.0, logs = 0.0;
    int64_t bad = 0;
    for (int i = 2; i < argc; i++) {
        activation a = {0};
        double ratio = load(argv[i], &a) && make_grid(&a) ? measure(&a, bound, &bad) : 0.0;
        if (ratio == 0.0) {
            fprintf(stderr, "grid_ratio: cannot use '%s'\n", argv[i]);
            return 1;
        }
        logs += log(ratio);
        free(a.values);
        free(a.scale);
    }
    if (argc > 2)
        printf("bound %g: geometric mean of the ratio over %d tensors %.2f, %lld values wrong\n", bound, argc - 2,
               exp(logs / (argc - 2)), (long long)bad);
    return bad != 0;
}

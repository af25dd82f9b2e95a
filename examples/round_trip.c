/* SPDX-License-Identifier: Apache-2.0 */
/* Compresses a small map within a bound, with two threads and a workspace of its own, and looks at what came back. */
#include <comet/comet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CHANNELS = 16, SIDE = 64, COUNT = CHANNELS * SIDE * SIDE };

/* What a ReLU leaves of smooth waves: about half of it is zero. */
static void fill(float *values) {
    for (int i = 0; i < COUNT; i++) {
        int channel = i / (SIDE * SIDE), y = i / SIDE % SIDE, x = i % SIDE;
        float wave = sinf((float)(x + 3 * channel) * 0.11f) + cosf((float)(y - 2 * channel) * 0.07f);
        values[i] = wave > 0.0f ? wave : 0.0f;
    }
}

static void fail(const char *what, comet_status status) {
    fprintf(stderr, "round_trip: %s: %s: %s\n", what, comet_status_string(status), comet_last_error());
    exit(1);
}

static void check(const char *what, comet_status status) {
    if (status != COMET_OK)
        fail(what, status);
}

/* Memory for `bytes`, aligned as a workspace must be. */
static void *take(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (!memory)
        fail("memory", COMET_ERROR_MEMORY);
    return memory;
}

int main(void) {
    float *before = take(COUNT * sizeof *before), *after = take(COUNT * sizeof *after);
    fill(before);

    comet_tensor tensor;
    check("tensor", comet_tensor_init(&tensor, before, COMET_F32, COMET_NCHW, 4, (int64_t[]){1, CHANNELS, SIDE, SIDE}));
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    params.bound_kind = COMET_BOUND_RELATIVE;
    params.bound = 0.1; /* a tenth of the root mean square of the non-zeros */

    comet_threads *threads;
    check("threads", comet_threads_new(2, NULL, &threads));
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.threads = threads;
    check("workspace", comet_codec_compress_workspace(&tensor, &params, &exec, &exec.workspace_bytes));
    exec.workspace = take(exec.workspace_bytes);

    size_t capacity;
    check("bound", comet_codec_max_bytes(&tensor, &params, &capacity));
    void *stream = take(capacity);
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    check("compress", comet_codec_compress(&tensor, &params, &exec, stream, capacity, &result));
    tensor.data = after;
    check("decompress", comet_codec_decompress(stream, result.bytes, NULL, &exec, &tensor));

    double largest = 0.0;
    int zeros_broken = 0;
    for (int i = 0; i < COUNT; i++) {
        double error = fabs((double)before[i] - (double)after[i]);
        largest = error > largest ? error : largest;
        zeros_broken += before[i] == 0.0f && after[i] != 0.0f;
    }
    printf("%zu bytes to %zu (%.1f x), bound %.4f, largest error %.4f, %lld non-zeros, %d zeros broken\n",
           COUNT * sizeof *before, result.bytes, (double)(COUNT * sizeof *before) / (double)result.bytes, result.bound,
           largest, (long long)result.stats.nonzero, zeros_broken);

    comet_threads_free(threads);
    free(exec.workspace);
    free(stream);
    free(before);
    free(after);
    return largest > result.bound || zeros_broken > 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* How alike the channels of a map are, from pixels that are far apart. */
#include "train/cpu/loop.h"
#include "train/cpu/statistics.h"

enum { LANES = 16, MOST_PIXELS = 64 };

COMET_CLONES(dot, (const float *a, const float *b, int64_t count, double *result), (a, b, count, result)) {
    float lanes[LANES] = {0};
    double sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += a[i + k] * b[i + k];
    for (; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    for (int k = 0; k < LANES; k++)
        sum += (double)lanes[k];
    *result = sum;
}

/* Row i of those compared: multiples of the golden ratio, so that they are spread over samples and over the map. */
static int64_t row_at(int64_t i, int64_t rows) {
    return (int64_t)((uint64_t)((uint32_t)i * 2654435769u) * (uint64_t)rows >> 32);
}

/* (a - mean) . (b - mean) = a . b - mean . a - mean . b + mean . mean, of which all but the first are known for each pixel. */
double comet_statistics_products(const float *x, const float *mean, int64_t rows, int64_t channels) {
    const int64_t count = rows < MOST_PIXELS ? rows : MOST_PIXELS;
    double of_mean[MOST_PIXELS], means, both, sum = 0;
    dot(mean, mean, channels, &means);
    for (int64_t i = 0; i < count; i++) {
        const float *a = x + row_at(i, rows) * channels;
        dot(mean, a, channels, &of_mean[i]);
        for (int64_t k = 0; k < i; k++) {
            dot(a, x + row_at(k, rows) * channels, channels, &both);
            const double centred = both - of_mean[i] - of_mean[k] + means;
            sum += centred * centred;
        }
    }
    return count > 1 ? sum / ((double)count * (double)(count - 1) / 2) : 0;
}

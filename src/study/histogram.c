/* SPDX-License-Identifier: Apache-2.0 */
#include "study/histogram.h"

#include <math.h>

void comet_histogram_init(comet_histogram *h, double low, double high) {
    *h = (comet_histogram){.low = low, .high = high};
}

static double width(const comet_histogram *h) {
    return (h->high - h->low) / COMET_HISTOGRAM_BINS;
}

double comet_histogram_edge(const comet_histogram *h, int bin) {
    return h->low + bin * (h->high - h->low) / COMET_HISTOGRAM_BINS;
}

void comet_histogram_add(comet_histogram *h, double value) {
    const double place = (value - h->low) / width(h), square = value * value;
    h->count++;
    h->sums[0] += value;
    h->sums[1] += square;
    h->sums[2] += square * value;
    h->sums[3] += square * square;
    if (place < 0)
        h->below++;
    else if (place < COMET_HISTOGRAM_BINS)
        h->bins[(int)place]++;
    else if (value <= h->high)
        h->bins[COMET_HISTOGRAM_BINS - 1]++;
    else
        h->above++;
}

/* ---- moments ---- */

static double mean_power(const comet_histogram *h, int power) {
    return h->count > 0 ? h->sums[power - 1] / h->count : 0;
}

double comet_histogram_mean(const comet_histogram *h) {
    return mean_power(h, 1);
}

double comet_histogram_variance(const comet_histogram *h) {
    const double mean = mean_power(h, 1);
    return fmax(mean_power(h, 2) - mean * mean, 0);
}

double comet_histogram_kurtosis(const comet_histogram *h) {
    const double m = mean_power(h, 1), variance = comet_histogram_variance(h);
    const double fourth =
        mean_power(h, 4) - 4 * m * mean_power(h, 3) + 6 * m * m * mean_power(h, 2) - 3 * m * m * m * m;
    return variance > 0 ? fourth / (variance * variance) - 3 : 0;
}

/* ---- distributions ---- */

double comet_normal_distribution(double value) {
    return 0.5 * erfc(-value / sqrt(2.0));
}

double comet_uniform_distribution(double value) {
    return fmin(fmax((value + 1) / 2, 0), 1);
}

double comet_histogram_distance(const comet_histogram *h, double (*distribution)(double value)) {
    double seen = h->below, distance = 0;
    if (!(h->count > 0))
        return 0;
    for (int i = 0; i <= COMET_HISTOGRAM_BINS; i++) {
        distance = fmax(distance, fabs(seen / h->count - distribution(comet_histogram_edge(h, i))));
        if (i < COMET_HISTOGRAM_BINS)
            seen += h->bins[i];
    }
    return distance;
}

double comet_histogram_within_one(const comet_histogram *h) {
    const int first = (int)lround((-1 - h->low) / width(h)), end = (int)lround((1 - h->low) / width(h));
    double seen = 0;
    for (int i = first < 0 ? 0 : first; i < end && i < COMET_HISTOGRAM_BINS; i++)
        seen += h->bins[i];
    return h->count > 0 ? seen / h->count : 0;
}

double comet_histogram_density(const comet_histogram *h, int bin) {
    return h->count > 0 ? h->bins[bin] / h->count / width(h) : 0;
}

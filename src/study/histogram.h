/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How values are distributed, seen one by one: moments, a histogram, and how far they are from a distribution that
 * theory names.
 */
#ifndef COMET_TRAIN_HISTOGRAM_H
#define COMET_TRAIN_HISTOGRAM_H

enum { COMET_HISTOGRAM_BINS = 80 };

typedef struct comet_histogram {
    double low, high; /* of the bins, which are as wide as one another; what is outside is only counted */
    double count, below, above;
    double sums[4]; /* of the values, their squares, cubes and fourth powers */
    double bins[COMET_HISTOGRAM_BINS];
} comet_histogram;

void comet_histogram_init(comet_histogram *h, double low, double high);
void comet_histogram_add(comet_histogram *h, double value);

/* All 0 without values. */
double comet_histogram_mean(const comet_histogram *h);
double comet_histogram_variance(const comet_histogram *h);
double comet_histogram_kurtosis(const comet_histogram *h); /* excess: 0 of a normal, -1.2 of a uniform distribution */

/* Kolmogorov's and Smirnov's: the greatest difference of the two distribution functions, at the edges of bins. */
double comet_histogram_distance(const comet_histogram *h, double (*distribution)(double value));

double comet_normal_distribution(double value);  /* mean 0, deviation 1 */
double comet_uniform_distribution(double value); /* from -1 to 1 */

/* The part of the values between -1 and 1, which must be edges of bins. */
double comet_histogram_within_one(const comet_histogram *h);

/* A bin's share of all values over its width: what a density is compared with. */
double comet_histogram_density(const comet_histogram *h, int bin);
double comet_histogram_edge(const comet_histogram *h, int bin);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted while a network is trained and evaluated. */
#ifndef COMET_TRAIN_METRICS_H
#define COMET_TRAIN_METRICS_H

#include <stdint.h>

/* ---- accuracy ---- */

typedef struct comet_accuracy {
    int64_t samples;
    int64_t top1, top5; /* of them: the label's logit was the largest, among the five largest */
} comet_accuracy;

void comet_accuracy_add(comet_accuracy *accuracy, int64_t top1, int64_t top5, int64_t samples);

/* In per cent; 0 without samples. */
double comet_accuracy_top1(const comet_accuracy *accuracy);
double comet_accuracy_top5(const comet_accuracy *accuracy);

/* ---- means ---- */

typedef struct comet_mean {
    double sum, weight;
} comet_mean;

/* `weight`: of how many samples `value` is the mean. */
void comet_mean_add(comet_mean *mean, double value, double weight);
double comet_mean_value(const comet_mean *mean); /* 0 without values */

/* An exponential mean for a progress line, unbiased from the first value on. */
typedef struct comet_running_mean {
    double keep; /* of the mean so far: 0.98, say */
    double sum, weight;
} comet_running_mean;

void comet_running_mean_add(comet_running_mean *mean, double value);
double comet_running_mean_value(const comet_running_mean *mean); /* 0 without values */

#endif

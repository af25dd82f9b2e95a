/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted while a network is trained and evaluated, and how runs are compared. */
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

/* ---- runs with the same seeds ---- */

/* b - a over pairs. */
typedef struct comet_paired {
    int pairs;
    double mean, deviation; /* deviation of the differences, over n - 1; 0 for one pair */
    double half_width;      /* the 95 % interval is mean +- half_width (Student's t); infinite for one pair */
} comet_paired;

/* `pairs` at least 1. */
comet_paired comet_compare_pairs(const double *a, const double *b, int pairs);

/* What Student's t with that many degrees of freedom, at least 1, is below with a probability of 97.5 %. */
double comet_student_t(int freedom);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer/metrics.h"

/* ---- accuracy ---- */

void comet_accuracy_add(comet_accuracy *accuracy, int64_t top1, int64_t top5, int64_t samples) {
    accuracy->top1 += top1;
    accuracy->top5 += top5;
    accuracy->samples += samples;
}

static double per_cent(int64_t part, int64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 0.0;
}

double comet_accuracy_top1(const comet_accuracy *accuracy) {
    return per_cent(accuracy->top1, accuracy->samples);
}

double comet_accuracy_top5(const comet_accuracy *accuracy) {
    return per_cent(accuracy->top5, accuracy->samples);
}

/* ---- means ---- */

void comet_mean_add(comet_mean *mean, double value, double weight) {
    mean->sum += value * weight;
    mean->weight += weight;
}

double comet_mean_value(const comet_mean *mean) {
    return mean->weight > 0.0 ? mean->sum / mean->weight : 0.0;
}

void comet_running_mean_add(comet_running_mean *mean, double value) {
    mean->sum = mean->keep * mean->sum + (1.0 - mean->keep) * value;
    mean->weight = mean->keep * mean->weight + (1.0 - mean->keep);
}

double comet_running_mean_value(const comet_running_mean *mean) {
    return mean->weight > 0.0 ? mean->sum / mean->weight : 0.0;
}

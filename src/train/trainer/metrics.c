/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer/metrics.h"

#include <math.h>

/* ---- accuracy ---- */

/* How many classes come before the label's; -1 with NaN. */
static int rank_of(const float *logits, int classes, int32_t label) {
    int before = 0;
    for (int c = 0; c < classes; c++) {
        if (isnan(logits[c]))
            return -1;
        before += logits[c] > logits[label] || (logits[c] == logits[label] && c < label);
    }
    return before;
}

void comet_accuracy_add(comet_accuracy *accuracy, const float *logits, const int32_t *labels, int64_t samples,
                        int classes) {
    for (int64_t i = 0; i < samples; i++) {
        int rank = rank_of(logits + i * classes, classes, labels[i]);
        accuracy->top1 += rank == 0;
        accuracy->top5 += rank >= 0 && rank < 5;
    }
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

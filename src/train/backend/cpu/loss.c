/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax cross-entropy with label smoothing, in fp64: a few thousand values a batch. */
#include <math.h>

#include "train/backend/cpu/kernels.h"

/* The sample's loss; NaN logits give NaN. */
static double sample_loss(const comet_loss_call *call, const float *logits, int32_t label, double *log_total) {
    double greatest = -INFINITY, total = 0, sum = 0;
    for (int k = 0; k < call->classes; k++)
        greatest = fmax(greatest, (double)logits[k]);
    for (int k = 0; k < call->classes; k++) {
        total += exp((double)logits[k] - greatest);
        sum += (double)logits[k];
    }
    *log_total = greatest + log(total);
    const double smoothing = (double)call->smoothing;
    return *log_total - (1 - smoothing) * (double)logits[label] - smoothing / call->classes * sum;
}

static void sample_gradient(const comet_loss_call *call, const float *logits, int32_t label, double log_total,
                            float *gradient) {
    const double scale = (double)call->gradient_scale / call->batch, smoothing = (double)call->smoothing;
    for (int k = 0; k < call->classes; k++) {
        double target = smoothing / call->classes + (k == label ? 1 - smoothing : 0);
        gradient[k] = (float)((exp((double)logits[k] - log_total) - target) * scale);
    }
}

/* How many logits come before the label's; of equal ones the first comes first. With a NaN: all, and more. */
static int rank_of(const float *logits, int classes, int32_t label) {
    int rank = 0;
    for (int k = 0; k < classes; k++) {
        if (isnan(logits[k]))
            return classes + 5;
        rank += logits[k] > logits[label] || (logits[k] == logits[label] && k < label);
    }
    return rank;
}

comet_status comet_cpu_loss(comet_loss_call *call) {
    call->loss = 0;
    call->top1 = call->top5 = 0;
    for (int i = 0; i < call->batch; i++)
        if (call->labels[i] < 0 || call->labels[i] >= call->classes)
            return COMET_ERROR_ARGUMENT;
    for (int i = 0; i < call->batch; i++) {
        const float *logits = (const float *)call->logits + (int64_t)i * call->classes;
        double log_total;
        call->loss += sample_loss(call, logits, call->labels[i], &log_total) / call->batch;
        const int rank = rank_of(logits, call->classes, call->labels[i]);
        call->top1 += rank < 1;
        call->top5 += rank < 5;
        if (call->dlogits)
            sample_gradient(call, logits, call->labels[i], log_total,
                            (float *)call->dlogits + (int64_t)i * call->classes);
    }
    return COMET_OK;
}

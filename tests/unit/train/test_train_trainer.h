/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer and batches for it. */
#ifndef TESTS_TRAIN_TRAINER_H
#define TESTS_TRAIN_TRAINER_H

#include "test_train_case.h"

#include <math.h>
#include <stdio.h>

#include "support/counting_allocator.h"
#include "support/effort.h"
#include "train/trainer/trainer.h"

enum { BATCH = 16, CLASSES = 4, SIDE = 16 };

typedef struct batch {
    uint8_t pixels[BATCH * SIDE * SIDE * 3];
    int32_t labels[BATCH];
} batch;

/* Noise, and a brighter quarter that is the class. */
static inline batch make_batch(uint64_t seed) {
    batch b;
    rng r = rng_seed(seed);
    for (int i = 0; i < BATCH; i++) {
        b.labels[i] = (int32_t)rng_below(&r, CLASSES);
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++)
                for (int c = 0; c < 3; c++) {
                    const int bright = (y >= SIDE / 2) * 2 + (x >= SIDE / 2) == b.labels[i];
                    b.pixels[((i * SIDE + y) * SIDE + x) * 3 + c] = (uint8_t)(rng_below(&r, 120) + (bright ? 80 : 0));
                }
    }
    return b;
}

static inline comet_trainer_options options_for(const char *model, const char *codec) {
    return (comet_trainer_options){.model = model,
                                   .classes = CLASSES,
                                   .height = SIDE,
                                   .width = SIDE,
                                   .channels = 3,
                                   .batch = BATCH,
                                   .codec = codec,
                                   .error_rel = 0.3,
                                   .optimiser = comet_optimiser_default(COMET_SGD),
                                   .seed = 5,
                                   .threads = 2,
                                   .spill_directory = "/tmp",
                                   .normalisation = {{0.5f, 0.5f, 0.5f}, {0.25f, 0.25f, 0.25f}}};
}

static inline comet_trainer *trainer_of(const comet_trainer_options *options) {
    comet_trainer *t = NULL;
    comet_message message;
    assert_done(comet_trainer_new(options, NULL, &t, &message), message);
    return t;
}

static inline comet_trainer_result train(comet_trainer *t, uint64_t seed, double rate) {
    batch b = make_batch(seed);
    comet_trainer_result result;
    comet_message message;
    assert_done(comet_trainer_train(t, b.pixels, b.labels, rate, 0, &result, &message), message);
    return result;
}

static inline double evaluate(comet_trainer *t, int count) {
    batch b = make_batch(1000);
    comet_accuracy accuracy = {0};
    comet_mean loss = {0};
    comet_message message;
    assert_done(comet_trainer_evaluate(t, b.pixels, b.labels, count, &accuracy, &loss, &message), message);
    assert_int_equal(accuracy.samples, count);
    return comet_mean_value(&loss);
}

/* Of all parameters, running statistics included. */
static inline uint64_t digest(comet_trainer *t) {
    uint64_t hash = 14695981039346656037u;
    comet_graph *g = comet_trainer_graph(t);
    for (int i = 0; i < comet_graph_parameters(g); i++) {
        const comet_parameter *p = comet_graph_parameter(g, i);
        for (size_t k = 0; k < (size_t)p->count * sizeof(float); k++)
            hash = (hash ^ ((const unsigned char *)p->value)[k]) * 1099511628211u;
    }
    return hash;
}

/* What `steps` steps make of the first values. */
static inline uint64_t trained(const comet_trainer_options *o, int steps) {
    comet_trainer *t = trainer_of(o);
    for (int i = 0; i < steps; i++)
        train(t, (uint64_t)i, 0.05);
    const uint64_t result = digest(t);
    comet_trainer_free(t);
    return result;
}

/* When sizes are learnt, what was held is what was planned, or up to 5 % less. */
static inline void check_planned(const comet_trainer *t) {
    const comet_trainer_bytes b = comet_trainer_get_bytes(t);
    if (b.allocated_peak_bytes > b.planned_peak_bytes ||
        (double)b.allocated_peak_bytes < 0.95 * (double)b.planned_peak_bytes)
        fail_msg("%zu bytes were held, %zu planned", b.allocated_peak_bytes, b.planned_peak_bytes);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer with frozen layers beside one without whose weights of these layers are put back after every step: what is
 * left out must not show anywhere else.
 */
#ifndef TESTS_TRAIN_FROZEN_H
#define TESTS_TRAIN_FROZEN_H

#include "unit/train/test_train_trainer.h"

static inline float *values_of(comet_graph *g, const comet_parameter *p) {
    float *values = malloc((size_t)p->count * sizeof *values);
    assert_non_null(values);
    assert_ok(g->space->read(g->space, values, p->value, (size_t)p->count * sizeof *values));
    return values;
}

/* `freed` trains all; its layers that are frozen in `frozen` are put back. */
static inline void train_both(comet_trainer *frozen, comet_trainer *freed, uint64_t seed) {
    comet_graph *with = comet_trainer_graph(frozen), *without = comet_trainer_graph(freed);
    const int count = comet_graph_parameters(with);
    float **before = calloc((size_t)count, sizeof *before);
    assert_non_null(before);
    for (int i = 0; i < count; i++)
        if (comet_graph_parameter(with, i)->frozen)
            before[i] = values_of(without, comet_graph_parameter(without, i));
    const double loss = train(frozen, seed, 0.05).loss, expected = train(freed, seed, 0.05).loss;
    assert_memory_equal(&loss, &expected, sizeof loss);
    for (int i = 0; i < count; i++) {
        const comet_parameter *p = comet_graph_parameter(without, i);
        if (before[i])
            assert_ok(without->space->write(without->space, p->value, before[i], (size_t)p->count * sizeof(float)));
        free(before[i]);
    }
    free(before);
}

static inline void check_same(comet_trainer *frozen, comet_trainer *freed) {
    comet_graph *with = comet_trainer_graph(frozen), *without = comet_trainer_graph(freed);
    for (int i = 0; i < comet_graph_parameters(with); i++) {
        const comet_parameter *p = comet_graph_parameter(with, i);
        float *found = values_of(with, p), *expected = values_of(without, comet_graph_parameter(without, i));
        if (memcmp(found, expected, (size_t)p->count * sizeof *found) != 0)
            fail_msg("%s, which is %s, is not what it was without frozen layers", p->name,
                     p->frozen ? "frozen" : "trained");
        assert_true(p->frozen == 0 || p->gradient == NULL);
        free(found);
        free(expected);
    }
}

#endif

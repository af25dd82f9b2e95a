/* SPDX-License-Identifier: Apache-2.0 */
/* Trainers on a GPU, small enough for one that is emulated. */
#ifndef TEST_CUDA_TRAIN_CASE_H
#define TEST_CUDA_TRAIN_CASE_H

#include "unit/train/test_train_trainer.h"

#include "support/cuda/cuda_memory.h"
#include "train/backend/cuda.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/cudnn/cudnn.h"
#include "train/plan/plan_impl.h"
#include "train/trainer/trainer_impl.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation/emulation.h"
#include "emulation/train/stand_in.h"
#endif

static comet_backend_cuda_options place; /* of the next backend */
static comet_message message;
static int unrecorded;

static inline comet_status backend_new(unsigned threads, const comet_allocator *allocator, comet_backend **backend) {
    place.threads = threads;
#ifdef COMET_CUDA_EMULATION
    place.loader = comet_stand_in_loader();
#endif
    return comet_backend_cuda_new(&place, allocator, backend, &message);
}

static inline comet_trainer *gpu_trainer(comet_trainer_options o, comet_dtype dtype) {
    place = (comet_backend_cuda_options){
        .dtype = dtype, .exact_products = dtype == COMET_F32, .deterministic = 1, .unrecorded = unrecorded};
    o.backend = backend_new;
    return trainer_of(&o);
}

/* Small images: an emulated GPU is slow. The loss is of the values all the same. */
static inline comet_trainer_options small(const char *model, const char *codec) {
    comet_trainer_options o = options_for(model, codec);
    o.batch = 8;
    o.height = o.width = SIDE / 2;
    o.spill_directory = NULL;
    return o;
}

/* Kernels that another trainer chose by measuring: two that choose for themselves need not have the same bits. */
static inline comet_trainer *gpu_trainer_like(const comet_trainer *other, comet_trainer_options o, comet_dtype dtype) {
    const size_t room = comet_trainer_get_choices(other, NULL, 0) + 1;
    char *text = malloc(room);
    assert_non_null(text);
    assert_int_equal(comet_trainer_get_choices(other, text, room), room - 1);
    o.choices = text;
    comet_trainer *t = gpu_trainer(o, dtype);
    assert_string_equal(comet_trainer_note(t), "");
    free(text);
    return t;
}

/* Weights and running statistics, to be freed. */
static inline float *parameters_of(comet_trainer *t, int64_t *count) {
    comet_graph *g = comet_trainer_graph(t);
    float *values = NULL;
    *count = 0;
    for (int i = 0; i < comet_graph_parameters(g); i++) {
        const comet_parameter *p = comet_graph_parameter(g, i);
        values = realloc(values, (size_t)(*count + p->count) * sizeof *values);
        assert_non_null(values);
        assert_ok(g->space->read(g->space, values + *count, p->value, (size_t)p->count * sizeof *values));
        *count += p->count;
    }
    return values;
}

#endif

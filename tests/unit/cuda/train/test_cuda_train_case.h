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

#endif

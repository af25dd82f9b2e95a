/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share. */
#ifndef COMET_TRAIN_CUDA_CUDNN_IMPL_H
#define COMET_TRAIN_CUDA_CUDNN_IMPL_H

#include "train/backend/cuda/cudnn/cudnn.h"

/* What a plan was chosen for: the convolution, and what was asked of engines. Numbers of one type alone. */
typedef struct comet_cudnn_key {
    comet_cudnn_conv conv;
    int32_t exact, deterministic;
    int32_t workspace_kib;
} comet_cudnn_key;

enum { COMET_CUDNN_KEY_NUMBERS = COMET_CUDNN_CONV_NUMBERS + 3 };

typedef struct comet_cudnn_entry {
    comet_cudnn_key key;
    comet_cudnn_plan plan;
    comet_cudnn_descriptors graph, config; /* which the plan refers to */
} comet_cudnn_entry;

/* A choice that was read and whose plan nobody asked for yet. */
typedef struct comet_cudnn_known {
    comet_cudnn_key key;
    comet_cudnn_choice choice;
} comet_cudnn_known;

struct comet_cudnn {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_cudnn_library library;
    cudnnHandle_t handle;
    cudaStream_t queue;
    int exact, deterministic;
    size_t workspace_bytes;
    comet_cudnn_entry **entries; /* each at its place as long as this is there */
    size_t entry_count, entry_room;
    comet_cudnn_known *known;
    size_t known_count, known_room;
    int timed;
};

/* The key of a convolution here, and now. */
comet_cudnn_key comet_cudnn_key_of(const comet_cudnn *cudnn, const comet_cudnn_conv *conv);

/* What was read of it; NULL: nothing. */
const comet_cudnn_known *comet_cudnn_known_find(const comet_cudnn *cudnn, const comet_cudnn_key *key);

/*
 * Which of the plans is the fastest. COMET_ERROR_MEMORY: there is no memory to try them; nothing is wrong then.
 * COMET_ERROR_UNSUPPORTED: none of them runs.
 */
comet_status comet_cudnn_time(comet_cudnn *cudnn, const comet_cudnn_conv *conv, const comet_cudnn_plan *plans,
                              int count, int *fastest);

#endif

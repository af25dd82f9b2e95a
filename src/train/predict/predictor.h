/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trained network that classifies images: forward alone, without the memory that training takes. Its weights come
 * from a weight file or a checkpoint.
 */
#ifndef COMET_TRAIN_PREDICTOR_H
#define COMET_TRAIN_PREDICTOR_H

#include "train/backend/backend.h"
#include "train/checkpoint/about.h"
#include "train/step/step.h"

typedef struct comet_predictor_options {
    comet_place place;
    unsigned threads; /* 0: one per core */
    int batch;        /* images at a time, at most */
} comet_predictor_options;

/* What a file of weights is of, completed: where it does not say, from `wanted` and from the shapes of its tensors. */
typedef struct comet_predictor_wishes {
    const char *model; /* NULL: what the file says */
    int image;         /* height and width; 0: what the file says, or what the model was made for */
} comet_predictor_wishes;

/*
 * COMET_ERROR_ARGUMENT: it does not say which network it is of, and `wanted` does not either; or says another one.
 * Images are normalised as ImageNet is where it does not say how. To be freed with comet_about_free.
 */
comet_status comet_predictor_about(const char *path, const comet_predictor_wishes *wanted,
                                   const comet_allocator *allocator, comet_about *about, comet_message *message);

typedef struct comet_predictor comet_predictor;

comet_status comet_predictor_new(const char *path, const comet_about *about, const comet_predictor_options *options,
                                 const comet_allocator *allocator, comet_predictor **predictor, comet_message *message);

/* NULL is allowed. */
void comet_predictor_free(comet_predictor *predictor);

/* What it computes, where; both are the predictor's. */
comet_graph *comet_predictor_graph(comet_predictor *predictor);
comet_backend *comet_predictor_backend(comet_predictor *predictor);

/* Who is told of what is made of the images that come from now on; it stays the caller's. NULL: nobody. */
void comet_predictor_show(comet_predictor *predictor, const comet_step_sight *sight);

/*
 * Of `count` images, NHWC bytes, one behind the other with options.batch of them in memory, the probabilities of all
 * classes. They sum up to 1; all are NaN where a logit is.
 */
comet_status comet_predictor_run(comet_predictor *predictor, const uint8_t *pixels, int count, double *probabilities,
                                 comet_message *message);

#endif

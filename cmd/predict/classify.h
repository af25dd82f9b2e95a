/* SPDX-License-Identifier: Apache-2.0 */
/* Images of a data set through a network, one after the other. */
#ifndef COMET_CMD_CLASSIFY_H
#define COMET_CMD_CLASSIFY_H

#include "cmd/predict/network.h"
#include "data/loader/loader.h"

/* What came of an image. */
typedef struct classified {
    int64_t sample; /* of the split */
    int32_t label;  /* of the set */
    const double *probabilities;
} classified;

typedef struct classify_options {
    const comet_dataset *data;
    int64_t most; /* images, of all classes; 0: all */
    int quiet;    /* 1: no progress */
    void (*see)(void *context, const classified *image);
    void *context;
} classify_options;

/*
 * Those that are there for evaluation, in their order. Files that cannot be used are told and counted in *broken, and
 * left out.
 */
int classify(network *n, const classify_options *options, int64_t *broken);

/* Classes in the order of their probabilities, the likeliest first: the first `count` of them into `best`. */
void classify_best(const double *probabilities, int classes, int count, int *best);

#endif

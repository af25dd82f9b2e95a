/* SPDX-License-Identifier: Apache-2.0 */
/* What a network made of images whose classes are known. */
#ifndef COMET_CMD_TALLY_H
#define COMET_CMD_TALLY_H

#include <stdint.h>

typedef struct tally {
    int classes; /* of the network */
    int64_t images, top1, top5;
    double loss;        /* the sum over images */
    int64_t *confusion; /* [what it is][what it was taken for] */
    int64_t *of_class, *right;
} tally;

int tally_init(tally *t, int classes);
void tally_free(tally *t);

/* An image of class `label`. Returns what it was taken for; -1: probabilities are not finite. */
int tally_add(tally *t, int label, const double *probabilities);

/* Per cent; 0 without images. */
double tally_part(int64_t part, int64_t whole);

/* The class that images of `label` were most often taken for, if not for itself; -1: they never were. */
int tally_confused(const tally *t, int label);

#endif

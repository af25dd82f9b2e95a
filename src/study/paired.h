/* SPDX-License-Identifier: Apache-2.0 */
/* Paired comparisons: with the same seeds and batches most of the noise is common to both runs and falls out. */
#ifndef COMET_STUDY_PAIRED_H
#define COMET_STUDY_PAIRED_H

/* b - a over pairs. */
typedef struct comet_paired {
    int pairs;
    double mean, deviation; /* deviation of the differences, over n - 1; 0 for one pair */
    double half_width;      /* the 95 % interval is mean +- half_width (Student's t); infinite for one pair */
} comet_paired;

/* `pairs` at least 1. */
comet_paired comet_compare_pairs(const double *a, const double *b, int pairs);

/* What Student's t with that many degrees of freedom, at least 1, is below with a probability of 97.5 %. */
double comet_student_t(int freedom);

#endif

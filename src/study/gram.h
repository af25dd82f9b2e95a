/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How alike two layers are in what they make of the same images: linear centred kernel alignment (CKA, Kornblith et al.
 * 2019), from batches of images with the unbiased estimator of HSIC (Song et al. 2012; Nguyen et al. 2021). Whatever
 * the features: their number, their order, a rotation or a common scale of them change nothing.
 *
 *     comet_gram(a, n, features_of_a, threads, NULL, gram_a);      of a batch: n rows of features
 *     comet_gram(b, n, features_of_b, threads, NULL, gram_b);
 *     comet_cka_add(&cka, gram_a, gram_b, n);                      batch after batch
 *     comet_cka_value(&cka);                                       1: the same; about 0: nothing in common
 */
#ifndef COMET_STUDY_GRAM_H
#define COMET_STUDY_GRAM_H

#include <stddef.h>
#include <stdint.h>

#include "comet/allocator.h"
#include "comet/status.h"
#include "comet/threads.h"

/* With fewer images there is no unbiased estimate; more would take too much memory. */
enum { COMET_GRAM_LEAST = 4, COMET_GRAM_MOST = 512 };

/* Pairs of images, (0, 1), (0, 2), ..., (n - 2, n - 1): what a Gram matrix has of numbers. */
static inline size_t comet_gram_pairs(int n) {
    return (size_t)n * (size_t)(n - 1) / 2;
}

/*
 * Inner products of the images' features, U-centred (Szekely & Rizzo 2014): of K with a diagonal of 0, for i != j,
 *     K_ij - (K 1)_i / (n - 2) - (K 1)_j / (n - 2) + 1'K 1 / ((n - 1) (n - 2)).
 * Sums are in fp64 and do not depend on the number of threads. COMET_ERROR_MEMORY; COMET_ERROR_ARGUMENT for a number of
 * images that is not from LEAST to MOST.
 */
comet_status comet_gram(const float *features, int n, int64_t count, comet_threads *threads,
                        const comet_allocator *allocator, double *gram);

/*
 * The unbiased estimate of HSIC, which is the sum over i != j of the products of two U-centred matrices' elements over
 * n (n - 3). It is the same number as Song's
 *     (tr(KL) + 1'K 1 1'L 1 / ((n - 1) (n - 2)) - 2 / (n - 2) 1'K L 1) / (n (n - 3)), K and L with a diagonal of 0,
 * without its large terms that cancel.
 */
double comet_hsic(const double *a, const double *b, int n);

/* Sums over batches, each as heavy as it has images. */
typedef struct comet_cka {
    double both, first, second;
} comet_cka;

void comet_cka_add(comet_cka *cka, const double *a, const double *b, int n);

/* NaN where one of the two is the same for all images. It may be a little below 0. */
double comet_cka_value(const comet_cka *cka);

#endif

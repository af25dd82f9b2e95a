/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors to save in a store, in every form, and what loading them must give. */
#ifndef TESTS_SUPPORT_STORE_CASE_H
#define TESTS_SUPPORT_STORE_CASE_H

#include "comet/store.h"
#include "support/rng.h"

enum { STORE_CASE_MOST = 40000 }; /* values */

typedef struct store_case {
    comet_tensor tensor; /* fp32, NHWC of four dimensions, contiguous */
    float *values;       /* its data */
    int64_t count;
    comet_store_item item;
    comet_codec_params codec;
    float *expected; /* what a load gives, computed with the codec alone */
    size_t stored;   /* bytes that represent it */
} store_case;

/* The forms: "keep", "keep+offload", "eb", "eb+offload", "zvc", "mask", "pool", "group", "dct", "recompute". */
int store_form_count(void);

/* A tensor of about `count` values, half of them zero, for form number `form`. Aborts if there is no memory. */
void store_case_new(store_case *c, int form, int64_t count, rng *r);
void store_case_free(store_case *c);

/* 1 if a load of `handle` gives what is expected. Thread-safe. */
int store_case_loads(comet_store *store, comet_store_handle handle, const store_case *c);

#endif

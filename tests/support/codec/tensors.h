/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors for tests: any shape and strides in memory of their own, with guard bytes around and in the gaps. */
#ifndef TESTS_SUPPORT_TENSORS_H
#define TESTS_SUPPORT_TENSORS_H

#include "comet/tensor.h"
#include "support/rng.h"

typedef enum stride_kind {
    STRIDES_CONTIGUOUS,
    STRIDES_PERMUTED,                   /* dimensions in another order in memory */
    STRIDES_REVERSED,                   /* negative */
    STRIDES_GAPS,                       /* a slice: values between the values */
    STRIDES_MIXED,                      /* all three */
    STRIDES_OUTPUTS,                    /* the kinds above have a place of its own for every value */
    STRIDES_EXPANDED = STRIDES_OUTPUTS, /* a dimension of stride 0 */
    STRIDES_KINDS
} stride_kind;

typedef struct test_shape {
    comet_layout layout;
    int32_t ndim;
    int64_t shape[COMET_MAX_DIMS];
} test_shape;

typedef struct test_tensor {
    comet_tensor view;
    unsigned char *memory;
    size_t bytes;   /* of memory, guards included */
    int contiguous; /* no gaps inside */
} test_tensor;

const char *layout_name(comet_layout layout);

/* Scalars, empty tensors, extents of 1, odd and ragged ones, feature maps; at most `most` values. */
test_shape shape_random(rng *r, comet_layout layout, int64_t most);
int64_t shape_count(const test_shape *s);

/* Memory filled with guard bytes. Aborts without memory. */
void test_tensor_new(test_tensor *t, rng *r, comet_dtype dtype, const test_shape *shape, stride_kind strides);
void test_tensor_free(test_tensor *t);

/* Values in logical order, one by one from the definition of strides. */
void test_tensor_write(test_tensor *t, const void *patterns);
void test_tensor_read(const test_tensor *t, void *patterns);

/* 1 if every byte that belongs to no value still is a guard byte. */
int test_tensor_gaps_intact(const test_tensor *t);

/* How many values of the whole tensor belong to one channel before the next begins, and how many channels there are. */
int64_t shape_channel_stride(const test_shape *s);
int64_t shape_channels(const test_shape *s);

#endif

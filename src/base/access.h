/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and writing runs of a view's values by their logical (row-major) index, whatever the strides.
 * CPU views only. Indices are trusted: first + count is at most the view's count.
 */
#ifndef COMET_BASE_ACCESS_H
#define COMET_BASE_ACCESS_H

#include "comet/tensor.h"

/* Values first .. first + count - 1 as fp32 (exact for every dtype). */
void comet_access_load(const comet_tensor *tensor, int64_t first, int64_t count, float *values);

/* Stores them, rounding to nearest even; u8: clamped to 0 .. 255, NaN as 0. */
void comet_access_store(const comet_tensor *tensor, int64_t first, int64_t count, const float *values);

/* The same with bit patterns of the dtype, no conversion. */
void comet_access_load_bits(const comet_tensor *tensor, int64_t first, int64_t count, void *patterns);
void comet_access_store_bits(const comet_tensor *tensor, int64_t first, int64_t count, const void *patterns);

/* Contiguous conversion of `count` patterns of `dtype`. */
void comet_convert_to_f32(comet_dtype dtype, const void *patterns, int64_t count, float *values);
void comet_convert_of_f32(comet_dtype dtype, const float *values, int64_t count, void *patterns);

#endif

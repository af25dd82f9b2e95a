/* SPDX-License-Identifier: Apache-2.0 */
/* Validity of views and shapes that come from outside. */
#ifndef COMET_BASE_TENSOR_CHECK_H
#define COMET_BASE_TENSOR_CHECK_H

#include "comet/tensor.h"

/* More values than any memory holds, few enough that byte counts and tile numbers never overflow 64 bits. */
#define COMET_MAX_COUNT ((int64_t)1 << 48)

/* The product of the extents, or -1 if an extent is negative or the product exceeds COMET_MAX_COUNT. */
int64_t comet_shape_count(int32_t ndim, const int64_t *shape);

/* 1 if ndim and the extents are in range and their product is at most COMET_MAX_COUNT. */
int comet_shape_is_valid(int32_t ndim, const int64_t *shape);

/* COMET_ERROR_ARGUMENT for NULL, an unknown dtype or layout, an invalid shape, or no data behind a non-empty shape.
 * The reason calls it `name`. */
comet_status comet_tensor_check(const comet_tensor *tensor, const char *name);

/* The same but for the data, for queries. */
comet_status comet_tensor_check_shape(const comet_tensor *tensor, const char *name);

/* The extent of the channel dimension; 1 where there is none. */
int64_t comet_tensor_channels(const comet_tensor *tensor);

#endif

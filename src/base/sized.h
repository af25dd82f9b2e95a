/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structs of the public API that start with a `size_t size`, set by the caller's initializer, so that they can grow:
 * caller and library may be of different versions.
 */
#ifndef COMET_BASE_SIZED_H
#define COMET_BASE_SIZED_H

#include <stddef.h>

#include "comet/status.h"

/* COMET_ERROR_ARGUMENT if `given` is NULL, or starts with a size that can be none: less than two words, or a page. */
comet_status comet_sized_check(const void *given, const char *name);

/*
 * Takes options: copies `given` into `copy`, of `known` bytes. An older caller's is shorter and the rest stays as in
 * `defaults`, a newer caller's is longer and may only be zero there. NULL is `defaults`. COMET_ERROR_ARGUMENT if the
 * size can be none or something unknown is set; the reason calls the argument `name`.
 */
comet_status comet_sized_read(void *copy, size_t known, const void *given, const void *defaults, const char *name);

/*
 * Gives a result: copies `from`, of `known` bytes, into `given`, whose size is valid. An older caller's is shorter and
 * nothing is written behind it, a newer caller's is longer and the rest becomes zero. `size` stays the caller's.
 */
void comet_sized_write(void *given, const void *from, size_t known);

#endif

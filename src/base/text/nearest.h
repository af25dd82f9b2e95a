/* SPDX-License-Identifier: Apache-2.0 */
/* Which name was meant by one that there is not. */
#ifndef COMET_BASE_TEXT_NEAREST_H
#define COMET_BASE_TEXT_NEAREST_H

#include <stddef.h>

/*
 * How many letters have to be added, removed, changed or swapped with their neighbour to make `b` of `a`, upper and
 * lower case being the same; more than `most` where it is more than that.
 */
size_t comet_edit_distance(const char *a, const char *b, size_t most);

/*
 * The candidate that is most like `name`, if it is like enough to have been meant: NULL otherwise. Candidates come one
 * by one: at(context, i) answers NULL behind the last.
 */
const char *comet_nearest(const char *name, const char *(*at)(const void *context, int index), const void *context);

#endif

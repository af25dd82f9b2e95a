/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of docs/format.md, section 5, in the order given there: to the last bit. */
#ifndef TESTS_SUPPORT_SPEC_STATS_H
#define TESTS_SUPPORT_SPEC_STATS_H

#include "support/spec/spec_format.h"

/* s has its geometry; patterns are what is stored, in logical order. */
void spec_sums(const spec_stream *s, const void *patterns, double *sum_abs, double *sum_squares);

#endif

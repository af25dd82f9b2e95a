/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's arithmetic is specified to the bit, so it runs in the default environment (rounding to nearest, nothing
 * flushed to zero), whatever the caller's is, and gives that back.
 */
#ifndef COMET_BASE_FP_ENVIRONMENT_H
#define COMET_BASE_FP_ENVIRONMENT_H

#include <fenv.h>

static inline void comet_fp_enter(fenv_t *callers) {
    fegetenv(callers);
    fesetenv(FE_DFL_ENV);
}

static inline void comet_fp_leave(const fenv_t *callers) {
    fesetenv(callers);
}

#endif

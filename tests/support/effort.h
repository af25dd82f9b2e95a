/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much to do: less where every instruction is slow (sanitizers, an emulated machine), more if COMET_TEST_EFFORT
 * says.
 */
#ifndef TESTS_SUPPORT_EFFORT_H
#define TESTS_SUPPORT_EFFORT_H

#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define EFFORT_SLOW 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define EFFORT_SLOW 1
#endif
#endif
#ifndef EFFORT_SLOW
#define EFFORT_SLOW 0
#endif

/* `normal` rounds of work, fewer where it is slow; at least 1. COMET_TEST_EFFORT is a factor, 1 by default. */
static inline int effort(int normal) {
    const char *text = getenv("COMET_TEST_EFFORT");
    double factor = text ? strtod(text, NULL) : 1.0;
    double rounds = (double)normal * factor / (EFFORT_SLOW ? 3.0 : 1.0);
    return rounds < 1.0 ? 1 : (int)rounds;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a check failed. Checks return 1, or 0 after writing here; so unit tests, fuzzers and the stress program share
 * them.
 */
#ifndef TESTS_SUPPORT_FAILURE_H
#define TESTS_SUPPORT_FAILURE_H

typedef struct failure {
    char text[1024];
} failure;

/* Returns 0. */
int failure_set(failure *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts "prefix: " in front of the text. Returns 0. */
int failure_prefix(failure *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a call fails. Each public call that returns a status begins with comet_begin(); where it finds out what is wrong
 * it says so with comet_fail or COMET_REQUIRE, which comet_last_error then tells; others pass the status on, with
 * COMET_TRY where that is all.
 */
#ifndef COMET_BASE_FAIL_H
#define COMET_BASE_FAIL_H

#include "comet/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A public call begins: nothing is wrong with it yet. */
void comet_begin(void);

/* Returns `status` and keeps the line as its reason: which argument, and what it must be. */
comet_status comet_fail(comet_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* For calls in which something failed and was put right: nothing is left of that if `status` is COMET_OK. */
comet_status comet_end(comet_status status);

#ifdef __cplusplus
}
#endif

/* Leaves the function with COMET_ERROR_ARGUMENT and the reason. */
#define COMET_REQUIRE(condition, ...)                                                                                  \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            comet_fail(COMET_ERROR_ARGUMENT, __VA_ARGS__);                                                             \
            return COMET_ERROR_ARGUMENT; /* a constant: the compiler sees that what follows has been set */            \
        }                                                                                                              \
    } while (0)

#define COMET_REQUIRE_POINTER(argument) COMET_REQUIRE(argument, #argument " is NULL")

/* Leaves the function with the status of `call` if that is not COMET_OK. */
#define COMET_TRY(call)                                                                                                \
    do {                                                                                                               \
        comet_status comet_tried = (call);                                                                             \
        if (comet_tried != COMET_OK)                                                                                   \
            return comet_tried;                                                                                        \
    } while (0)

#endif

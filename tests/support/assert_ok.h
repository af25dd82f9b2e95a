/* SPDX-License-Identifier: Apache-2.0 */
/* cmocka's headers in the order they need, and its assertions for statuses and for checks that explain themselves. */
#ifndef TESTS_SUPPORT_ASSERT_OK_H
#define TESTS_SUPPORT_ASSERT_OK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comet/status.h"
#include "support/failure.h"

/* Ends a test that cannot run here: it counts as skipped, and the log says why. */
#define skip_because(reason)                                                                                           \
    do {                                                                                                               \
        print_message("skipped: %s\n", (reason));                                                                      \
        skip();                                                                                                        \
    } while (0)

#define assert_ok(call)                                                                                                \
    do {                                                                                                               \
        comet_status status_of_call = (call);                                                                          \
        if (status_of_call != COMET_OK)                                                                                \
            fail_msg("%s: %s: %s", #call, comet_status_string(status_of_call), comet_last_error());                    \
    } while (0)

#define assert_status(call, expected)                                                                                  \
    do {                                                                                                               \
        comet_status status_of_call = (call);                                                                          \
        if (status_of_call != (expected))                                                                              \
            fail_msg("%s: %s, expected %s", #call, comet_status_string(status_of_call),                                \
                     comet_status_string(expected));                                                                   \
    } while (0)

/* What comet_last_error begins with. */
#define assert_reason(begins) assert_memory_equal(comet_last_error(), begins, sizeof(begins) - 1)

/* `check` returns 0 after writing to `f`. */
#define assert_check(check, f)                                                                                         \
    do {                                                                                                               \
        if (!(check))                                                                                                  \
            fail_msg("%s", (f).text);                                                                                  \
    } while (0)

#endif

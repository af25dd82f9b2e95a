/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of controllers share. */
#ifndef TESTS_UNIT_TEST_CONTROL_CASE_H
#define TESTS_UNIT_TEST_CONTROL_CASE_H

#include <math.h>

#include "support/assert_ok.h"

/* |found - expected| <= tolerance; 0: the same number. */
#define assert_near(found, expected, tolerance)                                                                        \
    do {                                                                                                               \
        double found_near = (found), expected_near = (expected);                                                       \
        if (!(fabs(found_near - expected_near) <= (tolerance)))                                                        \
            fail_msg("%s is %.17g, expected %.17g", #found, found_near, expected_near);                                \
    } while (0)

#endif

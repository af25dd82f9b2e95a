/* SPDX-License-Identifier: Apache-2.0 */
/* What a fuzz target asks for: where it does not hold, the line is printed and the input is a finding. */
#ifndef TESTS_FUZZ_COMMON_EXPECT_H
#define TESTS_FUZZ_COMMON_EXPECT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif

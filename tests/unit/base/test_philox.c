/* SPDX-License-Identifier: Apache-2.0 */
/* Philox-4x32-10 against the known answers of Random123 (kat_vectors). */
#include "support/assert_ok.h"

#include "base/philox.h"

typedef struct known_answer {
    uint32_t counter[4], key[2], expected[4];
} known_answer;

static const known_answer answers[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}},
    {{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu},
     {0xffffffffu, 0xffffffffu},
     {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}},
    {{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
     {0xa4093822u, 0x299f31d0u},
     {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}},
};

static void test_known_answers(void **state) {
    (void)state;
    for (unsigned i = 0; i < sizeof answers / sizeof *answers; i++) {
        uint32_t c[4];
        for (int w = 0; w < 4; w++)
            c[w] = answers[i].counter[w];
        comet_philox(c, answers[i].key[0] | (uint64_t)answers[i].key[1] << 32);
        assert_memory_equal(c, answers[i].expected, sizeof c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known_answers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

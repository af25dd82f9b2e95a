/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction sets that this machine can run, the reference first. */
#ifndef TESTS_SUPPORT_ISAS_H
#define TESTS_SUPPORT_ISAS_H

#include "comet/codec.h"

typedef struct isa_list {
    int count;
    comet_isa isa[4];
} isa_list;

const char *isa_name(comet_isa isa);

isa_list isa_list_get(void);

/* Says once on standard output which are tested and which are not, and why. */
void isa_list_print(void);

#endif

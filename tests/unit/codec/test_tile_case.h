/* SPDX-License-Identifier: Apache-2.0 */
/* The instruction sets there are, and padding: shared by the tests of the tile kernels. */
#ifndef TEST_TILE_CASE_H
#define TEST_TILE_CASE_H

#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>

#include "codec/eb/tile.h"
#include "support/codec/isas.h"
#include "support/effort.h"
#include "support/guarded.h"

static isa_list isas;

static inline int group_setup(void **state) {
    (void)state;
    isas = isa_list_get();
    isa_list_print();
    return 0;
}

static inline int is_valid(const tile_padding *p, int linear) {
    return p->all_valid || (p->valid[linear / 8] >> (linear % 8) & 1);
}

static inline size_t code_bytes(int wide) {
    return wide ? sizeof(tile_codes) : sizeof(tile_codes) / 2;
}

#endif

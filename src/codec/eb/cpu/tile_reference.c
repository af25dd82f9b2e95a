/* SPDX-License-Identifier: Apache-2.0 */
/* The tile in plain C for any machine, and the choice between the instruction sets. */
#include "codec/eb/cpu/tile_generic.h"

DEFINE_TILE_KERNELS(comet_tile_reference);

const tile_kernels *comet_tile_kernels(comet_isa isa) {
#if defined(COMET_X86_64)
    if (isa == COMET_ISA_AVX512)
        return &comet_tile_avx512;
    if (isa == COMET_ISA_AVX2)
        return &comet_tile_avx2;
#endif
    (void)isa;
    return &comet_tile_reference;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The tile with AVX2: tile_generic.h compiled for it. */
#include "codec/cpu/tile_generic.h"

DEFINE_TILE_KERNELS(comet_tile_avx2);

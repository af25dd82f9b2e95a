/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work on one tile in portable C, to be included by one file for each instruction set. That file may define any of
 * the HAVE_ macros of the parts before including this and give its own version of the function; what it leaves is
 * compiled from here with its compiler flags. Everything is static. docs/format.md says what is computed.
 */
#ifndef COMET_CODEC_CPU_TILE_GENERIC_H
#define COMET_CODEC_CPU_TILE_GENERIC_H

#include "codec/eb/cpu/generic_pack.h"
#include "codec/eb/cpu/generic_quantise.h"
#include "codec/eb/cpu/generic_residuals.h"
#include "codec/eb/cpu/generic_values.h"

#define DEFINE_TILE_KERNELS(name)                                                                                      \
    const tile_kernels name = {.gather = gather,                                                                       \
                               .scatter = scatter,                                                                     \
                               .to_f32 = to_f32,                                                                       \
                               .of_f32 = of_f32,                                                                       \
                               .scale = scale,                                                                         \
                               .count_upper = count_upper,                                                             \
                               .survey = survey,                                                                       \
                               .quantise = quantise,                                                                   \
                               .encode = encode,                                                                       \
                               .decode = decode,                                                                       \
                               .dequantise = dequantise}

#endif

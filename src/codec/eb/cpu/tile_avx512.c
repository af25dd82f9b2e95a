/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tile with AVX-512 (VBMI, VBMI2, BITALG, VPOPCNTDQ, GFNI). What is not here is tile_generic.h compiled for
 * AVX-512.
 *
 * Folding a residual is linear over GF(2), and turning eight bytes into eight bytes of bit-planes is the transpose of
 * an 8 x 8 bit matrix: both are one GFNI instruction. Columns are packed with vpcompressb into a register and stored
 * whole (compressing to memory is microcoded on some processors).
 */
#define HAVE_CONVERT
#define HAVE_SURVEY
#define HAVE_ORDER
#define HAVE_QUANTISE
#define HAVE_DEQUANTISE
#define HAVE_COLUMNS
#define HAVE_TRANSPOSE
#define HAVE_ENCODE
#define HAVE_DECODE

/* Declared here, since tile_generic.h calls what it leaves to this file. */
#include "codec/eb/cpu/avx512_planes.h"
#include "codec/eb/tile.h"

static void to_f32(comet_dtype dtype, const void *patterns, int count, float *values);
static void of_f32(comet_dtype dtype, const float *values, int count, void *patterns);
static void survey(const float *v, tile_order order, survey_order sums, const tile_padding *padding, tile_survey *s);
static void linear_of_interleaved(const int8_t *from, int8_t *to);
static void interleaved_of_linear(const int8_t *from, int8_t *to);
static void quantise(const float *v, tile_order order, const tile_quantise *how, tile_codes *codes);
static void dequantise(const tile_codes *codes, tile_order order, const tile_quantise *how, float *v);
static int encode(const tile_codes *codes, int chained, unsigned class_index, const tile_padding *padding, uint8_t *out,
                  int *predicted);
static int decode(const uint8_t *tile, int bytes, int chained, tile_codes *codes, unsigned *class_index);

#include "codec/eb/cpu/tile_generic.h"
/* and these are built on it */
#include "codec/eb/cpu/avx512_pack.h"
#include "codec/eb/cpu/avx512_quantise.h"
#include "codec/eb/cpu/avx512_unpack.h"
#include "codec/eb/cpu/avx512_values.h"

DEFINE_TILE_KERNELS(comet_tile_avx512);

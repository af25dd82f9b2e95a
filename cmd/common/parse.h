/* SPDX-License-Identifier: Apache-2.0 */
/* Values of options from their text. Each says what is wrong, naming `option`, and returns MISUSED. */
#ifndef COMET_CMD_PARSE_H
#define COMET_CMD_PARSE_H

#include <stdint.h>

#include "comet/comet.h"

/* A finite number, 0 or more. */
int parse_number(const char *option, const char *text, double *value);

/* An integer from low to high. */
int parse_integer(const char *option, const char *text, int64_t low, int64_t high, int64_t *value);

/* Any 64-bit number, decimal or 0x... */
int parse_seed(const char *option, const char *text, uint64_t *value);

/* "2GiB", "500MB", "1.5g", "4096": above 0. K, M, G, T alone are powers of 1024, KB .. TB of 1000. */
int parse_bytes(const char *option, const char *text, size_t *bytes);

int parse_dtype(const char *option, const char *text, comet_dtype *dtype);    /* f32, f16, bf16, u8 */
int parse_layout(const char *option, const char *text, comet_layout *layout); /* nchw, nhwc, flat */
int parse_isa(const char *option, const char *text, comet_isa *isa);          /* auto, avx512, avx2, reference */

/* "8,64,80,80": up to COMET_MAX_DIMS extents. */
int parse_shape(const char *option, const char *text, int32_t *ndim, int64_t *shape);

/* "a,b,c", split; the texts live as long as the list. */
enum { LIST_MAX = 32, LIST_TEXT_MAX = 512 };
typedef struct text_list {
    char text[LIST_TEXT_MAX];
    const char *items[LIST_MAX];
    int count;
} text_list;
int parse_list(const char *option, const char *text, text_list *list);

const char *layout_name(comet_layout layout);
const char *isa_name(comet_isa isa);

/* "f32" and so on, as the options spell them. */
const char *dtype_option(comet_dtype dtype);

#endif

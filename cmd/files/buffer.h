/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes the command owns, aligned to 64. */
#ifndef COMET_CMD_BUFFER_H
#define COMET_CMD_BUFFER_H

#include <stddef.h>
#include <stdint.h>

typedef struct buffer {
    uint8_t *data;
    size_t bytes;
} buffer;

/* Bytes are not set. 1, or 0 and a zeroed buffer when there is no memory. bytes 0 still gives a pointer. */
int buffer_try(buffer *b, size_t bytes);

/* The same; says so and returns FAILED when there is no memory. */
int buffer_take(buffer *b, size_t bytes);

/* A zeroed buffer is allowed. */
void buffer_give(buffer *b);

/* 1 if it has, or can be given, `bytes` bytes, else 0. What was in it is lost when it grows; new pages are touched. */
int buffer_reserve(buffer *b, size_t bytes);

#endif

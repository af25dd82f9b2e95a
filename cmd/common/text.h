/* SPDX-License-Identifier: Apache-2.0 */
/* Text for people: UTF-8, sizes, shapes. */
#ifndef COMET_CMD_TEXT_H
#define COMET_CMD_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the UTF-8 character at `text`: 1 to 4; 0 at the end and where it is not well formed. */
int text_utf8_length(const char *text);

int text_is_utf8(const char *text);

/* A copy that can go to a terminal: control characters and damaged UTF-8 become '?'. Returns `copy`. */
const char *text_printable(const char *text, char *copy, size_t capacity);

/* "12.3 MiB". Returns `text`. */
const char *text_size(uint64_t bytes, char *text, size_t capacity);

/* Of what could not be measured, 0: "not measured". Returns `text`. */
const char *text_measured(uint64_t bytes, char *text, size_t capacity);

/* The same in five characters at most: "12.3M". Returns `text`. */
const char *text_size_short(uint64_t bytes, char *text, size_t capacity);

/* "8x64x80x80", "scalar". Returns `text`. */
const char *text_shape(int32_t ndim, const int64_t *shape, char *text, size_t capacity);

/* "1 min 20 s". Returns `text`. */
const char *text_duration(double seconds, char *text, size_t capacity);

/* The same as a clock has it: "1:20", "2:05:00". Returns `text`. */
const char *text_clock(double seconds, char *text, size_t capacity);

#endif

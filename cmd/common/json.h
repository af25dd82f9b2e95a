/* SPDX-License-Identifier: Apache-2.0 */
/* JSON on a FILE, indented. Strings are escaped, damaged UTF-8 replaced; numbers that are not finite become null. */
#ifndef COMET_CMD_JSON_H
#define COMET_CMD_JSON_H

#include <stdint.h>
#include <stdio.h>

typedef struct json {
    FILE *file;
    int depth;
    int filled;  /* the innermost object or array has a member */
    int compact; /* depth from which members share a line; 0: none */
} json;

/*
 * `key` is NULL inside arrays and at the top. Compact objects and arrays, and all in them, stay on one line.
 * The caller opens and closes in order.
 */
void json_open(json *j, const char *key, char bracket, int compact);
void json_close(json *j, char bracket);

void json_string(json *j, const char *key, const char *value);
void json_integer(json *j, const char *key, int64_t value);
void json_number(json *j, const char *key, double value);
void json_bool(json *j, const char *key, int value);
void json_null(json *j, const char *key);
void json_integers(json *j, const char *key, int count, const int64_t *values);
void json_numbers(json *j, const char *key, size_t count, const double *values);

#endif

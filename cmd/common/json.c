/* SPDX-License-Identifier: Apache-2.0 */
/* Writing JSON (RFC 8259). */
#include "cmd/common/json.h"

#include <math.h>
#include <stdlib.h>

#include "cmd/common/text.h"

static void put_character(FILE *file, const char *text, int length) {
    if (length == 0)
        fputs("\\ufffd", file);
    else if (*text == '"' || *text == '\\')
        fprintf(file, "\\%c", *text);
    else if ((unsigned char)*text < 0x20)
        fprintf(file, "\\u%04x", (unsigned)*text);
    else
        fwrite(text, 1, (size_t)length, file);
}

static void put_text(FILE *file, const char *text) {
    fputc('"', file);
    while (*text) {
        int length = text_utf8_length(text);
        put_character(file, text, length);
        text += length ? length : 1;
    }
    fputc('"', file);
}

static void new_line(const json *j) {
    fprintf(j->file, "\n%*s", 2 * j->depth, "");
}

/* What comes before a value: comma, line, key. */
static void begin(json *j, const char *key) {
    if (j->filled)
        fputc(',', j->file);
    if (j->depth > 0 && !j->compact)
        new_line(j);
    else if (j->filled)
        fputc(' ', j->file);
    if (key) {
        put_text(j->file, key);
        fputs(": ", j->file);
    }
    j->filled = 1;
}

void json_open(json *j, const char *key, char bracket, int compact) {
    begin(j, key);
    fputc(bracket, j->file);
    j->depth++;
    j->filled = 0;
    if (compact && !j->compact)
        j->compact = j->depth;
}

void json_close(json *j, char bracket) {
    j->depth--;
    if (j->filled && !j->compact)
        new_line(j);
    if (j->compact > j->depth)
        j->compact = 0;
    fputc(bracket, j->file);
    j->filled = 1;
    if (j->depth == 0)
        fputc('\n', j->file);
}

void json_string(json *j, const char *key, const char *value) {
    begin(j, key);
    put_text(j->file, value);
}

void json_integer(json *j, const char *key, int64_t value) {
    begin(j, key);
    fprintf(j->file, "%lld", (long long)value);
}

/* The shortest text that reads back as the same number. */
void json_number(json *j, const char *key, double value) {
    begin(j, key);
    if (!isfinite(value)) {
        fputs("null", j->file);
        return;
    }
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fputs(text, j->file);
}

void json_bool(json *j, const char *key, int value) {
    begin(j, key);
    fputs(value ? "true" : "false", j->file);
}

void json_null(json *j, const char *key) {
    begin(j, key);
    fputs("null", j->file);
}

void json_integers(json *j, const char *key, int count, const int64_t *values) {
    json_open(j, key, '[', 1);
    for (int i = 0; i < count; i++)
        json_integer(j, NULL, values[i]);
    json_close(j, ']');
}

void json_numbers(json *j, const char *key, size_t count, const double *values) {
    json_open(j, key, '[', 1);
    for (size_t i = 0; i < count; i++)
        json_number(j, NULL, values[i]);
    json_close(j, ']');
}

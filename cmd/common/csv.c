/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/common/csv.h"

#include <math.h>
#include <string.h>

static void begin(csv *c) {
    if (c->filled)
        fputc(',', c->file);
    c->filled = 1;
}

void csv_text(csv *c, const char *text) {
    begin(c);
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, c->file);
        return;
    }
    fputc('"', c->file);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', c->file);
        fputc(*text, c->file);
    }
    fputc('"', c->file);
}

void csv_integer(csv *c, int64_t value) {
    begin(c);
    fprintf(c->file, "%lld", (long long)value);
}

void csv_number(csv *c, double value) {
    begin(c);
    if (isfinite(value))
        fprintf(c->file, "%.9g", value);
}

void csv_end(csv *c) {
    fputc('\n', c->file);
    c->filled = 0;
}

void csv_head(csv *c, const char *names) {
    fprintf(c->file, "%s\n", names);
}

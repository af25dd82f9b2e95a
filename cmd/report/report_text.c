/* SPDX-License-Identifier: Apache-2.0 */
/* Text and numbers that are safe in HTML and in the XML of a drawing. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/text.h"
#include "cmd/report/report_impl.h"

static const char *entity(char c) {
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

/* Some characters no escape makes legal in XML: controls, U+FFFE and U+FFFF. */
static int is_legal(const char *text, int length) {
    unsigned char c = (unsigned char)*text;
    if (length == 3)
        return memcmp(text, "\xef\xbf\xbe", 3) != 0 && memcmp(text, "\xef\xbf\xbf", 3) != 0;
    return length > 1 || (length == 1 && (c >= 0x20 || c == '\t' || c == '\n') && c != 0x7f);
}

/* Bytes taken from `text`. */
static int put_character(report *r, const char *text) {
    int length = text_utf8_length(text);
    if (!is_legal(text, length))
        fputs("\uFFFD", r->file);
    else if (length == 1 && entity(*text))
        fputs(entity(*text), r->file);
    else
        fwrite(text, 1, (size_t)length, r->file);
    return length ? length : 1;
}

int report_characters(const char *text) {
    int count = 0;
    for (; text && *text; count++) {
        int length = text_utf8_length(text);
        text += length ? length : 1;
    }
    return count;
}

void report_put_short(report *r, const char *text, int most) {
    int all = report_characters(text);
    int whole = all <= most ? all : most - 1;
    for (int i = 0; i < whole; i++)
        text += put_character(r, text);
    if (all > most)
        fputs("\u2026", r->file);
}

void report_put(report *r, const char *text) {
    report_put_short(r, text, INT_MAX);
}

/* "1.500e+07" as "1.5e7". */
static void shorten(char *digits) {
    char *mark = strchr(digits, 'e'), *end = mark;
    int power = atoi(mark + 1);
    while (end[-1] == '0')
        end--;
    if (end[-1] == '.')
        end--;
    sprintf(end, "e%d", power);
}

const char *report_number(double value, char text[REPORT_NUMBER]) {
    if (!isfinite(value))
        return strcpy(text, "n/a");
    double size = fabs(value);
    char digits[REPORT_NUMBER - 4];
    if (size != 0 && (size < 1e-4 || size >= 1e6)) {
        snprintf(digits, sizeof digits, "%.3e", size);
        shorten(digits);
    } else {
        snprintf(digits, sizeof digits, size >= 1000 ? "%.0f" : "%.4g", size);
    }
    snprintf(text, REPORT_NUMBER, "%s%s", value < 0 ? "\u2212" : "", digits);
    return text;
}

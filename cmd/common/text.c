/* SPDX-License-Identifier: Apache-2.0 */
/* Text for people. */
#include "cmd/common/text.h"

#include <stdio.h>
#include <string.h>

int text_utf8_length(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    if (*c == 0)
        return 0;
    if (*c < 0x80)
        return 1;
    int length = *c >= 0xf0 ? 4 : *c >= 0xe0 ? 3 : 2;
    if (*c < 0xc2 || *c > 0xf4)
        return 0;
    for (int i = 1; i < length; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    int overlong = (*c == 0xe0 && c[1] < 0xa0) || (*c == 0xf0 && c[1] < 0x90);
    int outside = (*c == 0xed && c[1] >= 0xa0) || (*c == 0xf4 && c[1] >= 0x90); /* surrogates; beyond U+10FFFF */
    return overlong || outside ? 0 : length;
}

int text_is_utf8(const char *text) {
    while (*text) {
        int length = text_utf8_length(text);
        if (length == 0)
            return 0;
        text += length;
    }
    return 1;
}

const char *text_printable(const char *text, char *copy, size_t capacity) {
    size_t used = 0;
    while (*text && used + 4 < capacity) {
        int length = text_utf8_length(text);
        int control = (unsigned char)*text < 0x20 || *text == 0x7f;
        if (length == 0 || control)
            copy[used] = '?';
        else
            memcpy(copy + used, text, (size_t)length);
        used += length ? (size_t)length : 1;
        text += length ? length : 1;
    }
    copy[used] = '\0';
    return copy;
}

const char *text_size(uint64_t bytes, char *text, size_t capacity) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 6; unit++)
        value /= 1024;
    snprintf(text, capacity, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

const char *text_measured(uint64_t bytes, char *text, size_t capacity) {
    if (bytes > 0)
        return text_size(bytes, text, capacity);
    snprintf(text, capacity, "not measured");
    return text;
}

const char *text_size_short(uint64_t bytes, char *text, size_t capacity) {
    static const char units[] = "BKMGTPE";
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1000 && unit < 6; unit++) /* 1000 of a unit would take a fifth character */
        value /= 1024;
    snprintf(text, capacity, "%.*f%c", unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, value, units[unit]);
    return text;
}

const char *text_shape(int32_t ndim, const int64_t *shape, char *text, size_t capacity) {
    snprintf(text, capacity, "scalar");
    size_t used = 0;
    for (int32_t d = 0; d < ndim && used < capacity; d++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%lld", d ? "x" : "", (long long)shape[d]);
    return text;
}

const char *text_duration(double seconds, char *text, size_t capacity) {
    long whole = (long)(seconds + 0.5);
    if (whole < 60)
        snprintf(text, capacity, "%ld s", whole);
    else if (whole < 3600)
        snprintf(text, capacity, "%ld min %ld s", whole / 60, whole % 60);
    else
        snprintf(text, capacity, "%ld h %ld min", whole / 3600, whole % 3600 / 60);
    return text;
}

const char *text_clock(double seconds, char *text, size_t capacity) {
    long whole = (long)(seconds + 0.5);
    if (whole < 3600)
        snprintf(text, capacity, "%ld:%02ld", whole / 60, whole % 60);
    else
        snprintf(text, capacity, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    return text;
}

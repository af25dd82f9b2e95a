/* SPDX-License-Identifier: Apache-2.0 */
#include "support/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int failure_set(failure *f, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(f->text, sizeof f->text, format, arguments);
    va_end(arguments);
    return 0;
}

int failure_prefix(failure *f, const char *format, ...) {
    char before[sizeof f->text];
    memcpy(before, f->text, sizeof before);
    before[512] = '\0';
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(f->text, sizeof f->text - 520, format, arguments);
    va_end(arguments);
    strcat(f->text, ": ");
    strcat(f->text, before);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In place of cmd/common/message.c: what the command would say is written out, but not printed: most inputs are
 * refused.
 */
#include "cmd/common/message.h"

#include <stdarg.h>
#include <stdio.h>

#include "cmd/common/command.h"

static char text[1024];

#define FORMAT_TEXT(format)                                                                                            \
    va_list arguments;                                                                                                 \
    va_start(arguments, format);                                                                                       \
    vsnprintf(text, sizeof text, format, arguments);                                                                   \
    va_end(arguments)

void message_command(const char *name) {
    (void)name;
}

int fail(const char *format, ...) {
    FORMAT_TEXT(format);
    return FAILED;
}

int misuse(const char *format, ...) {
    FORMAT_TEXT(format);
    return MISUSED;
}

void note(const char *format, ...) {
    FORMAT_TEXT(format);
}

int fail_memory(void) {
    return FAILED;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Lines on standard error. */
#include "cmd/common/message.h"

#include <stdarg.h>
#include <stdio.h>

#include "cmd/common/command.h"

static const char *command_name = "";

void message_command(const char *name) {
    command_name = name;
}

/* Names come from files and archives: a control character in one must not reach the terminal or break the line. */
static void print_line(const char *format, va_list arguments, const char *ending) {
    char text[1024];
    vsnprintf(text, sizeof text, format, arguments);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    fprintf(stderr, "comet: %s%s\n", text, ending);
}

int fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_line(format, arguments, "");
    va_end(arguments);
    return FAILED;
}

int misuse(const char *format, ...) {
    char hint[64];
    snprintf(hint, sizeof hint, "; see 'comet %s%s--help'", command_name, *command_name ? " " : "");
    va_list arguments;
    va_start(arguments, format);
    print_line(format, arguments, hint);
    va_end(arguments);
    return MISUSED;
}

void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_line(format, arguments, "");
    va_end(arguments);
}

int fail_memory(void) {
    return fail("not enough memory");
}

const char *why(comet_status status) {
    const char *reason = comet_last_error();
    return *reason ? reason : comet_status_string(status);
}

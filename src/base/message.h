/* SPDX-License-Identifier: Apache-2.0 */
/* One line for people, beside the status of a call: what is wrong and what to do. */
#ifndef COMET_BASE_MESSAGE_H
#define COMET_BASE_MESSAGE_H

#include <stdarg.h>

#include "comet/status.h"

typedef struct comet_message {
    char text[640];
} comet_message;

/*
 * Writes the line and returns `status`, so that a failure is one statement. message may be NULL. Control characters
 * (names come from files) become '?'.
 */
comet_status comet_message_set(comet_message *message, comet_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same from a list; message is not NULL. */
void comet_message_set_list(comet_message *message, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/* comet_message_set for memory. */
comet_status comet_message_memory(comet_message *message);

#endif

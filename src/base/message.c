/* SPDX-License-Identifier: Apache-2.0 */
#include "base/message.h"

#include <stdio.h>

void comet_message_set_list(comet_message *message, const char *format, va_list arguments) {
    vsnprintf(message->text, sizeof message->text, format, arguments);
    for (char *c = message->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

comet_status comet_message_set(comet_message *message, comet_status status, const char *format, ...) {
    if (!message)
        return status;
    va_list arguments;
    va_start(arguments, format);
    comet_message_set_list(message, format, arguments);
    va_end(arguments);
    return status;
}

comet_status comet_message_memory(comet_message *message) {
    return comet_message_set(message, COMET_ERROR_MEMORY, "not enough memory");
}

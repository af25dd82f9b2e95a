/* SPDX-License-Identifier: Apache-2.0 */
/* The reason of a thread's last failure: the one thing that the library keeps outside of what its caller holds. */
#include "base/fail.h"

#include <stdarg.h>

#include "base/message.h"

static _Thread_local comet_message last;

void comet_begin(void) {
    last.text[0] = '\0';
}

comet_status comet_fail(comet_status status, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    comet_message_set_list(&last, format, arguments);
    va_end(arguments);
    return status;
}

comet_status comet_end(comet_status status) {
    if (status == COMET_OK)
        comet_begin();
    return status;
}

const char *comet_last_error(void) {
    return last.text;
}

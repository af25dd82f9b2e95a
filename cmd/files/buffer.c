/* SPDX-License-Identifier: Apache-2.0 */
/* Aligned memory. */
#include "cmd/files/buffer.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"

int buffer_try(buffer *b, size_t bytes) {
    *b = (buffer){0};
    if (bytes < SIZE_MAX / 2)
        b->data = aligned_alloc(64, (bytes / 64 + 1) * 64);
    if (b->data)
        b->bytes = bytes;
    return b->data != NULL;
}

int buffer_take(buffer *b, size_t bytes) {
    return buffer_try(b, bytes) ? DONE : fail("not enough memory for %zu bytes", bytes);
}

void buffer_give(buffer *b) {
    free(b->data);
    *b = (buffer){0};
}

int buffer_reserve(buffer *b, size_t bytes) {
    if (b->data && b->bytes >= bytes)
        return 1;
    buffer_give(b);
    if (!buffer_try(b, bytes))
        return 0;
    memset(b->data, 1, bytes);
    return 1;
}

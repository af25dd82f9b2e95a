/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sized.h"

#include <string.h>

enum { LEAST = 2 * sizeof(size_t), MOST = 4096 };

static size_t size_of(const void *given) {
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

int comet_sized_is_valid(const void *given) {
    size_t size = size_of(given);
    return size >= LEAST && size <= MOST;
}

int comet_sized_read(void *copy, size_t known, const void *given, const void *defaults) {
    memcpy(copy, defaults, known);
    if (!given)
        return 1;
    if (!comet_sized_is_valid(given))
        return 0;
    size_t size = size_of(given);
    for (size_t i = known; i < size; i++)
        if (((const char *)given)[i])
            return 0;
    memcpy(copy, given, size < known ? size : known);
    return 1;
}

void comet_sized_write(void *given, const void *from, size_t known) {
    size_t size = size_of(given), same = size < known ? size : known;
    memcpy(given, from, same);
    memset((char *)given + same, 0, size - same);
    memcpy(given, &size, sizeof size);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sized.h"

#include <string.h>

#include "base/fail.h"

enum { LEAST = 2 * sizeof(size_t), MOST = 4096 };

static size_t size_of(const void *given) {
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

comet_status comet_sized_check(const void *given, const char *name) {
    COMET_REQUIRE(given, "%s is NULL", name);
    size_t size = size_of(given);
    COMET_REQUIRE(size >= LEAST && size <= MOST, "%s->size is %zu: start from its initializer", name, size);
    return COMET_OK;
}

comet_status comet_sized_read(void *copy, size_t known, const void *given, const void *defaults, const char *name) {
    memcpy(copy, defaults, known);
    if (!given)
        return COMET_OK;
    COMET_TRY(comet_sized_check(given, name));
    size_t size = size_of(given);
    for (size_t i = known; i < size; i++)
        COMET_REQUIRE(!((const char *)given)[i],
                      "%s->size is %zu, and byte %zu is set, which this library does not know", name, size, i);
    memcpy(copy, given, size < known ? size : known);
    return COMET_OK;
}

void comet_sized_write(void *given, const void *from, size_t known) {
    size_t size = size_of(given), same = size < known ? size : known;
    memcpy(given, from, same);
    memset((char *)given + same, 0, size - same);
    memcpy(given, &size, sizeof size);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* PNG files: any type, interlaced or not. The checksums of chunks are put right first, as no fuzzer would find them. */
#include "common/image.h"

#include <zlib.h>

static uint32_t big_u32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_big_u32(uint8_t *p, uint32_t value) {
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Length, name, content, checksum; the last chunk may be cut short. */
static void mend(uint8_t *file, size_t size) {
    size_t at = 8;
    while (at < size && size - at >= 12) {
        size_t length = big_u32(file + at);
        if (length > size - at - 12)
            return;
        put_big_u32(file + at + 8 + length, (uint32_t)crc32_z(0, file + at + 4, length + 4));
        at += 12 + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *file = malloc(size ? size : 1);
    EXPECT(file != NULL);
    if (size)
        memcpy(file, data, size);
    mend(file, size);
    image_check(folder_put("image", file, size));
    free(file);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a checkpoint is damaged or holds values that are not finite, without a network to read it into. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <zlib.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/checkpoint/checkpoint_impl.h"

enum { PIECE = 1 << 16 };

static int is_finite(const float *values, uint64_t count) {
    int finite = 1;
    for (uint64_t i = 0; i < count; i++)
        finite &= isfinite(values[i]) != 0;
    return finite;
}

static comet_status sum_tensor(const comet_safetensors *file, const comet_safetensors_entry *entry, void *piece,
                               uint32_t *sum) {
    uLong crc = comet_checkpoint_sum_data(entry->name, NULL, 0);
    for (uint64_t at = 0, bytes; at < entry->bytes; at += bytes) {
        bytes = entry->bytes - at < PIECE ? entry->bytes - at : PIECE;
        COMET_TRY(comet_safetensors_read(file, entry, at, bytes, piece, NULL));
        if (entry->type == COMET_SAFETENSORS_F32 && !is_finite(piece, bytes / sizeof(float)))
            return COMET_ERROR_DIVERGED;
        crc = crc32_z(crc, piece, (size_t)bytes);
    }
    *sum += (uint32_t)crc;
    return COMET_OK;
}

static int sum_file(const comet_safetensors *file, void *piece) {
    const char *expected = comet_safetensors_metadata(file, comet_checkpoint_text_keys[COMET_TEXT_CHECKSUM]);
    uint32_t sum = 0;
    char text[16];
    for (int i = 0; i < COMET_TEXT_CHECKSUM; i++) {
        const char *value = comet_safetensors_metadata(file, comet_checkpoint_text_keys[i]);
        if (!value)
            return 0;
        sum += comet_checkpoint_sum_text(comet_checkpoint_text_keys[i], value);
    }
    for (size_t i = 0; i < comet_safetensors_count(file); i++)
        if (sum_tensor(file, comet_safetensors_at(file, i), piece, &sum) != COMET_OK)
            return 0;
    snprintf(text, sizeof text, "%08" PRIx32, sum);
    return expected && strcmp(text, expected) == 0;
}

comet_status comet_checkpoint_is_whole(const char *path, const comet_allocator *allocator, int *whole) {
    comet_safetensors *file = NULL;
    comet_message unread;
    *whole = 0;
    void *piece = comet_memory_take(allocator, PIECE);
    if (!piece)
        return COMET_ERROR_MEMORY;
    comet_status status = comet_safetensors_open(path, allocator, &file, &unread);
    if (status == COMET_OK)
        *whole = sum_file(file, piece);
    comet_safetensors_close(file);
    comet_memory_give(allocator, piece, PIECE);
    return status == COMET_ERROR_MEMORY ? status : COMET_OK;
}

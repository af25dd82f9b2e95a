/* SPDX-License-Identifier: Apache-2.0 */
/* Entries on their way to the spill file and back. */
#include <zlib.h>

#include "base/access.h"
#include "base/bits.h"
#include "base/fail.h"
#include "store/host/store.h"

static uint32_t checksum_of(uint32_t sum, const void *data, size_t bytes) {
    return bytes ? (uint32_t)crc32_z(sum, data, bytes) : sum;
}

static comet_status place(comet_store *s, size_t bytes, spill_extent **extent) {
    pthread_mutex_lock(&s->lock);
    spill_extent *unused = NULL, *spare = comet_store_take_locked(s, sizeof *spare);
    comet_status status = spare ? comet_spill_place(&s->spill, bytes, spare, extent, &unused) : COMET_ERROR_MEMORY;
    comet_store_give_locked(s, unused, sizeof *unused);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void free_extent_locked(comet_store *s, spill_extent *extent) {
    spill_extent *unused[3];
    comet_spill_free(&s->spill, extent, unused);
    for (int i = 0; i < 3; i++)
        comet_store_give_locked(s, unused[i], sizeof *unused[i]);
}

void comet_store_extent_free_locked(comet_store *s, store_entry *entry) {
    if (entry->extent)
        free_extent_locked(s, entry->extent);
    entry->extent = NULL;
}

/* A tensor with gaps, packed piece by piece. */
static comet_status write_pieces(const comet_store *s, const spill_extent *extent, const comet_tensor *tensor,
                                 uint32_t *sum) {
    char piece[STORE_PIECE_BYTES];
    size_t size = comet_dtype_size(tensor->dtype);
    int64_t count = comet_tensor_count(tensor), most = (int64_t)(sizeof piece / size);
    comet_status status = COMET_OK;
    for (int64_t first = 0; first < count && status == COMET_OK; first += most) {
        int64_t n = comet_min_i64(most, count - first);
        comet_access_load_bits(tensor, first, n, piece);
        if (s->spill_checksum)
            *sum = checksum_of(*sum, piece, (size_t)n * size);
        status = comet_spill_write(&s->spill, extent, (uint64_t)first * size, piece, (size_t)n * size);
    }
    return status;
}

comet_status comet_store_offload(comet_store *s, store_entry *entry, const comet_tensor *tensor, const void *data,
                                 size_t bytes) {
    spill_extent *extent = NULL;
    uint32_t sum = 0;
    comet_status status = place(s, bytes ? bytes : 1, &extent);
    if (status != COMET_OK)
        return status;
    if (data) {
        if (s->spill_checksum)
            sum = checksum_of(0, data, bytes);
        status = comet_spill_write(&s->spill, extent, 0, data, bytes);
    } else {
        status = write_pieces(s, extent, tensor, &sum);
    }
    pthread_mutex_lock(&s->lock);
    if (status == COMET_OK) {
        entry->extent = extent;
        entry->checksum = sum;
    } else {
        free_extent_locked(s, extent);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

store_source comet_store_source_locked(const store_entry *entry) {
    return (store_source){entry->memory, entry->extent, (size_t)entry->bytes.stored, entry->checksum};
}

static comet_status verify(const comet_store *s, const store_source *source, uint32_t sum) {
    return s->spill_checksum && sum != source->checksum ? COMET_ERROR_CHECKSUM : COMET_OK;
}

comet_status comet_store_fetch(const comet_store *s, const store_source *source, void *data) {
    comet_status status = comet_spill_read(&s->spill, source->extent, 0, data, source->stored);
    if (status != COMET_OK || !s->spill_checksum)
        return status;
    return verify(s, source, checksum_of(0, data, source->stored));
}

comet_status comet_store_fetch_tensor(const comet_store *s, const store_source *source, const comet_tensor *tensor) {
    if (comet_tensor_is_contiguous(tensor))
        return comet_store_fetch(s, source, tensor->data);
    char piece[STORE_PIECE_BYTES];
    uint32_t sum = 0;
    size_t size = comet_dtype_size(tensor->dtype);
    int64_t count = comet_tensor_count(tensor), most = (int64_t)(sizeof piece / size);
    for (int64_t first = 0; first < count; first += most) {
        int64_t n = comet_min_i64(most, count - first);
        uint64_t at = (uint64_t)first * size;
        COMET_TRY(comet_spill_read(&s->spill, source->extent, at, piece, (size_t)n * size));
        if (s->spill_checksum)
            sum = checksum_of(sum, piece, (size_t)n * size);
        comet_access_store_bits(tensor, first, n, piece);
    }
    return verify(s, source, sum);
}

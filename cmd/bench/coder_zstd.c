/* SPDX-License-Identifier: Apache-2.0 */
/* zstd as a peer: lossless, level 1, one thread, contexts reused. */
#include "cmd/bench/coder.h"

#ifdef COMET_HAVE_ZSTD

#include <stdlib.h>
#include <zstd.h>

typedef struct contexts {
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
} contexts;

enum { LEVEL = 1 };

static void zstd_release(coder *c) {
    contexts *z = c->state;
    if (!z)
        return;
    ZSTD_freeCCtx(z->compress);
    ZSTD_freeDCtx(z->decompress);
    free(z);
    c->state = NULL;
}

static size_t bytes_of(const comet_tensor *tensor) {
    return (size_t)comet_tensor_count(tensor) * comet_dtype_size(tensor->dtype);
}

static comet_status zstd_prepare(coder *c, const comet_tensor *tensor) {
    (void)tensor;
    contexts *z = c->state = calloc(1, sizeof *z);
    if (!z)
        return COMET_ERROR_MEMORY;
    z->compress = ZSTD_createCCtx();
    z->decompress = ZSTD_createDCtx();
    return z->compress && z->decompress ? COMET_OK : COMET_ERROR_MEMORY;
}

static comet_status zstd_capacity(coder *c, const comet_tensor *tensor, size_t *bytes) {
    (void)c;
    *bytes = ZSTD_compressBound(bytes_of(tensor));
    return COMET_OK;
}

static comet_status zstd_compress(coder *c, const comet_tensor *tensor, void *stream, size_t capacity, size_t *bytes) {
    contexts *z = c->state;
    *bytes = ZSTD_compressCCtx(z->compress, stream, capacity, tensor->data, bytes_of(tensor), LEVEL);
    return ZSTD_isError(*bytes) ? COMET_ERROR_CAPACITY : COMET_OK;
}

static comet_status zstd_decompress(coder *c, const void *stream, size_t bytes, const comet_tensor *tensor) {
    contexts *z = c->state;
    size_t made = ZSTD_decompressDCtx(z->decompress, tensor->data, bytes_of(tensor), stream, bytes);
    return made == bytes_of(tensor) ? COMET_OK : COMET_ERROR_CORRUPT;
}

static const coder_kind kind = {zstd_prepare, zstd_capacity, zstd_compress, zstd_decompress, zstd_release};
const coder_kind *const coder_zstd = &kind;

#else

const coder_kind *const coder_zstd = NULL;

#endif

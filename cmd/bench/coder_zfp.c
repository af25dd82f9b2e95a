/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zfp as a peer: fixed accuracy mode with the absolute bound as tolerance, serial. Fields are the tensor's lines, its
 * maps, or stacks of maps, whichever is smallest for the tensor. Its bytes are counted without a header.
 */
#include "cmd/bench/coder.h"

#ifdef COMET_HAVE_ZFP

#include <zfp.h>

/* The tensor as a field of `dimensions`: the innermost extents as they are, the rest in one. */
static zfp_field *field_of(const comet_tensor *tensor, int dimensions) {
    size_t extent[3] = {1, 1, 1};
    for (int32_t d = 0; d < tensor->ndim; d++) {
        int32_t from_inside = tensor->ndim - 1 - d;
        extent[from_inside < dimensions ? from_inside : dimensions - 1] *= (size_t)tensor->shape[d];
    }
    if (dimensions == 1)
        return zfp_field_1d(tensor->data, zfp_type_float, extent[0]);
    if (dimensions == 2)
        return zfp_field_2d(tensor->data, zfp_type_float, extent[0], extent[1]);
    return zfp_field_3d(tensor->data, zfp_type_float, extent[0], extent[1], extent[2]);
}

typedef struct session {
    zfp_field *field;
    zfp_stream *stream;
    bitstream *bits;
} session;

static int session_open(session *s, const coder *c, const comet_tensor *tensor, void *stream, size_t bytes) {
    s->field = field_of(tensor, c->dimensions);
    s->stream = zfp_stream_open(NULL);
    s->bits = stream_open(stream, bytes);
    if (!s->field || !s->stream || !s->bits)
        return 0;
    zfp_stream_set_accuracy(s->stream, c->bound);
    zfp_stream_set_bit_stream(s->stream, s->bits);
    zfp_stream_rewind(s->stream);
    return 1;
}

static void session_close(session *s) {
    if (s->bits)
        stream_close(s->bits);
    if (s->stream)
        zfp_stream_close(s->stream);
    if (s->field)
        zfp_field_free(s->field);
}

static comet_status zfp_capacity(coder *c, const comet_tensor *tensor, size_t *bytes) {
    char nothing[8];
    session s;
    if (tensor->dtype != COMET_F32 || !(c->bound > 0))
        return COMET_ERROR_UNSUPPORTED;
    comet_status status = COMET_ERROR_MEMORY;
    if (session_open(&s, c, tensor, nothing, sizeof nothing)) {
        *bytes = zfp_stream_maximum_size(s.stream, s.field);
        status = COMET_OK;
    }
    session_close(&s);
    return status;
}

static comet_status zfp_run(coder *c, const comet_tensor *tensor, void *stream, size_t capacity, size_t *bytes) {
    session s;
    comet_status status = COMET_ERROR_MEMORY;
    if (session_open(&s, c, tensor, stream, capacity)) {
        *bytes = zfp_compress(s.stream, s.field);
        status = *bytes ? COMET_OK : COMET_ERROR_CAPACITY;
    }
    session_close(&s);
    return status;
}

static comet_status zfp_run_back(coder *c, const void *stream, size_t bytes, const comet_tensor *tensor) {
    session s;
    comet_status status = COMET_ERROR_MEMORY;
    if (session_open(&s, c, tensor, (void *)(uintptr_t)stream, bytes))
        status = zfp_decompress(s.stream, s.field) ? COMET_OK : COMET_ERROR_CORRUPT;
    session_close(&s);
    return status;
}

/* Tries fields of 1, 2 and 3 dimensions and stays with the best. (A fourth, across channels or samples, is rough.) */
static comet_status zfp_prepare(coder *c, const comet_tensor *tensor) {
    size_t best = SIZE_MAX, capacity, bytes = 0;
    int chosen = 1;
    comet_status status = COMET_OK;
    for (c->dimensions = 1; c->dimensions <= 3 && status == COMET_OK; c->dimensions++) {
        buffer stream = {0};
        status = zfp_capacity(c, tensor, &capacity);
        if (status == COMET_OK && !buffer_try(&stream, capacity))
            status = COMET_ERROR_MEMORY;
        if (status == COMET_OK)
            status = zfp_run(c, tensor, stream.data, capacity, &bytes);
        if (status == COMET_OK && bytes < best) {
            best = bytes;
            chosen = c->dimensions;
        }
        buffer_give(&stream);
    }
    c->dimensions = chosen;
    return status;
}

static const coder_kind kind = {zfp_prepare, zfp_capacity, zfp_run, zfp_run_back, NULL};
const coder_kind *const coder_zfp = &kind;

#else

const coder_kind *const coder_zfp = NULL;

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* What the bench measures, behind one interface: Comet's codecs and the peers that were compiled in. */
#ifndef COMET_CMD_CODER_H
#define COMET_CMD_CODER_H

#include "cmd/bench/check.h"
#include "cmd/files/buffer.h"
#include "comet/codec.h"

typedef struct coder coder;

/* Tensors have no gaps. COMET_ERROR_UNSUPPORTED: this coder does not take such tensors. */
typedef struct coder_kind {
    /* Called once for a tensor and bound; `tensor` has values. NULL: nothing to do. */
    comet_status (*prepare)(coder *c, const comet_tensor *tensor);
    /* The most bytes that compressing takes. */
    comet_status (*capacity)(coder *c, const comet_tensor *tensor, size_t *bytes);
    comet_status (*compress)(coder *c, const comet_tensor *tensor, void *stream, size_t capacity, size_t *bytes);
    comet_status (*decompress)(coder *c, const void *stream, size_t bytes, const comet_tensor *tensor);
    /* Frees what `state` holds. NULL: nothing. */
    void (*release)(coder *c);
} coder_kind;

/* One way to code, as the user named it. */
typedef struct coder_spec {
    char label[16];            /* "eb", "group:4", "zfp" */
    const coder_kind *kind;    /* NULL: not compiled in */
    comet_codec_params params; /* Comet's: all but the bound */
    check_kind promise;
} coder_spec;

struct coder {
    const coder_spec *spec;
    comet_codec_params params;
    comet_codec_exec exec;
    double bound;     /* absolute; CHECK_BOUNDED only */
    int dimensions;   /* zfp: of its fields */
    buffer workspace; /* Comet */
    void *state;
};

/* "eb", "group:4", "pool:2", "dct:1", ...; keep_mask applies to eb. Says what is wrong and returns MISUSED. */
int coder_spec_parse(const char *text, int keep_mask, coder_spec *spec);

/* "zfp", "zstd". spec->kind is NULL if it was not compiled in. */
int coder_spec_parse_peer(const char *text, coder_spec *spec);

/* `relative`: the bound is in units of the rms of the non-zeros (Comet only). */
void coder_init(coder *c, const coder_spec *spec, double bound, int relative, comet_threads *threads, comet_isa isa);
void coder_free(coder *c);

extern const coder_kind coder_comet;
extern const coder_kind *const coder_zfp, *const coder_zstd; /* NULL: not compiled in */

#endif

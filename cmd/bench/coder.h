/* SPDX-License-Identifier: Apache-2.0 */
/* What the bench measures, behind one interface: Comet's codecs and the peers that were compiled in. */
#ifndef COMET_CMD_CODER_H
#define COMET_CMD_CODER_H

#include "cmd/bench/check.h"
#include "cmd/files/buffer.h"
#include "cmd/files/values.h"
#include "comet/codec.h"

typedef struct coder coder;

/* What eb does beside the bound. The other coders have one mode, the first. */
typedef enum coder_mode {
    CODER_NEAREST,
    CODER_KEEP,    /* non-zeros stay non-zero, sign included */
    CODER_GRID,    /* a threshold grid: cmd/bench/grid.h */
    CODER_TRAINING /* as training does: what a ReLU made is kept, the rest is on a grid */
} coder_mode;

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
    comet_codec_params params; /* Comet's: all but the bound and what the mode says */
    coder_mode mode;
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

/* "eb", "group:4", "pool:2", "dct:1", ...; the mode is eb's. Says what is wrong and returns MISUSED. */
int coder_spec_parse(const char *text, coder_mode mode, coder_spec *spec);

/* "training", "nearest", "keep", "grid". */
int coder_mode_parse(const char *text, coder_mode *mode);
const char *coder_mode_name(coder_mode mode);

/* What the coder does with a tensor of such values: spec->mode, and in the place of CODER_TRAINING what that means. */
coder_mode coder_mode_for(const coder_spec *spec, const values_summary *values);

/* "zfp", "zstd". spec->kind is NULL if it was not compiled in. */
int coder_spec_parse_peer(const char *text, coder_spec *spec);

/* `relative`: the bound is in units of the rms of the non-zeros (Comet only). */
void coder_init(coder *c, const coder_spec *spec, double bound, int relative, comet_threads *threads, comet_isa isa);
void coder_free(coder *c);

/* Behind coder_init: `grid` for CODER_GRID, else NULL. */
void coder_set_mode(coder *c, coder_mode mode, const comet_codec_grid *grid);

extern const coder_kind coder_comet;
extern const coder_kind *const coder_zfp, *const coder_zstd; /* NULL: not compiled in */

#endif

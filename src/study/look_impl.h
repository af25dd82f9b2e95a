/* SPDX-License-Identifier: Apache-2.0 */
/* What a look is made of: for its parts. */
#ifndef COMET_STUDY_LOOK_IMPL_H
#define COMET_STUDY_LOOK_IMPL_H

#include "study/blocks.h"
#include "study/look.h"

/* Maps of some images, each height x width x channels. */
typedef struct comet_look_maps {
    comet_shape shape;
    int images;
    float *values;
} comet_look_maps;

struct comet_look {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_look_options options;
    comet_backend *backend;
    comet_step_sight sight;
    comet_message *message;
    int batch; /* the one that goes through */

    int layer_count;
    comet_look_layer *layers;
    char (*names)[COMET_NAME_BYTES];
    double **grams; /* by layer: of all batches, one behind the other */

    int depth_count;
    int depth_layer[COMET_LOOK_DEPTHS];
    comet_look_maps coarse[COMET_LOOK_DEPTHS], fine[COMET_LOOK_DEPTHS];

    float *features; /* a layer's output; until all images went through */
    uint16_t *raw;   /* the same in the backend's own numbers, where these are narrower */
    size_t values;   /* for how many there is room */

    comet_blocks blocks; /* what goes with the look */
};

static inline int comet_look_count(const comet_look *look, int batch) {
    const int left = look->options.images - batch * look->options.batch;
    return left < look->options.batch ? left : look->options.batch;
}

/* ---- look_layers.c ---- */

/* Fills the layers. */
comet_status comet_look_find_layers(comet_look *look, const comet_graph *g, comet_message *message);

/* ---- look_maps.c ---- */

comet_status comet_look_choose_depths(comet_look *look, comet_message *message);

/* The features of the batch's images in this layer, if its maps are kept. */
void comet_look_keep_maps(comet_look *look, int layer);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a network makes of images, layer by layer, so that it can be put beside what another one makes of the same:
 *
 *     comet_look_new(graph, backend, &options, NULL, &look, &message);
 *     comet_predictor_show(predictor, comet_look_sight(look));
 *     for each batch of images:  comet_predictor_run(...); then comet_look_next(look);
 *     comet_look_cka(one, other, layer);
 *
 * Of a layer's output a Gram matrix is kept for each batch, and maps of the first images for pictures, at some depths.
 * So memory does not grow with the size of images, and two networks need not be there at the same time.
 */
#ifndef COMET_STUDY_LOOK_H
#define COMET_STUDY_LOOK_H

#include "study/gram.h"
#include "study/match.h"
#include "train/predict/predictor.h"

typedef struct comet_look comet_look;

enum {
    COMET_LOOK_DEPTHS = 4,    /* of which maps are kept, at most */
    COMET_LOOK_MATCHED = 32,  /* images by which channels are matched */
    COMET_LOOK_COARSE = 16,   /* height and width of the maps for that, at most */
    COMET_LOOK_SHOWN = 3,     /* images whose maps are shown, the first ones */
    COMET_LOOK_FINE = 56,     /* height and width of their maps, at most */
    COMET_LOOK_LEAST_SIDE = 4 /* smaller maps show nothing */
};

typedef struct comet_look_options {
    int images, batch; /* in all; and in each run but the last: up to COMET_GRAM_MOST */
} comet_look_options;

/*
 * A convolution or a linear layer, and where it is looked at: behind what belongs to it, which is its norm, the sum of
 * a block that ends with it, and an activation. Two that end in the same value, as a block's last convolution and that
 * of its shortcut, are one, with the name of the first.
 */
typedef struct comet_look_layer {
    const char *name;
    comet_value value;
    comet_shape shape;
} comet_look_layer;

/* The graph and the backend may go before the look does, once all images went through. */
comet_status comet_look_new(const comet_graph *graph, comet_backend *backend, const comet_look_options *options,
                            const comet_allocator *allocator, comet_look **look, comet_message *message);
void comet_look_free(comet_look *look); /* NULL is allowed */

/* To be told of an evaluation's values (train/step/step.h). */
const comet_step_sight *comet_look_sight(const comet_look *look);

/* The batch went through; what is seen next is of the next one. */
void comet_look_next(comet_look *look);

/* ---- what was seen ---- */

int comet_look_layers(const comet_look *look);
const comet_look_layer *comet_look_layer_at(const comet_look *look, int layer);

/* Of two looks at networks of the same layers, with the same options. Batches that are too small are left out. */
double comet_look_cka(const comet_look *a, const comet_look *b, int layer);

/* Depths whose maps are kept, from the input on: which layer each is. Fewer where few layers have maps. */
int comet_look_depths(const comet_look *look);
int comet_look_depth_layer(const comet_look *look, int depth);

/* For matching: of the first MATCHED images. */
comet_maps comet_look_coarse(const comet_look *look, int depth);

/* For pictures: of the first SHOWN images, of one of them height x width x channels. */
const float *comet_look_fine(const comet_look *look, int depth, int image, comet_shape *shape);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of the first images at some depths: fine ones to be seen, coarse ones to match channels by. */
#include "study/look_impl.h"

static int has_maps(const comet_look_layer *layer) {
    return layer->shape.height >= COMET_LOOK_LEAST_SIDE && layer->shape.width >= COMET_LOOK_LEAST_SIDE;
}

static int smaller(int a, int b) {
    return a < b ? a : b;
}

static int take_maps(comet_look *look, comet_look_maps *maps, comet_shape shape, int side, int images) {
    *maps = (comet_look_maps){{smaller(shape.height, side), smaller(shape.width, side), shape.channels},
                              smaller(images, look->options.images),
                              NULL};
    maps->values = comet_blocks_take(&look->blocks, (size_t)maps->images * (size_t)comet_shape_count(maps->shape),
                                     sizeof *maps->values);
    return maps->values != NULL;
}

/* From the first layer with maps to the last, as far from each other as can be. */
comet_status comet_look_choose_depths(comet_look *look, comet_message *message) {
    int with = 0;
    for (int i = 0; i < look->layer_count; i++)
        with += has_maps(&look->layers[i]);
    look->depth_count = smaller(with, COMET_LOOK_DEPTHS);
    for (int i = 0, seen = 0, depth = 0; i < look->layer_count && depth < look->depth_count; i++) {
        const int between = look->depth_count > 1 ? depth * (with - 1) / (look->depth_count - 1) : 0;
        if (!has_maps(&look->layers[i]) || seen++ != between)
            continue;
        const comet_shape shape = look->layers[i].shape;
        look->depth_layer[depth] = i;
        if (!take_maps(look, &look->coarse[depth], shape, COMET_LOOK_COARSE, COMET_LOOK_MATCHED) ||
            !take_maps(look, &look->fine[depth], shape, COMET_LOOK_FINE, COMET_LOOK_SHOWN))
            return comet_message_memory(message);
        depth++;
    }
    return COMET_OK;
}

/* Means over the places that fall into one of the smaller map. */
static void shrink(const float *from, comet_shape shape, float *to, comet_shape small) {
    for (int y = 0; y < small.height; y++)
        for (int x = 0; x < small.width; x++)
            for (int c = 0; c < small.channels; c++) {
                const int top = y * shape.height / small.height, bottom = (y + 1) * shape.height / small.height,
                          left = x * shape.width / small.width, right = (x + 1) * shape.width / small.width;
                double sum = 0;
                for (int i = top; i < bottom; i++)
                    for (int j = left; j < right; j++)
                        sum += (double)from[((int64_t)i * shape.width + j) * shape.channels + c];
                *to++ = (float)(sum / ((double)(bottom - top) * (right - left)));
            }
}

static void keep(const comet_look *look, int layer, comet_look_maps *maps) {
    const int first = look->batch * look->options.batch, count = comet_look_count(look, look->batch);
    const comet_shape shape = look->layers[layer].shape;
    for (int i = 0; i < count && first + i < maps->images; i++)
        shrink(look->features + i * comet_shape_count(shape), shape,
               maps->values + (first + i) * comet_shape_count(maps->shape), maps->shape);
}

void comet_look_keep_maps(comet_look *look, int layer) {
    for (int depth = 0; depth < look->depth_count; depth++) {
        if (look->depth_layer[depth] != layer)
            continue;
        keep(look, layer, &look->coarse[depth]);
        keep(look, layer, &look->fine[depth]);
    }
}

/* ---- figures ---- */

int comet_look_depths(const comet_look *look) {
    return look->depth_count;
}

int comet_look_depth_layer(const comet_look *look, int depth) {
    return look->depth_layer[depth];
}

comet_maps comet_look_coarse(const comet_look *look, int depth) {
    const comet_look_maps *maps = &look->coarse[depth];
    return (comet_maps){maps->values, (int64_t)maps->images * maps->shape.height * maps->shape.width,
                        maps->shape.channels};
}

const float *comet_look_fine(const comet_look *look, int depth, int image, comet_shape *shape) {
    *shape = look->fine[depth].shape;
    return look->fine[depth].values + image * comet_shape_count(*shape);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A look's memory, and what it keeps of each value. */
#include "study/look.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/memory.h"
#include "base/vector/loop.h"
#include "study/look_impl.h"

/* ---- memory ---- */

static void give_buffers(comet_look *look) {
    comet_memory_give(look->allocator, look->features, look->values * sizeof *look->features);
    comet_memory_give(look->allocator, look->raw, look->values * sizeof *look->raw);
    look->features = NULL;
    look->raw = NULL;
}

void comet_look_free(comet_look *look) {
    if (!look)
        return;
    give_buffers(look);
    comet_blocks_give(&look->blocks);
    comet_memory_give(look->allocator, look, sizeof *look);
}

static int batches_of(const comet_look *look) {
    return (look->options.images + look->options.batch - 1) / look->options.batch;
}

/* Where the Gram matrix of a batch is; all before it are whole. */
static double *gram_of(const comet_look *look, int layer, int batch) {
    return look->grams[layer] + (size_t)batch * comet_gram_pairs(look->options.batch);
}

static comet_status take_all(comet_look *look, comet_message *message) {
    const size_t pairs = (size_t)batches_of(look) * comet_gram_pairs(look->options.batch);
    int64_t largest = 0;
    look->grams = comet_blocks_take(&look->blocks, (size_t)look->layer_count, sizeof *look->grams);
    for (int i = 0; look->grams && i < look->layer_count; i++) {
        const int64_t count = comet_shape_count(look->layers[i].shape);
        largest = count > largest ? count : largest;
        look->grams[i] = comet_blocks_take(&look->blocks, pairs, sizeof *look->grams[i]);
        if (!look->grams[i])
            return comet_message_memory(message);
    }
    look->values = (size_t)largest * (size_t)look->options.batch;
    look->features = comet_memory_take(look->allocator, look->values * sizeof *look->features);
    if (look->backend->dtype != COMET_F32)
        look->raw = comet_memory_take(look->allocator, look->values * sizeof *look->raw);
    const int is_there = look->grams && look->features && (look->raw || look->backend->dtype == COMET_F32);
    return is_there ? COMET_OK : comet_message_memory(message);
}

/* ---- values ---- */

typedef struct widening {
    const uint16_t *from;
    float *to;
    comet_dtype dtype;
} widening;

static void widen(const void *context, int64_t first, int64_t end) {
    const widening *w = context;
    for (int64_t i = first; i < end; i++)
        w->to[i] = w->dtype == COMET_F16 ? comet_f16_to_f32(w->from[i]) : comet_bf16_to_f32(w->from[i]);
}

static comet_status read_features(comet_look *look, const void *values, int64_t count) {
    comet_space *space = look->backend->space;
    if (look->backend->dtype == COMET_F32)
        return space->read(space, look->features, values, (size_t)count * sizeof(float));
    const comet_status status = space->read(space, look->raw, values, (size_t)count * sizeof(uint16_t));
    const widening all = {look->raw, look->features, look->backend->dtype};
    if (status == COMET_OK)
        comet_loop(look->backend->threads, count, 1 << 16, widen, &all);
    return status;
}

static comet_status keep(comet_look *look, int layer, const void *values) {
    const int64_t count = comet_shape_count(look->layers[layer].shape);
    const int n = comet_look_count(look, look->batch);
    const comet_status status = read_features(look, values, n * count);
    if (status != COMET_OK)
        return status;
    comet_look_keep_maps(look, layer);
    return n < COMET_GRAM_LEAST ? COMET_OK
                                : comet_gram(look->features, n, count, look->backend->threads, look->allocator,
                                             gram_of(look, layer, look->batch));
}

static comet_status see(void *context, comet_value value, const void *values) {
    comet_look *look = context;
    for (int i = 0; look->batch < batches_of(look) && i < look->layer_count; i++)
        if (look->layers[i].value == value)
            return keep(look, i, values);
    return COMET_OK;
}

comet_status comet_look_new(const comet_graph *graph, comet_backend *backend, const comet_look_options *options,
                            const comet_allocator *allocator, comet_look **look, comet_message *message) {
    *look = NULL;
    if (options->images < COMET_GRAM_LEAST || options->batch < COMET_GRAM_LEAST || options->batch > COMET_GRAM_MOST)
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "layers are compared by at least %d images, from %d to %d at a time", COMET_GRAM_LEAST,
                                 COMET_GRAM_LEAST, COMET_GRAM_MOST);
    comet_look *l = comet_memory_take(allocator, sizeof *l);
    if (!l)
        return comet_message_memory(message);
    *l = (comet_look){.options = *options, .backend = backend, .sight = {.made = see, .context = l}};
    l->allocator = l->blocks.allocator = comet_memory_hold(&l->allocator_copy, allocator);
    comet_status status = comet_look_find_layers(l, graph, message);
    if (status == COMET_OK)
        status = comet_look_choose_depths(l, message);
    if (status == COMET_OK)
        status = take_all(l, message);
    if (status != COMET_OK)
        comet_look_free(l);
    else
        *look = l;
    return status;
}

const comet_step_sight *comet_look_sight(const comet_look *look) {
    return &look->sight;
}

void comet_look_next(comet_look *look) {
    if (++look->batch == batches_of(look))
        give_buffers(look);
}

/* ---- figures ---- */

int comet_look_layers(const comet_look *look) {
    return look->layer_count;
}

const comet_look_layer *comet_look_layer_at(const comet_look *look, int layer) {
    return &look->layers[layer];
}

double comet_look_cka(const comet_look *a, const comet_look *b, int layer) {
    comet_cka cka = {0, 0, 0};
    for (int i = 0; i < batches_of(a); i++) {
        const int n = comet_look_count(a, i);
        if (n >= COMET_GRAM_LEAST)
            comet_cka_add(&cka, gram_of(a, layer, i), gram_of(b, layer, i), n);
    }
    return comet_cka_value(&cka);
}

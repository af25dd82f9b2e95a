/* SPDX-License-Identifier: Apache-2.0 */
/* Which channels of which tensors are kept as they were, and where. Turns follow from their number alone. */
#include <string.h>

#include "base/memory.h"
#include "train/collect/collect_impl.h"

/* A part of all values under the controller is room for what is kept; but two channels of the largest tensor. */
enum { ROOM_PART = 192, LEAST_WIDTH = 2 };

/* ---- what a tensor needs ---- */

static const comet_shape *shape_of(const comet_collect *c, const comet_collect_tensor *t) {
    return comet_value_shape(c->graph, t->value);
}

static int64_t rows_of(const comet_collect *c, const comet_collect_tensor *t) {
    const comet_shape *s = shape_of(c, t);
    return (int64_t)c->batch * s->height * s->width;
}

static size_t aligned(size_t bytes) {
    return (bytes + COMET_ALIGNMENT - 1) / COMET_ALIGNMENT * COMET_ALIGNMENT;
}

static size_t exact_bytes(const comet_collect *c, const comet_collect_tensor *t, int width) {
    return aligned((size_t)(rows_of(c, t) * width) * sizeof(float));
}

static size_t small_bytes(const comet_collect *c, int width) {
    return aligned((size_t)c->batch * (size_t)width * sizeof(float));
}

static size_t slice_bytes(const comet_collect *c, const comet_collect_tensor *t, const comet_collect_turn *turn,
                          int width) {
    return (turn->needs_second ? 2 : 1) * exact_bytes(c, t, width) + (turn->needs_small ? small_bytes(c, width) : 0);
}

/* The error of dX goes over what was kept, but where others still read that, or a SiLU's backward comes before. */
static void find_needs(const comet_collect *c, const comet_collect_tensor *t, comet_collect_turn *turn) {
    const comet_shape *s = shape_of(c, t);
    turn->pack = t->use_count > 0 ? 0 : -1;
    turn->width = s->channels < LEAST_WIDTH ? s->channels : LEAST_WIDTH;
    for (int i = 0; i < t->use_count; i++) {
        const comet_collect_use *u = &t->uses[i];
        turn->needs_small |= u->factor >= 0 || u->kind == COMET_USE_CHANNEL_SCALE;
        turn->needs_second |= u->kind == COMET_USE_CURVE_INPUT ||
                              (u->kind == COMET_USE_NORM_INPUT && t->kind != COMET_SAVED_NORM) ||
                              (u->kind == COMET_USE_NORM_SCALE && u->source >= 0);
    }
}

/* ---- turns ---- */

/* As many channels as leave room for ten tensors. */
static void widen(const comet_collect *c, const comet_collect_tensor *t, comet_collect_turn *turn) {
    const int channels = shape_of(c, t)->channels, most = channels < COMET_ERRORS_WIDTH ? channels : COMET_ERRORS_WIDTH;
    while (turn->width < most && slice_bytes(c, t, turn, turn->width + 1) * COMET_COLLECT_MOST_KEPT <= c->keeping.room)
        turn->width++;
}

static void find_room(comet_collect *c) {
    size_t values = 0;
    comet_collect_keeping *k = &c->keeping;
    for (int32_t i = 0; i < c->count; i++) {
        const size_t least = slice_bytes(c, &c->tensors[i], &k->turns[i], k->turns[i].width);
        values += (size_t)c->tensors[i].values;
        if (k->turns[i].pack >= 0 && least > k->room)
            k->room = least;
    }
    if (values * sizeof(float) / ROOM_PART > k->room)
        k->room = aligned(values * sizeof(float) / ROOM_PART);
}

/* One pack after the other is filled, in the order of the network. */
static void fill_packs(comet_collect *c) {
    comet_collect_keeping *k = &c->keeping;
    size_t used = 0;
    int count = 0;
    for (int32_t i = 0; i < c->count; i++) {
        comet_collect_turn *turn = &k->turns[i];
        if (turn->pack < 0)
            continue;
        widen(c, &c->tensors[i], turn);
        const size_t bytes = slice_bytes(c, &c->tensors[i], turn, turn->width);
        if (k->packs == 0 || used + bytes > k->room || count == COMET_COLLECT_MOST_KEPT) {
            k->packs++;
            used = 0;
            count = 0;
        }
        turn->pack = k->packs - 1;
        used += bytes;
        count++;
    }
}

enum { TOTALS = 4 * COMET_ERRORS_WIDTH }; /* of a tensor */

static size_t totals_bytes(void) {
    return aligned(COMET_COLLECT_MOST_KEPT * TOTALS * sizeof(double));
}

/* For the largest image of a tensor. */
static size_t workspace_bytes(const comet_collect *c) {
    size_t most = 0;
    for (int32_t i = 0; i < c->count; i++) {
        const comet_shape *s = shape_of(c, &c->tensors[i]);
        const size_t bytes =
            c->backend->errors->workspace(c->backend, (int64_t)s->height * s->width, c->keeping.turns[i].width);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static size_t turns_bytes(const comet_collect *c) {
    return (size_t)c->count * sizeof *c->keeping.turns;
}

static size_t measured_bytes(const comet_collect *c) {
    return COMET_COLLECT_MOST_KEPT * (size_t)c->keeping.most_uses * sizeof *c->keeping.measured;
}

int comet_collect_take_turns(comet_collect *c, const comet_plan *plan) {
    comet_collect_keeping *k = &c->keeping;
    if (!c->backend->errors || c->count == 0)
        return 1;
    k->turns = comet_memory_take(c->allocator, turns_bytes(c));
    if (!k->turns)
        return 0;
    memset(k->turns, 0, turns_bytes(c));
    for (int i = 0; i < comet_plan_entries(plan); i++) {
        const int32_t tensor = comet_collect_find(c, comet_plan_get_entry(plan, i));
        if (tensor >= 0)
            k->turns[tensor].has_relu = comet_plan_get_entry(plan, i)->has_relu;
    }
    for (int32_t i = 0; i < c->count; i++) {
        find_needs(c, &c->tensors[i], &k->turns[i]);
        k->most_uses = c->tensors[i].use_count > k->most_uses ? c->tensors[i].use_count : k->most_uses;
    }
    if (k->most_uses == 0)
        return 1;
    find_room(c);
    fill_packs(c);
    k->measured = comet_memory_take(c->allocator, measured_bytes(c));
    comet_space *space = c->backend->space;
    const size_t bytes = k->room + totals_bytes() + workspace_bytes(c);
    if (!k->measured || space->take(space, bytes, (void **)&k->memory) != COMET_OK)
        return 0;
    k->bytes = bytes;
    k->totals = (double *)(void *)(k->memory + k->room);
    k->workspace = k->memory + k->room + totals_bytes();
    c->bytes_of_turns = turns_bytes(c) + measured_bytes(c) + bytes;
    return 1;
}

void comet_collect_give_turns(comet_collect *c) {
    comet_collect_keeping *k = &c->keeping;
    if (k->bytes)
        c->backend->space->give(c->backend->space, k->memory, k->bytes);
    if (k->measured)
        comet_memory_give(c->allocator, k->measured, measured_bytes(c));
    if (k->turns)
        comet_memory_give(c->allocator, k->turns, turns_bytes(c));
}

/* ---- an update ---- */

static float *place(comet_collect_keeping *k, size_t *used, size_t bytes) {
    float *at = (float *)(void *)(k->memory + *used);
    *used += bytes;
    return at;
}

static void begin_kept(comet_collect *c, int32_t tensor, int64_t round, size_t *used) {
    comet_collect_keeping *k = &c->keeping;
    const comet_collect_tensor *t = &c->tensors[tensor];
    const comet_collect_turn *turn = &k->turns[tensor];
    const int channels = shape_of(c, t)->channels, blocks = (channels + turn->width - 1) / turn->width,
              first = (int)((round + tensor) % blocks) * turn->width;
    comet_collect_kept *kept = &k->kept[k->count];
    *kept = (comet_collect_kept){.tensor = tensor,
                                 .first = first + turn->width <= channels ? first : channels - turn->width,
                                 .width = turn->width,
                                 .rows = rows_of(c, t),
                                 .totals = k->totals + TOTALS * k->count,
                                 .uses = k->measured + (size_t)(k->count * k->most_uses)};
    kept->exact = place(k, used, exact_bytes(c, t, turn->width));
    if (turn->needs_second)
        kept->second = place(k, used, exact_bytes(c, t, turn->width));
    if (turn->needs_small)
        kept->small = place(k, used, small_bytes(c, turn->width));
    for (int i = 0; i < t->use_count; i++)
        kept->uses[i] = (comet_collect_measured){.seen = 0};
    k->count++;
}

void comet_collect_turns_begin(comet_collect *c) {
    comet_collect_keeping *k = &c->keeping;
    size_t used = 0;
    k->count = k->batches = 0;
    for (int32_t i = 0; i < c->count && k->packs > 0; i++)
        if (k->turns[i].pack == (int)(k->turn % k->packs))
            begin_kept(c, i, k->turn / k->packs, &used);
}

void comet_collect_turns_batch(comet_collect *c) {
    for (int i = 0; i < c->keeping.count; i++) {
        comet_collect_kept *k = &c->keeping.kept[i];
        k->filled = 0;
        k->error = NULL;
        k->has_factors = k->has_own = k->has_curve = 0;
    }
}

void comet_collect_turns_end(comet_collect *c) {
    c->keeping.batches++;
}

/* ---- a tensor ---- */

void comet_collect_keep(comet_collect *c, int32_t tensor, const comet_tensor *values, const comet_codec_grid *grid) {
    for (int i = 0; i < c->keeping.count && values; i++) {
        comet_collect_kept *k = &c->keeping.kept[i];
        const int64_t rows = values->shape[0] * values->shape[1] * values->shape[2];
        if (k->tensor != tensor || k->filled + rows > k->rows)
            continue;
        comet_collect_check(
            c, c->backend->errors->keep(c->backend, values, grid, k->first, k->width, k->exact + k->filled * k->width));
        k->filled += rows;
    }
}

int comet_collect_is_whole(const comet_collect_kept *k) {
    return k->filled == k->rows;
}

void comet_collect_set_turn(comet_collect *c, int64_t turn) {
    c->keeping.turn = turn > 0 ? turn : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams in the plan's buffers, of a backend whose kernels read and write them there. What is offloaded leaves its
 * buffer within a few nodes and comes back a few nodes before it is needed: copies have that long, beside what is
 * computed.
 */
#include "train/plan/plan_impl.h"

/* What is seen differs from batch to batch; a step whose stream finds no room is run again. */
static size_t capacity_of(const comet_plan *p, const comet_plan_entry *e) {
    const size_t seen = p->options.seen ? p->options.seen(p->options.context, e) : 0;
    const size_t wanted = seen ? seen + seen / 16 : e->stored_bytes + e->stored_bytes / 8;
    return wanted < e->worst_bytes ? wanted : e->worst_bytes;
}

int comet_plan_gone(const comet_plan *p, int saved_at) {
    const int time = saved_at + COMET_PLAN_AHEAD;
    return time < p->n ? time : p->n;
}

static void add_move(comet_plan *p, comet_plan_move move) {
    if (!comet_plan_grow(p, (void **)&p->move_list, p->move_count, &p->move_room, sizeof *p->move_list))
        return;
    int at = p->move_count++;
    for (; at > 0 && p->move_list[at - 1].time > move.time; at--)
        p->move_list[at] = p->move_list[at - 1];
    p->move_list[at] = move;
}

/* A few nodes before `time`, but not before backward. */
static int begins_back(const comet_plan *p, int time) {
    const int first = time - COMET_PLAN_AHEAD;
    return first > p->n ? first : p->n + 1;
}

/* The time of the first backward that loads an entry; -1. */
static int first_load(const comet_plan *p, int entry) {
    for (int i = p->n - 1; i >= 0; i--)
        for (int k = 0; k < p->nodes[i].loads; k++)
            if (p->load_list[p->nodes[i].first_load + k].entry == entry)
                return comet_plan_backward_time(p, i);
    return -1;
}

static void place_stream(comet_plan *p, int entry) {
    const comet_plan_entry e = p->entries[entry];
    const int gone = e.form.offload ? comet_plan_gone(p, e.saved_at) : e.last_at;
    const int buffer = comet_plan_buffer(p, capacity_of(p, &e), e.saved_at, gone);
    if (buffer < 0)
        return;
    p->entries[entry].buffer = buffer;
    p->entries[entry].capacity = p->buffers[buffer].bytes;
    const int load = e.form.offload ? first_load(p, entry) : -1;
    if (load < 0)
        return;
    const int back = comet_plan_buffer(p, p->buffers[buffer].bytes, begins_back(p, load), e.last_at);
    p->entries[entry].back_buffer = back;
    add_move(p, (comet_plan_move){gone, entry, 0, -1});
    add_move(p, (comet_plan_move){begins_back(p, load), entry, 1, back});
}

/* As it is: it comes back right where each backward finds it. */
static void place_plain(comet_plan *p, int entry) {
    add_move(p, (comet_plan_move){comet_plan_gone(p, p->entries[entry].saved_at), entry, 0, -1});
    for (int i = p->n - 1; i >= 0; i--)
        for (int k = 0; k < p->nodes[i].loads; k++) {
            const comet_plan_load *l = &p->load_list[p->nodes[i].first_load + k];
            if (l->entry != entry || l->buffer < 0)
                continue;
            p->buffers[l->buffer].first = begins_back(p, comet_plan_backward_time(p, i));
            add_move(p, (comet_plan_move){p->buffers[l->buffer].first, entry, 1, l->buffer});
        }
}

void comet_plan_streams(comet_plan *p) {
    for (int i = 0; i < p->entry_count && p->status == COMET_OK; i++) {
        const comet_plan_entry *e = &p->entries[i];
        if (!comet_plan_in_store(e))
            continue;
        if (e->form.form == COMET_FORM_CODEC)
            place_stream(p, i);
        else if (p->options.training)
            place_plain(p, i);
    }
}

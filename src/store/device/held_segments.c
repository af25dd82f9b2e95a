/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes of the device store, and where streams lie. Everything that a lane's memory is used for is issued to its queue,
 * or ordered with it; so what is given up may be used again, or given back, while the device still works on it.
 */
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "store/device/device_store_impl.h"

/* ---- lanes ---- */

comet_status comet_held_lane_of(comet_device_store *s, void *queue, held_lane **lane) {
    for (held_lane *l = s->lanes; l; l = l->next)
        if (l->queue == queue) {
            *lane = l;
            return COMET_OK;
        }
    held_lane *l = comet_memory_take(s->allocator, sizeof *l);
    if (!l)
        return COMET_ERROR_MEMORY;
    *l = (held_lane){.next = s->lanes, .queue = queue};
    s->lanes = l;
    *lane = l;
    return COMET_OK;
}

static comet_status no_memory(const char *what, size_t bytes) {
    return comet_fail(COMET_ERROR_MEMORY, "the caller has no %zu bytes of memory for %s", bytes, what);
}

/*
 * The larger one is there before the smaller one goes, so that the lane is never without. While it is taken another
 * call may have made the lane's larger still: then that one stays.
 */
comet_status comet_held_workspace(comet_device_store *s, held_lane *lane, size_t bytes) {
    const comet_device_memory *memory = &s->options.memory;
    if (bytes <= lane->workspace_bytes)
        return COMET_OK;
    bytes = held_round_up(bytes, HELD_ALIGNMENT);
    void *workspace = memory->take(memory->context, bytes, lane->queue);
    if (!workspace)
        return no_memory("a workspace", bytes);
    comet_status status = s->driver->workspace_init(s->driver, workspace, bytes, lane->queue);
    if (status == COMET_OK && bytes > lane->workspace_bytes) {
        void *before = lane->workspace;
        size_t before_bytes = lane->workspace_bytes;
        s->stats.workspace_bytes += bytes - before_bytes;
        lane->workspace = workspace;
        lane->workspace_bytes = bytes;
        workspace = before;
        bytes = before_bytes;
    }
    if (workspace)
        memory->give(memory->context, workspace, bytes, lane->queue);
    return status;
}

comet_codec_exec comet_held_exec(const held_lane *lane) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.queue = lane->queue;
    exec.workspace = lane->workspace;
    exec.workspace_bytes = lane->workspace_bytes;
    return exec;
}

comet_status comet_held_order(comet_device_store *s, void *before, void *after) {
    COMET_TRY(s->driver->event_record(s->driver, s->event, before));
    COMET_TRY(s->driver->queue_follow(s->driver, after, s->event));
    s->stats.queues_joined++;
    return COMET_OK;
}

/* An error is one of the device, which then works no more: it is told by the next poll. */
void comet_held_quiet(comet_device_store *s, comet_device_entry *e) {
    int scope;
    if (!e->reader && !e->copy)
        return;
    comet_status status = held_enter(s, &scope);
    if (status == COMET_OK) {
        if (e->reader)
            status = comet_held_order(s, e->reader->queue, e->lane->queue);
        if (status == COMET_OK && e->copy)
            status = s->driver->queue_follow(s->driver, e->lane->queue, e->copy->event);
        held_leave(s, scope);
    }
    if (status != COMET_OK)
        atomic_store(&s->failed, 1);
    e->reader = NULL;
}

/* ---- segments ---- */

enum { NEWEST_LOOKED_AT = 4 };

static held_segment *segment_struct(comet_device_store *s) {
    held_segment *g = s->free_segments;
    if (g)
        s->free_segments = g->older;
    else
        g = comet_memory_take(s->allocator, sizeof *g);
    return g;
}

static held_segment *segment_new(comet_device_store *s, held_lane *lane, size_t bytes) {
    const comet_device_memory *memory = &s->options.memory;
    held_segment *g = segment_struct(s);
    if (!g)
        return NULL;
    unsigned char *base = memory->take(memory->context, bytes, lane->queue);
    if (!base) {
        g->older = s->free_segments;
        s->free_segments = g;
        return NULL;
    }
    *g = (held_segment){.older = lane->newest, .lane = lane, .base = base, .bytes = bytes};
    if (g->older)
        g->older->newer = g;
    lane->newest = g;
    s->stats.segments++;
    s->stats.segment_bytes += bytes;
    if (s->stats.segment_bytes > s->stats.peak_segment_bytes)
        s->stats.peak_segment_bytes = s->stats.segment_bytes;
    return g;
}

static void segment_give(comet_device_store *s, held_segment *g) {
    const comet_device_memory *memory = &s->options.memory;
    *(g->newer ? &g->newer->older : &g->lane->newest) = g->older;
    if (g->older)
        g->older->newer = g->newer;
    s->stats.segments--;
    s->stats.segment_bytes -= g->bytes;
    memory->give(memory->context, g->base, g->bytes, g->lane->queue);
    g->older = s->free_segments;
    s->free_segments = g;
}

static void segment_give_if_empty(comet_device_store *s, held_segment *g) {
    if (!g->top && !g->pins)
        segment_give(s, g);
}

static held_segment *segment_with_room(const held_lane *lane, size_t room, int newest) {
    for (held_segment *g = lane->newest; g && newest-- != 0; g = g->older)
        if (room <= g->bytes - g->used)
            return g;
    return NULL;
}

/* What is there before what must be taken; only where nothing can be taken all that is there is searched. */
static held_segment *find_segment(comet_device_store *s, held_lane *lane, size_t room) {
    size_t least = held_round_up(room, HELD_SEGMENT_UNIT), usual = s->options.segment_bytes;
    held_segment *g = segment_with_room(lane, room, NEWEST_LOOKED_AT);
    if (!g)
        g = segment_new(s, lane, least > usual ? least : usual);
    if (!g)
        g = segment_with_room(lane, room, -1);
    if (!g && least < usual)
        g = segment_new(s, lane, least);
    return g;
}

/* ---- room ---- */

static void push(comet_device_store *s, held_segment *g, comet_device_entry *e, size_t room) {
    e->segment = g;
    e->base = g->base + g->used;
    e->room = room;
    e->below = g->top;
    e->above = NULL;
    if (g->top)
        g->top->above = e;
    g->top = e;
    g->used += room;
    s->stats.room_bytes += room;
}

/* Where the topmost stream ends the next one begins. */
static void set_used(held_segment *g) {
    g->used = g->top ? (size_t)(g->top->base - g->base) + g->top->room : 0;
}

/* Takes the stream out of its segment, which stays even if it is empty. */
static held_segment *pull(comet_device_store *s, comet_device_entry *e) {
    held_segment *g = e->segment;
    if (!g)
        return NULL;
    *(e->above ? &e->above->below : &g->top) = e->below;
    if (e->below)
        e->below->above = e->above;
    set_used(g);
    s->stats.room_bytes -= e->room;
    e->segment = NULL;
    e->below = e->above = NULL;
    e->base = NULL;
    e->room = 0;
    return g;
}

comet_status comet_held_place(comet_device_store *s, comet_device_entry *e, held_lane *lane, size_t room) {
    held_segment *before = pull(s, e); /* it may grow where it is */
    if (before)
        before->pins++;
    held_segment *g = find_segment(s, lane, room);
    if (g && !e->segment) {
        e->lane = lane;
        push(s, g, e, room);
    } else if (g) { /* while memory was taken another call has placed it */
        segment_give_if_empty(s, g);
    }
    if (before) {
        before->pins--;
        segment_give_if_empty(s, before);
    }
    return e->segment ? COMET_OK : no_memory("a stream", room);
}

void comet_held_shrink(comet_device_store *s, comet_device_entry *e, size_t room) {
    s->stats.room_bytes -= e->room - room;
    e->room = room;
    set_used(e->segment);
}

void comet_held_displace(comet_device_store *s, comet_device_entry *e) {
    held_segment *g = pull(s, e);
    if (g)
        segment_give_if_empty(s, g);
}

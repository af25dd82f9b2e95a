/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor that several operations save is held once. What is compared is memory: address, length, type, and PyTorch's
 * version of the contents, while the storage is known to be alive (an address may be given out again). Two views that
 * cover the same memory, one the transpose of the other, say, share an entry, because entries hold values in the order
 * of memory; each view has its own shape and strides.
 */
#include <stdlib.h>

#include "hold/entry.h"

static size_t place_of(const session *s, const void *address) {
    uint64_t mixed = (uint64_t)(uintptr_t)address * 0x9E3779B97F4A7C15u;
    return (size_t)(mixed >> 20) & (s->alias_room - 1);
}

static int grow(session *s) {
    const size_t room = s->alias_room ? 2 * s->alias_room : 1024;
    entry **before = s->aliases, **after = calloc(room, sizeof *after);
    if (!after)
        return -1;
    const size_t old = s->alias_room;
    s->aliases = after, s->alias_room = room;
    for (size_t i = 0; i < old; i++)
        if (before[i]) {
            size_t at = place_of(s, before[i]->view.data);
            while (after[at])
                at = (at + 1) & (room - 1);
            after[at] = before[i];
        }
    free(before);
    return 0;
}

static entry **slot_of(session *s, const void *address, comet_device device) {
    size_t at = place_of(s, address);
    while (s->aliases[at]) {
        const entry *e = s->aliases[at];
        if (e->view.data == address && e->view.device.kind == device.kind && e->view.device.index == device.index)
            break;
        at = (at + 1) & (s->alias_room - 1);
    }
    return &s->aliases[at];
}

/* Keeps every chain whole: what follows the gap may belong into it. */
static void close_gap(session *s, size_t gap) {
    const size_t mask = s->alias_room - 1;
    s->aliases[gap] = NULL;
    for (size_t at = (gap + 1) & mask; s->aliases[at]; at = (at + 1) & mask) {
        const size_t home = place_of(s, s->aliases[at]->view.data);
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            s->aliases[gap] = s->aliases[at];
            s->aliases[at] = NULL;
            gap = at;
        }
    }
}

void alias_remove(entry *e) {
    session *s = e->owner;
    if (!e->is_listed)
        return;
    entry **slot = slot_of(s, e->view.data, e->view.device);
    if (*slot == e) {
        close_gap(s, (size_t)(slot - s->aliases));
        s->alias_count--;
    }
    e->is_listed = 0;
    torch_storage_forget(e->watch);
    e->watch = 0;
}

void alias_add(entry *e, PyObject *tensor) {
    session *s = e->owner;
    if ((!s->alias_room || 2 * s->alias_count >= s->alias_room) && grow(s))
        return; /* it will be held twice, which is right too */
    entry **slot = slot_of(s, e->view.data, e->view.device);
    if (*slot) {
        alias_remove(*slot); /* what lay there before */
        slot = slot_of(s, e->view.data, e->view.device);
    }
    e->watch = torch_storage_watch(tensor);
    if (!e->watch)
        return;
    *slot = e;
    s->alias_count++;
    e->is_listed = 1;
}

static int is_good_enough(const entry *e, const form *how, role r) {
    const double wanted = how->kind == FORM_CODEC ? how->bounds[r] : 0;
    if (e->is_mask)
        return r == ROLE_RELU && how->kind == FORM_CODEC;
    if (e->bound == 0)
        return 1;
    if (e->site->set_bound > 0 && how == e->form && (r == ROLE_VALUE || r == ROLE_RELU)) /* for all of these uses */
        return !e->by_channel && (r != ROLE_RELU || e->keeps_mask);
    return e->bound <= 1.001 * wanted && e->by_channel == (r == ROLE_NORM) && (r != ROLE_RELU || e->keeps_mask);
}

entry *alias_find(session *s, const tensor_view *view, const form *how, role r) {
    entry *e = s->alias_room ? *slot_of(s, view->data, view->device) : NULL;
    if (!e || e->view.version != view->version || e->view.dtype != view->dtype || e->view.bytes != view->bytes)
        return NULL;
    if (!e->raw && torch_storage_is_gone(e->watch)) { /* the address was given out again */
        alias_remove(e);
        return NULL;
    }
    return is_good_enough(e, how, r) ? e : NULL;
}

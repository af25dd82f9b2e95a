/* SPDX-License-Identifier: Apache-2.0 */
/* Entries: made, found by handle or as an alias, pinned by calls that use them, freed. */
#include <string.h>

#include "base/fail.h"
#include "store/host/store.h"

/* ---- slots ---- */

static int grow_locked(comet_store *s) {
    uint32_t slots = s->slots ? 2 * s->slots : 64;
    if (slots >= 1u << STORE_SLOT_BITS)
        return 0;
    store_entry **entries = comet_store_take_locked(s, slots * sizeof *entries);
    if (!entries)
        return 0;
    memset(entries, 0, slots * sizeof *entries);
    if (s->slots)
        memcpy(entries, s->entries, s->slots * sizeof *entries);
    comet_store_give_locked(s, s->entries, s->slots * sizeof *entries);
    s->entries = entries;
    s->slots = slots;
    return 1;
}

static int slot_take_locked(comet_store *s, store_entry *entry) {
    while (s->free_from < s->slots && s->entries[s->free_from])
        s->free_from++;
    if (s->free_from == s->slots && !grow_locked(s))
        return 0;
    s->entries[s->free_from] = entry;
    entry->handle = ++s->serial << STORE_SLOT_BITS | s->free_from;
    return 1;
}

static void slot_give_locked(comet_store *s, const store_entry *entry) {
    uint32_t slot = (uint32_t)(entry->handle & ((1u << STORE_SLOT_BITS) - 1));
    s->entries[slot] = NULL;
    if (slot < s->free_from)
        s->free_from = slot;
}

store_entry *comet_store_find_locked(const comet_store *s, comet_store_handle handle) {
    uint32_t slot = (uint32_t)(handle & ((1u << STORE_SLOT_BITS) - 1));
    store_entry *entry = slot < s->slots ? s->entries[slot] : NULL;
    return entry && entry->handle == handle && entry->state == ENTRY_READY ? entry : NULL;
}

/* ---- making one ---- */

/* Decoding needs the threshold and the slope; the caller's may change before that. */
static int copy_grid_locked(comet_store *s, store_entry *entry, const comet_codec_grid *grid) {
    entry->given_grid = *grid;
    size_t channels = (size_t)grid->channels;
    entry->grid_bytes = 2 * channels * sizeof(float);
    entry->grid_values = comet_store_take_locked(s, entry->grid_bytes);
    if (!entry->grid_values)
        return 0;
    float *threshold = entry->grid_values, *slope = threshold + channels;
    memcpy(threshold, grid->threshold, channels * sizeof *threshold);
    if (grid->slope)
        memcpy(slope, grid->slope, channels * sizeof *slope);
    entry->grid =
        (comet_codec_grid){.channels = grid->channels, .threshold = threshold, .slope = grid->slope ? slope : NULL};
    entry->codec.grid = &entry->grid;
    return 1;
}

static void entry_init(store_entry *entry, const comet_tensor *tensor, const comet_store_item *item) {
    *entry = (store_entry){.state = ENTRY_SAVING,
                           .holders = 1,
                           .view = *tensor,
                           .form = item->form,
                           .offload = item->offload,
                           .generation = item->generation,
                           .release = item->release,
                           .recompute = item->recompute,
                           .context = item->context};
}

comet_status comet_store_entry_new_locked(comet_store *s, const comet_tensor *tensor, const comet_store_item *item,
                                          const comet_codec_params *codec, store_entry **out) {
    store_entry *entry = comet_store_take_locked(s, sizeof *entry);
    if (!entry)
        return COMET_ERROR_MEMORY;
    entry_init(entry, tensor, item);
    entry->account = comet_store_account_locked(s, item->name);
    int made = entry->account != NULL;
    if (made && item->form == COMET_FORM_CODEC) {
        entry->codec = *codec;
        made = !codec->grid || copy_grid_locked(s, entry, codec->grid);
    }
    if (!made || !slot_take_locked(s, entry)) {
        comet_store_give_locked(s, entry->grid_values, entry->grid_bytes);
        comet_store_give_locked(s, entry, sizeof *entry);
        return COMET_ERROR_MEMORY;
    }
    entry->account->users++;
    *out = entry;
    return COMET_OK;
}

/* ---- aliases ---- */

static int same_view(const comet_tensor *a, const comet_tensor *b) {
    size_t bytes = (size_t)a->ndim * sizeof *a->shape;
    return a->data == b->data && a->dtype == b->dtype && a->layout == b->layout && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, bytes) == 0 && memcmp(a->strides, b->strides, bytes) == 0;
}

static int same_grid(const comet_codec_grid *a, const comet_codec_grid *b) {
    return a->channels == b->channels && a->scale == b->scale && a->shift == b->shift && a->threshold == b->threshold &&
           a->slope == b->slope;
}

static int same_codec(const store_entry *e, const comet_codec_params *p) {
    const comet_codec_params *q = &e->codec;
    return p->codec == q->codec && p->bound_kind == q->bound_kind && p->bound == q->bound &&
           p->rounding == q->rounding && p->seed == q->seed && p->keep_mask == q->keep_mask &&
           p->checksum == q->checksum && p->pool_block == q->pool_block && p->group_bits == q->group_bits &&
           p->group_values == q->group_values && p->dct_table == q->dct_table && !p->grid == !q->grid &&
           (!p->grid || same_grid(p->grid, &e->given_grid));
}

static int is_alias(const store_entry *e, const comet_tensor *tensor, const comet_store_item *item,
                    const comet_codec_params *codec) {
    if (e->state == ENTRY_LEAVING || e->generation != item->generation || e->form != item->form ||
        e->offload != item->offload || !same_view(&e->view, tensor))
        return 0;
    if (e->form == COMET_FORM_RECOMPUTE)
        return e->recompute == item->recompute && e->context == item->context;
    return e->form == COMET_FORM_KEEP || same_codec(e, codec);
}

store_entry *comet_store_alias_locked(comet_store *s, const comet_tensor *tensor, const comet_store_item *item,
                                      const comet_codec_params *codec) {
    for (uint32_t i = 0; i < s->slots;) {
        store_entry *e = s->entries[i];
        if (!e || !is_alias(e, tensor, item, codec)) {
            i++;
        } else if (e->state == ENTRY_READY) {
            return e;
        } else {
            pthread_cond_wait(&s->changed, &s->lock); /* and look again: saving it may fail */
            i = 0;
        }
    }
    return NULL;
}

/* ---- using and freeing one ---- */

void comet_store_unpin_locked(comet_store *s, store_entry *entry) {
    if (--entry->pins == 0 && entry->state == ENTRY_LEAVING)
        comet_store_entry_free_locked(s, entry);
}

void comet_store_unuse_locked(comet_store *s, store_entry *entry) {
    if (--entry->uses == 0 && entry->unwanted)
        comet_store_drop_memory_locked(s, entry);
}

/* What has to go, taken from the entry under the lock. */
typedef struct leaving {
    void *memory;
    size_t resident, raw;
    int taken;
} leaving;

static leaving detach_locked(store_entry *entry) {
    leaving l = {entry->memory, (size_t)entry->bytes.resident, entry->raw, entry->taken};
    entry->memory = NULL;
    entry->taken = 0;
    return l;
}

/*
 * Memory goes first, and only then its place in the accounts: what is counted is never less than what there is. Whoever
 * needs room waits for it as for a call in progress.
 */
static void free_detached_locked(comet_store *s, store_entry *entry, const leaving *l) {
    s->flights++;
    pthread_mutex_unlock(&s->lock);
    if (l->taken)
        entry->release(entry->context, l->memory, l->raw);
    else
        comet_store_block_give(s, l->memory, l->resident);
    pthread_mutex_lock(&s->lock);
    s->flights--;
    comet_store_bytes bytes = entry->bytes;
    bytes.resident = 0;
    comet_store_count_locked(s, entry, bytes);
    if (entry->spare)
        s->spare -= l->resident;
    entry->spare = entry->unwanted = 0;
    comet_store_vacate_locked(s, l->resident);
}

void comet_store_drop_memory_locked(comet_store *s, store_entry *entry) {
    leaving l = detach_locked(entry);
    entry->dropping = 1; /* and not to be read ahead meanwhile */
    entry->pins++;       /* nor to go */
    free_detached_locked(s, entry, &l);
    entry->dropping = 0;
    comet_store_unpin_locked(s, entry);
}

void comet_store_entry_free_locked(comet_store *s, store_entry *entry) {
    entry->state = ENTRY_LEAVING;
    leaving l = detach_locked(entry);
    if (l.memory)
        free_detached_locked(s, entry, &l);
    if (entry->form == COMET_FORM_RECOMPUTE && entry->release) {
        pthread_mutex_unlock(&s->lock);
        entry->release(entry->context, NULL, 0);
        pthread_mutex_lock(&s->lock);
    }
    comet_store_count_locked(s, entry, (comet_store_bytes){0});
    comet_store_number_locked(s, entry, 0);
    comet_store_extent_free_locked(s, entry);
    slot_give_locked(s, entry);
    entry->account->users--;
    comet_store_give_locked(s, entry->grid_values, entry->grid_bytes);
    comet_store_give_locked(s, entry, sizeof *entry);
    pthread_cond_broadcast(&s->changed); /* an alias may be waiting for a save that failed */
}

comet_status comet_store_unknown(void) {
    return comet_fail(COMET_ERROR_ARGUMENT, "handle is none of this store, or was released");
}

void comet_store_fill_info(const store_entry *entry, comet_store_info *info) {
    *info = (comet_store_info){.bytes = entry->bytes,
                               .holders = entry->holders,
                               .spilled = entry->extent != NULL,
                               .loads = entry->loads,
                               .form = entry->form,
                               .result = entry->result};
}
